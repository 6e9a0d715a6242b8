"""`python -m sopa_plugin.rules check FILE | export RUN`: rules before training and after it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from sopa_plugin.cli import add_model_options, check_output, make_parser, run_command
from sopa_plugin.errors import UserError, counted, visible
from sopa_plugin.files import write_file
from sopa_plugin.registry import import_plugins


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and does what is asked."""
    parser = make_parser("rules", "Rules as patterns, patterns as rules.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check",
        help="say what becomes of each rule, and what it does on texts",
        description="Say of each rule of a file whether it is a pattern exactly, a union of "
        "several, or refused and why; with --data, where it fires.",
    )
    check.add_argument(
        "file",
        help="rules: .jsonl (spaCy's token patterns), .txt ([label] sections of word regexes) or "
        ".tsv (term<TAB>label)",
    )
    check.add_argument(
        "--data",
        metavar="FILE",
        help="labelled texts (.csv, .tsv, .jsonl, .parquet, a folder for each class), or texts "
        "without labels, one a line (.txt)",
    )
    check.add_argument("--text-column", default="text", metavar="NAME", help="of --data")
    check.add_argument("--label-column", default="label", metavar="NAME", help="of --data")
    check.add_argument(
        "--tokenizer",
        choices=("words", "whitespace"),
        default="words",
        help="how texts become words: words (punctuation apart; the default) or whitespace",
    )
    check.add_argument("--lowercase", action="store_true", help="fold the case of texts")
    check.set_defaults(run_command=_check)
    export = commands.add_parser(
        "export",
        help="write the patterns of a trained model as rules",
        description="Write each pattern of a trained model as a rule that fires as nearly as "
        "it can where the pattern does, and say how nearly.",
    )
    export.add_argument("run", help="the folder of a finished run")
    export.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the rules: .jsonl, or .txt, where each has one vote",
    )
    export.add_argument(
        "--data",
        metavar="FILE",
        help="a file in the format of the run's own data, on which rules are to fire where "
        "patterns do, instead of the run's train set",
    )
    add_model_options(export, device=None)
    export.set_defaults(run_command=_export)
    args = parser.parse_args(argv)
    args.run_command(args)


def _check(args: Namespace) -> None:
    """Prints what becomes of rules."""
    from sopa_plugin.rules.check import report
    from sopa_plugin.rules.rule import Rules

    rules = Rules.examine(args.file)
    if args.lowercase:
        rules = rules.without_case()
    for line in report(rules, *(_read(args) if args.data else ())):
        print(visible(line))
    if rules.faults:
        raise UserError(f"{args.file}: {counted(len(rules.faults), 'rule')} refused; see above")


def _export(args: Namespace) -> None:
    """Writes the rules that patterns are, and prints how faithful these are."""
    output = Path(args.output)
    check_output(output, "-o", args.force)
    from sopa_plugin.interpret.export import export
    from sopa_plugin.interpret.runs import RunReader

    import_plugins(args.include_package)
    found = export(RunReader(args.run, accept_changed=args.accept_changed), output, args.data)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_file(output, found.file())
    for line in found.report():
        print(visible(line))


def _read(args: Namespace) -> tuple[list[list[str]], list[str] | None]:
    """Texts as words, and their labels where they have any."""
    from sopa_plugin.data.readers.splits import is_labelled
    from sopa_plugin.data.readers.text import TextReader
    from sopa_plugin.data.sources import remedied
    from sopa_plugin.data.stream import Lines
    from sopa_plugin.data.tokenizers import WhitespaceTokenizer, WordTokenizer

    labels = None
    if args.data.endswith(".txt"):
        with open(args.data, "rb") as opened:
            blocks = Lines(opened, args.data, is_json=False).blocks()
            texts = [text for texts, _ in blocks for text in texts]
    else:
        reader = TextReader(args.data, text_column=args.text_column, label_column=args.label_column)
        with remedied("mend the data, or name their columns (--text-column, --label-column)"):
            examples = reader.read_file(args.data)
        names = examples.features["label"].names
        texts = examples["text"][:]
        if is_labelled(examples):
            labels = [names[each] for each in examples["label"][:]]
    kind = WordTokenizer if args.tokenizer == "words" else WhitespaceTokenizer
    split = kind.pre_tokenizer().pre_tokenize_str
    folded = (text.lower() for text in texts) if args.lowercase else texts
    return [[word for word, _ in split(text)] for text in folded], labels


if __name__ == "__main__":
    run_command(main)
