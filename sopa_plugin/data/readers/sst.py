"""The Stanford Sentiment Treebank."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sopa_plugin.data.readers.dataset_reader import DatasetReader, Splits
from sopa_plugin.data.readers.splits import BLANKS, Example, Examples
from sopa_plugin.data.readers.tables import Table
from sopa_plugin.data.sources import read_lines
from sopa_plugin.errors import UserError, listed, shortened
from sopa_plugin.registry import LocalPath

BINARY = ("negative", "positive")
FINE = ("very negative", "negative", "neutral", "positive", "very positive")
_POLARITY = {
    "very negative": "negative",
    "negative": "negative",
    "positive": "positive",
    "very positive": "positive",
}
_TREE_TOKEN = re.compile(rf"[()]|[^(){BLANKS}]+")
_FORMS = (
    "train, dev and test files (as stsa.binary.train, or train.txt) of bracketed trees "
    "'(3 (2 It) (4 …' or of lines 'LABEL TEXT'"
)
logger = logging.getLogger(__name__)


@DatasetReader.register("sst")
@dataclass(eq=False)
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

    path: LocalPath
    granularity: Literal["binary", "fine"] = "binary"

    def sources(self) -> dict[str, Path | Table]:
        return self._locate(_is_text_file, _FORMS)

    def class_names(self, *examples: Examples) -> Sequence[str]:
        return BINARY if self.granularity == "binary" else FINE

    def examples(self, source: Path | Table) -> Examples:
        if isinstance(source, Path):
            return Examples.parsed(str(source), lambda: self._from_lines(source))
        text = next((name for name in ("text", "sentence") if name in source.columns), None)
        if text is None or "label" not in source.columns:
            raise UserError(
                f"{source.name}: expected columns 'text' (or 'sentence') and 'label', found "
                f"{listed(source.columns)}."
            )
        examples = source.examples(text, "label")
        for label in examples.counts():
            if _plain(label) not in FINE:
                _check(label, examples.first(label))
        return examples.renamed(_plain)

    def map_labels(self, splits: Splits) -> Splits:
        """Numbers to names, by the classes of the training set; then five classes to two."""
        first = splits.get("train") or next(iter(splits.values()))
        five = self._has_five_classes(first, alone="train" not in splits)
        names = dict(zip("01234" if five else "01", FINE if five else BINARY, strict=True))
        for examples in splits.values():
            for label in examples.counts():
                if label not in (*names, *FINE):
                    raise UserError(
                        f"{examples.first(label)}: the label {label} is not in the training set, "
                        f"which has {', '.join(names)}."
                    )

        def name_of(label: str) -> str | None:
            name = names.get(label, label)
            return _POLARITY.get(name) if self.granularity == "binary" else name

        return {split: examples.renamed(name_of) for split, examples in splits.items()}

    def _has_five_classes(self, examples: Examples, alone: bool) -> bool:
        """Whether 0 and 1 are two of five classes.

        Where there is nothing else, the file's name tells, and for a file that stands `alone` the
        set that the reader is for.
        """
        labels = set(examples.counts())
        if not labels <= {"0", "1", *BINARY}:
            return True
        if not labels & {"0", "1"}:
            return False
        name = Path(examples.name).name.lower()
        if "fine" in name or (alone and "binary" not in name and self._is_of_five()):
            return True
        if self.granularity == "fine":
            raise UserError(
                f"{examples.name}: has two classes ({', '.join(sorted(labels))}) only; "
                "granularity 'fine' needs the five of the trees or of stsa.fine."
            )
        if "binary" not in name:
            logger.log(
                logging.WARNING if alone else logging.INFO,
                "%s: has the labels 0 and 1 only, which are taken as negative and positive; if "
                "they are two of five, put the word 'fine' into the names of the files",
                examples.name,
            )
        return False

    def _is_of_five(self) -> bool:
        """Whether the set at the reader's own path, if it is there, has five classes."""
        if self.granularity == "fine":
            return True
        try:
            train = self.sources().get("train")
            labels = {} if train is None else self.examples(train).counts()
        except UserError:
            return False
        return not set(labels) <= {"0", "1", *BINARY}

    def _from_lines(self, file: Path) -> Iterator[Example]:
        for number, line in read_lines(file, self.encoding):
            stripped = line.strip(BLANKS)
            where = f"{file}:{number}"
            if stripped.startswith("("):
                yield parse_tree(stripped, where)
            elif stripped:
                label, *rest = re.split(r"[ \t]+", stripped, maxsplit=1)
                _check(label, where)
                yield Example("".join(rest), label, where)


def _is_text_file(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".parquet", ".arrow", ".json", ".zip", ".md")


def parse_tree(tree: str, where: str) -> Example:
    """The root's label and the words of one tree, which must be whole and alone on its line."""
    words: list[str] = []
    root = ""
    depth = 0
    after_bracket = closed = False
    for token in _TREE_TOKEN.findall(tree):
        if closed or (after_bracket and token in "()"):
            raise _bad_tree(where, f"{shortened(token)} out of place")
        if after_bracket:
            root = root or token
            _check(token, where)
        elif token == ")":
            depth -= 1
            closed = depth == 0
        elif token != "(":
            words.append(token)
        depth += token == "("
        after_bracket = token == "("
    if not closed:
        raise _bad_tree(where, f"{depth} brackets left open")
    return Example(" ".join(words), FINE[int(root)], where)


def _bad_tree(where: str, fault: str) -> UserError:
    return UserError(
        f"{where}: not a bracketed tree: {fault}; expected one tree a line, "
        "like (3 (2 It) (4 works))."
    )


def _plain(label: str) -> str:
    return label.replace("_", " ").lower()


def _check(label: str, where: str) -> None:
    """Whether this is one of the digits 0-4 that the treebank's labels are."""
    if label == "-1":
        raise UserError(
            f"{where}: the label is -1, which stands for a hidden label (stanfordnlp/sst2 and GLUE "
            "hide those of their test sets); use data with labels, for example SetFit/sst2."
        )
    if label not in ("0", "1", "2", "3", "4"):
        raise UserError(f"{where}: expected a label from 0 to 4, found {shortened(label)}.")
