"""`python -m sopa_plugin.rules check FILE`: what becomes of the rules of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sopa_plugin.cli import make_parser, run_command
from sopa_plugin.errors import UserError, visible


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and prints the report."""
    parser = make_parser("rules", "Rules as patterns.")
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
    args = parser.parse_args(argv)
    from sopa_plugin.rules.check import Firing, report
    from sopa_plugin.rules.rule import Rules

    rules = Rules.examine(args.file)
    if args.lowercase:
        rules = rules.without_case()
    firing = Firing.of(rules, *_read(args)) if args.data else None
    for line in report(rules, firing):
        print(visible(line))
    if rules.faults:
        raise UserError(f"{args.file}: {len(rules.faults)} rules are refused; see above")


def _read(args: Any) -> tuple[list[list[str]], list[str] | None]:
    """Texts as words, and their labels where they have any."""
    from sopa_plugin.data.readers.text import TextReader
    from sopa_plugin.data.stream import Lines
    from sopa_plugin.data.tokenizers import WhitespaceTokenizer, WordTokenizer

    labels = None
    if args.data.endswith(".txt"):
        with open(args.data, "rb") as opened:
            blocks = Lines(opened, args.data, is_json=False).blocks()
            texts = [text for texts, _ in blocks for text in texts]
    else:
        reader = TextReader(args.data, text_column=args.text_column, label_column=args.label_column)
        examples = reader.read_file(args.data)
        names = examples.features["label"].names
        texts, labels = examples["text"][:], [names[each] for each in examples["label"][:]]
    kind = WordTokenizer if args.tokenizer == "words" else WhitespaceTokenizer
    split = kind.pre_tokenizer().pre_tokenize_str
    folded = (text.lower() for text in texts) if args.lowercase else texts
    return [[word for word, _ in split(text)] for text in folded], labels


if __name__ == "__main__":
    run_command(main)
