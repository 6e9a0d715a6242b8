"""`python -m sopa_plugin.explain RUN ACTION`: reads a model, or edits its patterns."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from sopa_plugin.cli import (
    add_input,
    add_model_options,
    check_output,
    choose_device,
    make_parser,
    open_input,
    run_command,
    whole_number,
)
from sopa_plugin.errors import UserError
from sopa_plugin.registry import import_plugins

_COUNT = whole_number(1)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments, explains and writes."""
    args = _parser().parse_args(argv)
    _check(args)
    form = _form(args)
    import_plugins(args.include_package)
    from sopa_plugin.interpret.runs import RunReader

    read = partial(
        RunReader,
        replacement=args.replacement or "next",
        device=choose_device(args.device),
        accept_changed=args.accept_changed,
    )
    args.others = map(read, args.others)
    if "own_split" in args:
        args.split = args.split or args.own_split
    if args.method == "document":
        args.text = args.text or _texts(args, args.input or "-")
    elif args.method == "patterns":
        args.lines = _texts(args, args.lines) if args.lines else None
    explanation = getattr(read(args.run), args.method)(args)
    if args.output is not None:
        explanation.save(args.output, form)
        return
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print(explanation.render(form, color), end="")


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "explain",
        "Read a trained model: what its patterns match, why a document got its label. A pattern's "
        "name is its number of states and its rank among those: 5-3.",
    )
    parser.add_argument("run", help="the folder of a finished run")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    patterns = actions.add_parser("patterns", help="best phrases, effect and arcs of each pattern")
    chosen = patterns.add_mutually_exclusive_group()
    chosen.add_argument("names", nargs="*", default=[], help="only these patterns, in this order")
    chosen.add_argument("--top", type=_COUNT, help="only so many, the first ones")
    patterns.add_argument(
        "--sort",
        choices=("dev", "accuracy", "precision", "recall", "share", "influence"),
        help="the first patterns are those without which loss on dev rises most (default) or "
        "accuracy falls most, that are right most often where they fire, that find most of their "
        "label's documents, that are most often among the largest contributions, or whose effect "
        "is the strongest",
    )
    patterns.add_argument("-k", type=_COUNT, default=10, help="phrases of each (default 10)")
    patterns.add_argument(
        "--words",
        type=whole_number(0),
        default=10,
        help="words of each arc, in json, html and automata (default 10; 0: no arcs)",
    )
    patterns.add_argument(
        "--automaton", action="store_true", help="draw automata (html, svg) instead of phrases"
    )
    _add_data(patterns, "train").add_argument(
        "--lines", metavar="FILE", help="read these documents, as with -i of document"
    )
    add_input(patterns, "--input-format")
    _finish(patterns, "patterns", svg=True)

    document = actions.add_parser("document", help="why documents get their labels")
    documents = document.add_mutually_exclusive_group()
    documents.add_argument(
        "text", nargs="*", type=_text, default=[], help="documents; by default stdin, one a line"
    )
    documents.add_argument(
        "-i", "--input", metavar="FILE", help="a document a line, or a table (- stdin)"
    )
    add_input(document, "--input-format")
    document.add_argument("--target", metavar="LABEL", help="explain this label, not the predicted")
    document.add_argument("--against", metavar="LABEL", help="why the target rather than this one")
    document.add_argument("--shown", type=_COUNT, help="contributions shown (default 10)")
    document.add_argument(
        "--activations", metavar="PATTERN", help="this pattern's states over the first document"
    )
    _finish(document, "document", svg=True)

    report = actions.add_parser("report", help="the whole model on one page")
    report.add_argument("-k", type=_COUNT, default=5, help="phrases of each pattern (default 5)")
    report.add_argument(
        "--examples", type=_COUNT, default=5, help="documents of each kind (default 5)"
    )
    report.add_argument(
        "--shown",
        type=_COUNT,
        default=6,
        help="contributions of each document (default 6)",
    )
    _add_data(report, "dev")
    _finish(report, "report")

    where = actions.add_parser("where", help="every place where a pattern fires, in context")
    where.add_argument("name", metavar="PATTERN", help="the pattern")
    where.add_argument(
        "--wrong", action="store_true", help="only in documents that got a wrong label"
    )
    _add_data(where, "dev")
    _finish(where, "where")

    compared = actions.add_parser("compare", help="two models side by side: labels that flip")
    compared.add_argument("others", nargs=1, metavar="OTHER", help="the folder of another run")
    _add_data(compared, "dev")
    _finish(compared, "compare")

    rules = actions.add_parser(
        "rules", help="what training made of the rules that a model began as"
    )
    _add_data(rules, "train")
    _finish(rules, "rules")

    faithful = actions.add_parser(
        "faithfulness", help="how faithful explanations are, by what contributions compare with"
    )
    faithful.add_argument("others", nargs="*", metavar="OTHER", help="more runs, to take means of")
    faithful.add_argument(
        "--documents", type=_COUNT, default=100, help="how many are read (default 100)"
    )
    _add_data(faithful, "dev")
    _finish(faithful, "faithfulness")

    mask = actions.add_parser(
        "mask", aliases=["silence"], help="hold patterns at their means; what changes on dev"
    )
    mask.add_argument("names", nargs="+", help="patterns")
    fix = actions.add_parser("fix", help="hold patterns at a value; what changes on dev")
    fix.add_argument(
        "values",
        nargs="+",
        type=_value,
        metavar="NAME=VALUE",
        help="a pattern and its number in the document vector, which the head sees",
    )
    add = actions.add_parser("add", help="add a rule as a pattern; what changes on dev")
    substitute = actions.add_parser("replace", help="add a rule in the place of a pattern")
    edit = actions.add_parser("edit", help="put words on an arc or take them from it")
    substitute.add_argument("names", nargs=1, metavar="PATTERN", help="held at its mean")
    edit.add_argument("name", metavar="PATTERN", help="the pattern")
    for rewriter in (add, substitute):
        rewriter.add_argument(
            "rule",
            help="a word regex, '(not|never) * (good|great)', where * alone is any words, or a "
            'token pattern, \'[{"LOWER": "not"}]\'',
        )
        rewriter.add_argument("--label", required=True, help="that it votes for")
    for option, what in (("--forbid", "that the arc is to take no more"), ("--allow", "to take")):
        edit.add_argument(option, nargs="+", default=[], metavar="WORD", help=f"words {what}")
    edit.add_argument(
        "--arc", type=_COUNT, help="of the main path, from 1 (default: the best for each word)"
    )
    for rewriter in (add, substitute, edit):
        rewriter.add_argument(
            "--refit", action="store_true", help="fit the head's weights for it on the train set"
        )
    for editor in (mask, fix, add, substitute, edit):
        editor.set_defaults(names=[], values=[], rule=None, name=None, refit=False)
        editor.add_argument(
            "-s",
            "--serialization-dir",
            metavar="DIR",
            help="save the edited model in this new folder",
        )
        _finish(editor, "edit")
    return parser


