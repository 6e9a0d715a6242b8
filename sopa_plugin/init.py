"""`python -m sopa_plugin.init CONFIG --data FILE`: writes a config that trains on one's own data.

With `--example` it is one that starts from a shipped config and its sample.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from sopa_plugin.cli import check_output, make_parser, run_command
from sopa_plugin.data.sources import format_of, read_lines, read_records, remedied
from sopa_plugin.errors import UserError, listed, shortened
from sopa_plugin.files import write_file

if TYPE_CHECKING:
    from sopa_plugin.data.readers.tables import Table

EXAMPLES = ("sst", "roc", "amazon")
TEXTS = (
    "text", "sentence", "message", "review", "content", "body", "document", "comment", "utterance",
    "query", "question", "tweet",
)  # fmt: skip
LABELS = (
    "label", "category", "class", "target", "intent", "sentiment", "topic", "tag", "polarity",
    "rating", "stars", "score", "type",
)  # fmt: skip
"""Usual names of the columns, the likeliest first."""
RARE = 10  # texts of a class
UNEVEN = 20  # times as many texts of the largest class as of the smallest
HELD_OUT = 5000  # texts at most
_MOST = 10_000  # distinct cells of a column that are remembered, and texts that are looked into
_STRINGS = ("string", "string_view")  # Arrow's types of text
_GLUED = re.compile(r"\w[.,!?;:](?:\s|$)")
_PARTED = re.compile(r"\w\s+[.,!?;:](?:\s|$)")
_quoted = partial(json.dumps, ensure_ascii=False)  # Jsonnet writes strings as JSON does

_CONFIG = """\
// SoPa for %(data)s: %(texts)d texts of %(classes)d classes.
// Change here what you like, or for one run: sopa-plugin train THIS_FILE -o trainer.num_epochs=5
// All that can be set, with its default: sopa-plugin train THIS_FILE --print-config
{
  dataset: {
    type: 'text',
%(dataset)s  },
  // 'words' splits off punctuation; 'whitespace' is for text that is tokenised already.
  tokenizer: { %(tokenizer)s },
  model: {
    type: 'text_classifier',
%(embedder)s
    // How many patterns of how many states; one of 4 states matches about 3 words.
    encoder: { type: 'sopa', patterns: { '4': 100, '3': 100, '2': 100 }, dropout: 0.1 },
    head: { type: 'linear', dropout: 0.5 },
  },
  trainer: {
    type: 'accelerate',
    batch_size: %(batch_size)d,
    num_epochs: %(num_epochs)d,  // at most:
    patience: %(patience)d,  // training ends after so many without a new best on dev, by
    validation_metric: '-loss',  // or '+accuracy', '+macro_f1'
    optimizer: { type: 'adamw', lr: 0.0035, weight_decay: 0.1, fused: true },
    // 'balanced' gives every class the same weight, however few its texts.
    %(weights)sclass_weights: 'balanced',
  },
  seed: 1,
}
"""
_LEARNED = """\
    // Word vectors, learned from these texts. Ready ones do far better where texts are few: unzip
    // https://nlp.stanford.edu/data/glove.6B.zip, delete `lowercase` above, and write
    //   embedder: { type: 'static', vectors: 'glove.6B.100d.txt', trainable: false, whiten: 1 },
    embedder: { type: 'static', embedding_dim: 100, trainable: true },"""
_FROM_FILE = """\
    // `whiten` evens out the directions of the vectors: from 0, not at all, to 1, fully.
    embedder: { type: 'static', vectors: %s, trainable: false, whiten: 1 },"""
_EXAMPLE = """\
// A shipped config of SoPa, with its small sample; what is set here goes before what it sets.
// All of it: sopa-plugin train THIS_FILE --print-config
(import 'sopa_%(name)s.jsonnet') + {
  // The real data, or set SOPA_%(NAME)s in the environment to them:
  // dataset+: { path: 'my/%(name)s' },
  // Word vectors for more than the words of the sample, or set SOPA_VECTORS:
  // model+: { embedder+: { vectors: 'glove.6B.100d.txt' } },
  // trainer+: { num_epochs: 50, optimizer+: { lr: 0.001 } },
  seed: 1,
}
"""
_SPACE = """\
local base = %s;

// What is varied around it; the trial that is best on dev by `metric` is kept.
local one_of(key, values) = { type: 'choice', keys: [key], values: values };

