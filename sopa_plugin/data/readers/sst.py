"""The Stanford Sentiment Treebank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from sopa_plugin.data.readers.dataset_reader import DatasetReader, Splits
from sopa_plugin.data.readers.example import BLANK_CHARACTERS, Example
from sopa_plugin.data.readers.files import read_lines
from sopa_plugin.data.readers.tables import Table
from sopa_plugin.errors import UserError
from sopa_plugin.registry import LocalPath

BINARY = ("negative", "positive")
FINE = ("very negative", "negative", "neutral", "positive", "very positive")
_POLARITY = {
    "very negative": "negative",
    "negative": "negative",
    "positive": "positive",
    "very positive": "positive",
}
_TREE_TOKEN = re.compile(rf"[()]|[^(){BLANK_CHARACTERS}]+")
_FORMS = (
    "train, dev and test files (as stsa.binary.train, or train.txt) of bracketed trees "
    "'(3 (2 It) (4 …' or of lines 'LABEL TEXT'"
)


@DatasetReader.register("sst")
class SstReader(DatasetReader):
    """Whole sentences of the treebank (section 5 of the paper; Socher et al. 2013).

    Registered as `sst`. The form of the data is found out: bracketed trees as published, of which
    the root's label and the words are taken and the phrases are not; lines `LABEL TEXT` with two
    classes (0, 1) or five (0-4); a Hub data set with columns `text` or `sentence`, and `label`.
    Words stay as published (`-LRB-`, `\\/`), so that trees and lines give the same texts but for
    the case: trees are cased.

    Arguments:
        path: a folder with exactly one form; the beginning of its file names, where there are more
            (`sst/stsa.binary`); its train file; or a Hub id (`SetFit/sst2`, `SetFit/sst5`).
        granularity: `binary` joins the two negative and the two positive classes and drops the
            neutral sentences; `fine` has five classes.

    The other arguments are those of `DatasetReader`.
    """

    title = "Stanford Sentiment Treebank sentences"
    env_variable = "SOPA_SST"

    def __init__(
        self,
        path: LocalPath,
        granularity: Literal["binary", "fine"] = "binary",
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        if granularity not in ("binary", "fine"):
            raise UserError(f"granularity: expected 'binary' or 'fine', found {granularity!r}")
        self.granularity = granularity
        self.known_class_names: Sequence[str] = BINARY if granularity == "binary" else FINE

    def sources(self) -> dict[str, Path | Table]:
        return self._locate(_is_text_file, _FORMS)

    def examples(self, source: Path | Table) -> Iterator[Example]:
        if isinstance(source, Table):
            yield from _table_examples(source)
            return
        for number, line in read_lines(source, self.encoding):
            stripped = line.strip(BLANK_CHARACTERS)
            if stripped.startswith("("):
                yield parse_tree(stripped, str(source), number)
            elif stripped:
                yield _from_line(stripped, str(source), number)

    def map_labels(self, splits: Splits) -> Splits:
        """Numbers to names, by the classes of the training set; then five classes to two."""
        first = splits.get("train") or next(iter(splits.values()))
        labels = {example.label for example in first}
        five = not labels <= {"0", "1", *BINARY}
        if self.granularity == "fine" and not five and labels & {"0", "1"}:
            raise UserError(
                f"{first[0].file}: has two classes ({', '.join(sorted(labels))}) only; "
                "granularity 'fine' needs the five of the trees or of stsa.fine."
            )
        names = (
            dict(zip("01234", FINE, strict=True)) if five else dict(zip("01", BINARY, strict=True))
        )
        return {split: self._named(examples, names) for split, examples in splits.items()}

    def _named(self, examples: list[Example], names: dict[str, str]) -> list[Example]:
        named = []
        for example in examples:
            label: str | None = names.get(example.label, example.label)
            if label not in FINE:
                raise UserError(
                    f"{example.where}: the label {example.label} is not in the training set, "
                    f"which has {', '.join(names)}."
                )
            if self.granularity == "binary":
                label = _POLARITY.get(label)
            if label is not None:
                named.append(example._replace(label=label))
        return named


def _is_text_file(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".parquet", ".arrow", ".json", ".zip", ".md")


def _from_line(line: str, file: str, number: int) -> Example:
    label, *rest = re.split(r"[ \t]+", line, maxsplit=1)
    return Example(rest[0] if rest else "", _checked(label, f"{file}:{number}"), file, number)


def parse_tree(tree: str, file: str, number: int) -> Example:
    """The root's label and the words of one tree, which must be whole and alone on its line."""
    words: list[str] = []
    root = ""
    depth = 0
    after_bracket = closed = False
    for token in _TREE_TOKEN.findall(tree):
        if closed or (after_bracket and token in "()"):
            raise _bad_tree(file, number, f"{token!r} out of place")
        if after_bracket:
            root = root or token
            _checked(token, f"{file}:{number}")
        elif token == ")":
            depth -= 1
            closed = depth == 0
        elif token != "(":
            words.append(token)
        depth += token == "("
        after_bracket = token == "("
    if not closed:
        raise _bad_tree(file, number, f"{depth} brackets left open")
    return Example(" ".join(words), FINE[int(root)], file, number)


def _bad_tree(file: str, number: int, fault: str) -> UserError:
    return UserError(
        f"{file}:{number}: not a bracketed tree: {fault}; expected one tree a line, "
        "like (3 (2 It) (4 works))."
    )


def _table_examples(table: Table) -> Iterator[Example]:
    for number, row in table.rows():
        where = f"{table}:{number}"
        text = row.get("text", row.get("sentence"))
        if not isinstance(text, str) or "label" not in row:
            raise UserError(
                f"{where}: expected columns 'text' (or 'sentence') and 'label', found "
                f"{', '.join(map(repr, row))}."
            )
        label = str(row["label"]).replace("_", " ").lower()
        yield Example(text, label if label in FINE else _checked(label, where), str(table), number)


def _checked(label: str, where: str) -> str:
    """One of the digits 0-4 that the treebank's labels are."""
    if label == "-1":
        raise UserError(
            f"{where}: the label is -1, which stands for a hidden label (stanfordnlp/sst2 and GLUE "
            "hide those of their test sets); use data with labels, for example SetFit/sst2."
        )
    if label not in ("0", "1", "2", "3", "4"):
        raise UserError(f"{where}: expected a label from 0 to 4, found {label!r}.")
    return label
