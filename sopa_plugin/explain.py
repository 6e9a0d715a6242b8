"""`python -m sopa_plugin.explain RUN patterns|document|report|silence|fix`: reads a model."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from sopa_plugin.command_line import (
    add_device,
    add_include_package,
    check_output,
    choose_device,
    run_command,
)
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.runs import RunReader
from sopa_plugin.registry import import_plugins
from sopa_plugin.training.run_folder import write_file

SUFFIXES = {
    ".txt": "text",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
}
_CONVERT = "convert it first, as with iconv -f latin1 -t utf-8"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments, explains and writes."""
    args = _parser().parse_args(argv)
    form = _form(args)
    import_plugins(args.include_package)
    reader = RunReader(args.run, args.replacement, choose_device(args.device))
    match args.action:
        case "patterns":
            reader.check_names(args.names)
            texts = _lines(args.lines) if args.lines else reader.texts(args.data, args.split)
            reading = reader.patterns(texts, args.k, args.words)
            chosen = reading.only(args.names) if args.names else reading.first(args.top)
            if args.automaton:
                chosen = chosen.automata()
            _write(chosen, form, args.output)
        case "document":
            texts = args.text or _lines(args.input)
            if args.activations:
                reader.check_names([args.activations])
                states = reader.explainer.activations(next(iter(texts), ""), args.activations)
                _write(states, form, args.output)
            else:
                _write(reader.documents(texts, args.target, args.shown), form, args.output)
        case "report":
            report = reader.report(args.data, args.split, args.k, args.examples, args.shown)
            _write(report, form, args.output)
        case "silence":
            edited = reader.edit(args.names, {}, args.serialization_dir)
            _write(edited, form, args.output)
        case "fix":
            edited = reader.edit([], dict(args.values), args.serialization_dir)
            _write(edited, form, args.output)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sopa_plugin.explain",
        description="Read a trained model: what its patterns match, why a document got its label. "
        "A pattern's name is its number of states and its rank among those: 5-3.",
    )
    parser.add_argument("run", help="the folder of a finished run")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _patterns_parser(actions)
    _document_parser(actions)
    _report_parser(actions)
    _edit_parsers(actions)
    return parser


def _patterns_parser(actions: argparse._SubParsersAction) -> None:
    parser = actions.add_parser("patterns", help="best phrases, effect and arcs of each pattern")
    parser.add_argument("names", nargs="*", help="only these patterns, in this order")
    parser.add_argument("-k", type=_count, default=10, help="phrases of each (default 10)")
    parser.add_argument("--top", type=_count, help="only so many, the strongest effect first")
    parser.add_argument("--words", type=_amount, default=10, help="nearest words of each arc")
    parser.add_argument(
        "--automaton", action="store_true", help="draw automata (html, svg) instead of phrases"
    )
    _add_data(parser, "train")
    parser.add_argument(
        "--lines", metavar="FILE", help="read this text, a document a line (- stdin)"
    )
    _add_common(parser, ("text", "json", "html", "svg"))


def _document_parser(actions: argparse._SubParsersAction) -> None:
    parser = actions.add_parser("document", help="why documents get their labels")
    parser.add_argument(
        "text", nargs="*", type=_text, help="documents; by default stdin, one a line"
    )
    parser.add_argument("-i", "--input", default="-", metavar="FILE", help="a document a line")
    parser.add_argument("--target", metavar="LABEL", help="explain this label, not the predicted")
    parser.add_argument("--shown", type=_count, default=10, help="contributions shown (default 10)")
    parser.add_argument(
        "--activations", metavar="PATTERN", help="this pattern's states over the first document"
    )
    _add_common(parser, ("text", "json", "html", "svg"))


def _report_parser(actions: argparse._SubParsersAction) -> None:
    parser = actions.add_parser("report", help="the whole model on one page")
    parser.add_argument("-k", type=_count, default=5, help="phrases of each pattern (default 5)")
    parser.add_argument("--examples", type=_count, default=5, help="documents of each kind")
    parser.add_argument("--shown", type=_count, default=6, help="contributions of each document")
    _add_data(parser, "dev")
    _add_common(parser, ("text", "json", "html"))


def _edit_parsers(actions: argparse._SubParsersAction) -> None:
    silence = actions.add_parser("silence", help="let patterns tell nothing; dev figures")
    silence.add_argument("names", nargs="+", help="patterns")
    fix = actions.add_parser("fix", help="hold patterns at a value; dev figures")
    fix.add_argument(
        "values",
        nargs="+",
        type=_value,
        metavar="NAME=VALUE",
        help="a pattern and its number in the document vector, which the head sees",
    )
    for parser in (silence, fix):
        parser.add_argument(
            "-s",
            "--serialization-dir",
            metavar="DIR",
            help="save the edited model in this new folder",
        )
        _add_common(parser, ("text", "json"))


def _add_data(parser: argparse.ArgumentParser, split: str) -> None:
    parser.add_argument("--data", metavar="FILE", help="a file in the format of the run's own data")
    parser.add_argument(
        "--split",
        choices=("train", "dev", "test"),
        default=split,
        help=f"which of the run's own sets (default {split})",
    )


def _add_common(parser: argparse.ArgumentParser, forms: Sequence[str]) -> None:
    parser.add_argument(
        "--replacement",
        choices=("no_match", "zero", "mean"),
        default="no_match",
        help="what a contribution compares with: as if the pattern had not matched (default), its "
        "number in the document vector set to zero, or to its mean over the train set",
    )
    parser.add_argument(
        "--format", choices=forms, help="default: the output file's suffix, or text"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write this file instead of stdout")
    parser.add_argument("-f", "--force", action="store_true", help="replace the FILE that is there")
    parser.set_defaults(forms=forms)
    add_device(parser)
    add_include_package(parser)


def _form(args: argparse.Namespace) -> str:
    """What to write; raises `UserError`, before anything is read, where it cannot be written."""
    path = Path(args.output) if args.output else None
    if path is not None and path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it with -o")
    form: str = args.format or (SUFFIXES.get(path.suffix.lower(), "") if path else "text")
    if form not in args.forms:
        raise UserError(
            f"{path}: {args.action} can be written as {', '.join(args.forms)}; end the file's name "
            f"so ({', '.join(SUFFIXES)}), or give --format"
        )
    if path is not None:
        check_output(path, "-o", args.force)
    return form


def _write(explanation: Explanation, form: str, output: str | None) -> None:
    """Writes stdout or a file, whole or not at all."""
    if output is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(explanation.render(form, color), end="")
        return
    path, text = Path(output), explanation.render(form)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe or device, which stays what it is
            path.write_text(text, encoding="utf-8")
        else:
            write_file(path.resolve(), text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


def _lines(path: str) -> Iterator[str]:
    """The lines of a file, one at a time."""
    name = "input" if path == "-" else path
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield _decode(line.removesuffix(b"\n"), f"{name}: line {number}")
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror})") from error


def _decode(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: not UTF-8 (byte {line[error.start]:#04x}); {_CONVERT}"
        ) from error


def _text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # Python's mark of a byte that it could not read
        raise argparse.ArgumentTypeError(f"not UTF-8; {_CONVERT}") from error
    return text


def _amount(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected at least 0, found {text}")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return number


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