def _add_data(parser: argparse.ArgumentParser, default: str) -> argparse._MutuallyExclusiveGroup:
    """What is read: one of several."""
    parser.set_defaults(own_split=default)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--data",
        metavar="FILE",
        help="a file in the format of the run's own data, or with columns text and label",
    )
    group.add_argument(
        "--split",
        choices=("train", "dev", "test"),
        help=f"which of the run's own sets (default {default})",
    )
    return group


def _finish(parser: argparse.ArgumentParser, method: str, svg: bool = False) -> None:
    """What all actions have; a `method` of `RunReader` does the work.

    Its result is text, JSON, HTML or `svg`.
    """
    forms = ("text", "json", "html") + ("svg",) * svg
    parser.set_defaults(method=method, forms=forms, replacement=None, others=[])
    action = parser.prog.rpartition(" ")[2]
    if action in ("patterns", "document", "report", "compare", "mask"):
        default = "mean" if action == "mask" else "next"
        parser.add_argument(
            "--replacement",
            choices=("mean", "no_match", "zero") + ("next",) * (default == "next"),
            help="what stands for a pattern's number in the document vector: that of its next best "
            "match in the document, what it is where the pattern does not match, zero, or its mean "
            f"over the train set (default {default})",
        )
    parser.add_argument(
        "--format", choices=forms, help="default: the output file's suffix, or text"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write this file instead of stdout")
    add_model_options(parser)


def _check(args: argparse.Namespace) -> None:
    """Raises `UserError` where an argument would do nothing."""
    for option in ("target", "against", "shown", "replacement"):
        if getattr(args, "activations", None) and getattr(args, option) is not None:
            raise UserError(f"--{option} says nothing about --activations: leave one of them out")
    names = [name for name, _ in getattr(args, "values", ())]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{name} is given several values; expected one")


def _form(args: argparse.Namespace) -> str:
    """What to write; raises `UserError`, before anything is read, where it cannot be written."""
    from sopa_plugin.interpret.explanation import SUFFIXES

    path = Path(args.output) if args.output else None
    if path is None and sys.stdout is None:
        raise UserError("the standard output is closed; name a file with -o")
    if path is not None and path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it with -o")
    form: str = args.format or (SUFFIXES.get(path.suffix.lower(), "") if path else "text")
    if form not in args.forms:
        suffixes = [suffix for suffix, each in SUFFIXES.items() if each in args.forms]
        raise UserError(
            f"{path}: {args.action} can be written as {', '.join(args.forms)}; end the file's name "
            f"so ({', '.join(suffixes)}), or give --format"
        )
    if path is not None:
        check_output(path, "-o", args.force)
    return form


def _texts(args: argparse.Namespace, path: str) -> Iterator[str]:
    """The documents of a file, one at a time."""
    with open_input(args, path) as (_, documents):
        for texts, _ in documents.blocks():
            yield from texts


def _text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # Python's mark of a byte that it could not read
        from sopa_plugin.data.stream import CONVERT

        raise argparse.ArgumentTypeError(f"not UTF-8; {CONVERT}") from error
    return text


def _value(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    try:
        if math.isfinite(held := float(value)):
            return name, held
    except ValueError:
        pass
    what = value if separator else text
    raise argparse.ArgumentTypeError(f"expected NAME=NUMBER, found {what!r}")


if __name__ == "__main__":
    run_command(main)