{
  base: base,
  parameters: {
    lr: { type: 'uniform', keys: ['trainer.optimizer.lr'], low: 0.0005, high: 0.02, log: true },
    batch_size: one_of('trainer.batch_size', [20, 50, 150]),
    dropout: one_of('model.encoder.dropout', [0, 0.1, 0.2, 0.3]),
    vectors: one_of('model.embedder.%s),
    patterns: one_of('model.encoder.patterns', [
      { '5': 10, '4': 10, '3': 10, '2': 10 },
      { '4': 40, '3': 40, '2': 40 },
      { '4': 100, '3': 100, '2': 100 },
      { '6': 40, '5': 40, '4': 40, '3': 40, '2': 40 },
    ]),
  },
  num_trials: 30,
  metric: '-loss',
}
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments, looks at the data and writes."""
    parser = make_parser(
        "init", "Write a config to train with: for data of your own, or from an example."
    )
    parser.add_argument("config", help="the file to write, such as my.jsonnet")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data",
        metavar="PATH",
        help="labelled texts: CSV, TSV, JSON lines or Parquet, in one file or a folder with train "
        "and test; a folder with a folder for each class; or a Hub id",
    )
    source.add_argument(
        "--example", choices=EXAMPLES, help="start from a shipped config, which has a small sample"
    )
    parser.add_argument("--text-column", metavar="NAME", help="by default found out")
    parser.add_argument("--label-column", metavar="NAME", help="likewise")
    parser.add_argument(
        "--vectors",
        metavar="FILE",
        help="word vectors such as GloVe's; by default those of SOPA_VECTORS, if it is set, or "
        "else vectors are learned from the texts",
    )
    parser.add_argument(
        "--tune", action="store_true", help="write a search space around the config, for `search`"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace the file if it exists")
    args = parser.parse_args(argv)
    if args.example and (args.text_column or args.label_column or args.vectors):
        parser.error("columns and vectors go with --data, not with --example")
    args.vectors = args.vectors or os.environ.get("SOPA_VECTORS")
    path = Path(args.config)
    if path.suffix != ".jsonnet":
        raise UserError(f"{path}: expected a name that ends in .jsonnet")
    check_output(path, "CONFIG", args.force)
    if args.example:
        if path.name == f"sopa_{args.example}.jsonnet":
            raise UserError(f"{path}: would import itself, not the shipped config; choose another")
        config, form = _EXAMPLE % {"name": args.example, "NAME": args.example.upper()}, "text"
    else:
        columns = "--text-column, --label-column"
        with remedied(f"mend the data, or name others (--data) or other columns ({columns})"):
            config, form = _own_config(args)
    run, file = shlex.quote(f"runs/{path.stem}"), shlex.quote(args.config)
    commands = [f"train {file} -s {run}"]
    if args.tune:
        of_file = args.example or args.vectors
        vectors = "whiten', [0, 0.5, 1]" if of_file else "embedding_dim', [50, 100, 200]"
        config = _SPACE % (config.strip(), vectors)
        best = shlex.quote(f"runs/search/{path.stem}/best.json")
        run = shlex.quote(f"runs/{path.stem}-best")
        commands = [f"search {file}", f"train {best} -s {run}"]
    commands += [
        f"evaluate {run} --errors errors.jsonl",
        f"predict {run} -i " + ("new.txt" if form == "text" else f"new.{form} -O answers.{form}"),
        f"explain {run} report -o report.html",
    ]
    write_file(path, config)
    print(f"wrote {path}. Next:")
    print(*(f"  {parser.prog.removesuffix('init')}{each}" for each in commands), sep="\n")


def _own_config(args: Namespace) -> tuple[str, str]:
    """The config for somebody's own data, and their format; prints what was found in them."""
    from sopa_plugin.data.readers.text import TextReader

    options: dict[str, Any] = {"path": args.data}
    why: dict[str, str] = {}  # comments
    sources = TextReader(args.data).sources()
    encoding = next((each for each in map(_encoding, sources.values()) if each != "utf-8"), "utf-8")
    if encoding != "utf-8":
        options["encoding"] = encoding
        why["encoding"] = "not UTF-8; if letters look wrong, name another"
    source = next(iter(sources.values()))
    form = format_of(source.name)
    if not (isinstance(source, Path) and source.is_dir()):
        options |= _find_columns(args, source, form, encoding)
    reader = TextReader(**options, empty_text="drop")
    found = [(split, reader.examples(each)) for split, each in sources.items()]
    counts = {split: each.take(~each.empty_texts()).counts() for split, each in found}
    classes = sum(map(Counter, counts.values()), Counter[str]())
    if empty := sum(len(each) for _, each in found) - classes.total():
        options["empty_text"] = "drop"
        why["empty_text"] = f"{empty} without a text are left out"
    known = counts.get("train", {})
    if classes.keys() - known.keys():
        options["unseen_classes"] = "keep"
        why["unseen_classes"] = "dev or test have classes that train has not"
    total = sum(known.values())
    if "test" not in counts:
        options["test_size"] = HELD_OUT if total > 10 * HELD_OUT else 0.1 if total > 2000 else 0.2
        why["test_size"] = "so many texts are kept apart to test on: a share, or a number"
    if "dev" not in counts:
        options["dev_size"] = HELD_OUT if total > 10 * HELD_OUT else 0.1
        why["dev_size"] = "and so many of the others to choose the best epoch by"
    if not classes or 2 * len(classes) > classes.total():
        raise UserError(
            f"{args.data}: {len(classes)} classes among {classes.total()} texts; say by "
            f"--label-column which of the columns has the labels, if not {reader.label_column!r}"
        )
    texts = TextReader(**options).read()["train"][:_MOST]["text"]  # with all its errors

    ranked = classes.most_common()
    words = median(len(each.split()) for each in texts)
    more = f"; {empty} more are empty" if empty else ""
    print(f"  {classes.total()} texts, of {words:g} words (median){more}")
    print(f"  {len(ranked)} classes: {_said(ranked[:20])}" + ", ..." * (len(ranked) > 20))
    if rare := [each for each in ranked if each[1] < RARE]:
        print(f"  rare, with fewer than {RARE} texts: {_said(rare[:20])}")
    parted = sum(len(_PARTED.findall(each)) for each in texts)
    is_parted = parted > 10 * sum(len(_GLUED.findall(each)) for each in texts)
    tokenizer = "whitespace" if is_parted else "words"
    if args.vectors:
        share = _coverage(args.vectors, texts, tokenizer)
        print(f"  {share:.1%} of the words of the texts have a vector in {args.vectors}")
    uneven = ranked[0][1] > UNEVEN * ranked[-1][1]
    dataset = "".join(
        (f"    // {why[key]}\n" if key in why else "") + f"    {key}: {_quoted(value)},\n"
        for key, value in options.items()
    )
    few, many = total < 1000, total > 10 * HELD_OUT
    config = _CONFIG % {
        "data": _quoted(args.data),
        "texts": classes.total(),
        "classes": len(ranked),
        "dataset": dataset,
        "tokenizer": f"type: '{tokenizer}'" + ", lowercase: true" * (not args.vectors),
        "embedder": _FROM_FILE % _quoted(args.vectors) if args.vectors else _LEARNED,
        "batch_size": 20 if few else 50,
        "num_epochs": 20 if many else 100,
        "patience": 3 if many else 15,
        "weights": "" if uneven else "// ",
    }
    return config, form or "text"


def _find_columns(
    args: Namespace, source: Path | Table, form: str | None, encoding: str
) -> dict[str, Any]:
    """The options of the reader that say which columns have the texts and the labels."""
    columns: dict[str, _Column] = {}
    for row in _rows(source, encoding):
        for name, cell in row.items():
            columns.setdefault(name, _Column()).add(cell)
    if not columns:
        raise UserError(f"{args.data}: no rows in it")
    text = _choose(args.data, "text", args.text_column, columns, TEXTS, _Column.is_text)
    others = {name: each for name, each in columns.items() if name != text}
    if not others:
        raise UserError(
            f"{args.data}: {shortened(text)} is its only column, so none has the labels; texts "
            "without labels train with rules: configs/rules_text.jsonnet, README 'Writing patterns'"
        )
    label = _choose(args.data, "label", args.label_column, others, LABELS, _Column.is_label)
    print(f"{args.data}: texts in column {shortened(text)}, labels in {shortened(label)}")
    # the first row of a file without a header is one like the others
    if form in ("csv", "tsv") and label in columns[label].values and text not in TEXTS:
        print("  by its first row, which is taken for the first text: the columns have no names")
        names = {text: "text", label: "label"}
        return {"column_names": [names.get(each, f"column_{i}") for i, each in enumerate(columns)]}
    chosen = (("text", text), ("label", label))
    return {f"{what}_column": name for what, name in chosen if name != what}


def _encoding(source: Path | Table) -> str:
    """What the text files of a source are in."""
    if not isinstance(source, Path):
        return "utf-8"
    texts = (each for each in source.rglob("*") if format_of(each.name) == "text")
    files = list(texts) if source.is_dir() else [source]
    problems = []
    for encoding in ("utf-8", "cp1252", "latin-1", "utf-16", "utf-32"):
        any_letter = False  # beside those of ASCII
        try:
            for file in files:
                for _, line in read_lines(file, encoding):
                    any_letter |= not line.isascii()
            return encoding
        except UserError as error:
            problems.append(error)
            if encoding == "utf-8" and any_letter:  # which it is, but for the fault
                break
    raise problems[0]


def _rows(source: Path | Table, encoding: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a table, as far as their cells may be texts or labels."""
    if isinstance(source, Path):
        usual = [*TEXTS, *LABELS]
        yield from (row for _, row in read_records(source, encoding, wanted=usual))
        return
    from pyarrow import types

    simple = [
        each.name
        for each in source.schemas[source.name]
        if types.is_integer(each.type) or str(each.type).endswith(("bool", *_STRINGS))
    ]
    for batch in source.load(simple).to_batches():
        yield from batch.to_pylist()


class _Column:
    """What the cells of a column are like."""

    def __init__(self) -> None:
        self.cells = self.words = 0
        self.values: Counter[str] = Counter()

    def add(self, cell: Any) -> None:
        """Counts a cell that is not empty, and no list or object of JSON."""
        if isinstance(cell, str | int | float) and (text := str(cell).strip()):
            self.cells += 1
            self.words += len(text.split())
            if text in self.values or len(self.values) < _MOST:
                self.values[text] += 1

    def is_text(self) -> bool:
        """Whether the cells are long, and most of them distinct."""
        return self.words >= 3 * self.cells and 2 * len(self.values) > min(self.cells, _MOST)

    def is_label(self) -> bool:
        """Whether the cells are short and some, but few, are distinct."""
        return 2 <= len(self.values) <= min(self.cells / 3, 500) and self.words <= 4 * self.cells


def _choose(
    data: str,
    what: str,
    given: str | None,
    columns: Mapping[str, _Column],
    usual: Sequence[str],
    fits: Callable[[_Column], bool],
) -> str:
    """The name of the column of texts or labels: as given, as usual, or by what is in it.

    Raises `UserError` if it is none or may be several.
    """
    if given is not None and given not in columns:
        raise UserError(
            f"{data}: no column {shortened(given)} for the {what}s; there are {listed(columns)}"
        )
    fitting = [name for name, column in columns.items() if fits(column)]
    named = [name for word in usual for name in columns if name.strip().lower() == word]
    # review_text, Customer message
    partly = [each for each in fitting if set(usual) & set(re.split(r"[\W_]+", each.lower()))]
    choices = [each for each in named if each in fitting][:1] or named[:1] or fitting
    found = given or (choices if len(choices) == 1 or len(partly) != 1 else partly)
    if given is None and len(found) != 1:
        among = f" ({' or '.join(map(shortened, found))})" if found else ""
        raise UserError(
            f"{data}: it is not clear which column has the {what}s{among}; say by --{what}-column "
            f"which of {listed(columns)}"
        )
    return given or found[0]


def _coverage(vectors: str, texts: Sequence[str], tokenizer: str) -> float:
    """The share of the words of texts that have a vector."""
    from sopa_plugin.data.tokenizers import WhitespaceTokenizer, WordTokenizer
    from sopa_plugin.embedders.vectors import VectorFile

    file = VectorFile(vectors)
    fold = (lambda text: text) if file.is_cased() else str.lower
    split = (WordTokenizer if tokenizer == "words" else WhitespaceTokenizer).pre_tokenizer()
    counts = Counter(word for text in texts for word, _ in split.pre_tokenize_str(fold(text)))
    known = sum(counts[word] for word in set(file.words()) & counts.keys())
    return known / max(counts.total(), 1)


def _said(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{shortened(name)} {n}" for name, n in counts)


if __name__ == "__main__":
    run_command(main)
