"""Labelled texts as they were read, and sets drawn from them: class balance kept, nested."""

from __future__ import annotations

import errno
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from mmap import ACCESS_READ, mmap
from random import Random
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import ChunkedArray, compute

from sopa_plugin.data.sources import DataError
from sopa_plugin.errors import UserError, listed

if TYPE_CHECKING:
    from datasets import Dataset

Integers = NDArray[np.int64]

# Only these separate words: SST has words with a no-break space inside.
BLANKS = " \t\n\r\f\v"
INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_PARSED_AT_ONCE = 1000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
logger = logging.getLogger(__name__)


class Example(NamedTuple):
    """A text with its label as it is written, and the place it was read from."""

    text: str
    label: str
    where: str


@dataclass(frozen=True)
class Examples:
    """Labelled texts that lie in Arrow's memory (mapped, where a file is), and which are kept.

    Attributes:
        name: of the file or split, for messages.
        text: all texts that were read, without blanks at their ends.
        labels: the distinct labels in alphabetical order, those of examples not kept among them.
        numbers: for each text the number of its label in `labels`.
        rows: which of the texts are kept, in order.
        place: says where a text was read (`file:line`, or the row).
        stored_names: the class names in their order, where the data have them stored so.
    """

    name: str
    text: ChunkedArray
    labels: tuple[str, ...]
    numbers: Integers
    rows: Integers
    place: Callable[[int], str]
    stored_names: tuple[str, ...] | None = None

    @classmethod
    def from_columns(
        cls,
        name: str,
        columns: Sequence[ChunkedArray],
        place: Callable[[int], str],
        stored_names: Sequence[str] | None = None,
    ) -> Examples:
        """All rows of two columns of strings, text and label; a missing label is the empty one."""
        text, label = columns
        encoded = label.combine_chunks().dictionary_encode()
        written = [(each or "").strip(BLANKS) for each in encoded.dictionary.to_pylist()] + [""]
        used = encoded.indices.fill_null(len(written) - 1).to_numpy().astype(np.int64)
        labels = tuple(sorted({written[index] for index in np.unique(used)}))
        number = {each: index for index, each in enumerate(labels)}
        numbers = np.array([number.get(each, -1) for each in written])[used]
        names = None if stored_names is None else tuple(each.strip(BLANKS) for each in stored_names)
        return cls(name, _trimmed(text), labels, numbers, np.arange(len(text)), place, names)

    @classmethod
    def parsed(cls, name: str, parse: Callable[[], Iterable[Example]]) -> Examples:
        """What a parser of our own gives; it is asked again to say where a text was read."""

        def columns() -> Iterator[list[tuple[str, ...]]]:
            examples = iter(parse())
            while some := list(islice(examples, _PARSED_AT_ONCE)):
                yield list(zip(*some, strict=True))[:2]

        table = mapped(("text", "label"), columns())

        def place(row: int) -> str:
            return next(islice(parse(), row, None)).where

        return cls.from_columns(name, table.columns, place)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: NDArray) -> Examples:
        """Those of the examples that are chosen by position, or by a mask `[examples]`."""
        return replace(self, rows=self.rows[chosen])

    def label_numbers(self) -> Integers:
        """For each example the number of its label in `labels`."""
        return self.numbers[self.rows]

    def counts(self) -> dict[str, int]:
        """How many examples each label has, of those that have any; the empty one is none."""
        counts = np.bincount(self.label_numbers(), minlength=len(self.labels))
        return {each: int(n) for each, n in zip(self.labels, counts, strict=True) if n and each}

    def first(self, label: str) -> str:
        """Where the first example of a label was read."""
        position = int(np.argmax(self.label_numbers() == self.labels.index(label)))
        return self.place(int(self.rows[position]))

    def renamed(self, name_of: Callable[[str], str | None]) -> Examples:
        """Each label by another name; examples whose label has none are left out."""
        names = {label: name_of(label) for label in self.counts()}
        labels = tuple(sorted({name for name in names.values() if name is not None}))
        number = {each: index for index, each in enumerate(labels)}
        new = np.array([number.get(names.get(each) or "", -1) for each in self.labels], dtype=int)
        numbers = new[self.numbers]
        rows = self.rows[numbers[self.rows] >= 0]
        return replace(self, labels=labels, numbers=numbers, rows=rows, stored_names=None)

    def empty_texts(self) -> NDArray[np.bool_]:
        """For each example whether it has no text."""
        empty: NDArray[np.bool_] = compute.equal(self.text, "").to_numpy()
        return empty[self.rows]

    def to_dataset(self, names: Sequence[str]) -> Dataset:
        """Columns `text`, `label` (a `ClassLabel` of `names`; -1: none) and `row`, from 1."""
        from datasets import ClassLabel, Dataset, DatasetInfo, Features, Value

        label = ClassLabel(names=list(names))
        features = Features({"text": Value("string"), "label": label, "row": Value("int64")})
        number = {name: index for index, name in enumerate(names)}
        numbers = np.array([number.get(each, -1) for each in self.labels], dtype=int)[self.numbers]
        columns = {"text": self.text, "label": numbers, "row": np.arange(1, len(self.text) + 1)}
        table = pyarrow.table(columns, features.arrow_schema)
        # a fingerprint of its own, since finding one would read all texts
        data = Dataset(table, DatasetInfo(features=features), fingerprint=uuid.uuid4().hex)
        return data if len(self) == len(data) else data.select(self.rows, keep_in_memory=True)


def mapped(names: Sequence[str], batches: Iterable[Sequence[Any]]) -> pyarrow.Table:
    """Columns of strings, some rows at a time, mapped into memory from a temporary file.

    Raises `UserError` where there is no room for it.
    """
    schema = pyarrow.schema([(name, pyarrow.string()) for name in names])
    try:
        with TemporaryFile() as file:
            with pyarrow.ipc.new_stream(file, schema) as stream:
                for columns in batches:
                    stream.write(pyarrow.record_batch(columns, schema=schema))
            file.flush()
            buffer = pyarrow.py_buffer(mmap(file.fileno(), 0, access=ACCESS_READ))
    except OSError as error:
        if error.errno not in _NO_ROOM:  # of what is read
            raise
        raise UserError(
            f"{gettempdir()}: no room for the texts, which are kept there while they are used "
            f"({error.strerror}); make some, or set TMPDIR to a folder on a larger disk."
        ) from error
    return pyarrow.ipc.open_stream(buffer).read_all()


def _trimmed(texts: ChunkedArray) -> ChunkedArray:
    """Texts without blanks at their ends, lines ending in `\\n`; copied only where they are not."""
    chunks = []
    for chunk in texts.chunks:
        cleaned = compute.utf8_trim(chunk.fill_null(""), characters=BLANKS)
        if compute.any(compute.match_substring(cleaned, "\r\n")).as_py():
            cleaned = compute.replace_substring(cleaned, "\r\n", "\n")
        chunks.append(chunk if cleaned.equals(chunk) else cleaned)
    return pyarrow.chunked_array(chunks, pyarrow.string())


def is_labelled(data: Dataset) -> bool:
    """Whether the texts of a set have labels; else each is numbered -1."""
    return max(data["label"][:], default=-1) >= 0


def label_names(data: Dataset) -> list[str]:
    """Names of the classes of a set, in the order of their numbers; `UserError` if it has none."""
    from datasets import ClassLabel

    label = data.features.get("label")
    if not isinstance(label, ClassLabel):
        raise UserError("the data have no column `label` of the type ClassLabel")
    return label.names  # type: ignore[no-any-return]


def stratified_order(classes: Integers, seed: int) -> Integers:
    """An order of the examples in which every beginning keeps the balance of the classes.

    Each class is shuffled by `seed`, then the classes are merged as seats are given by the
    Sainte-Laguë method: the r-th example (from 0) of a class of n has rank (r + 1/2) / n. Like
    that method the order is in proportion at every length (two classes: each within one example of
    its share), and the first 100 are among the first 500.
    """
    random = Random(seed)
    ranks = np.zeros(len(classes))
    by_class = np.argsort(classes, kind="stable")
    ends = np.flatnonzero(np.diff(classes[by_class])) + 1
    for members in np.split(by_class, ends):
        shuffled = members.tolist()
        random.shuffle(shuffled)
        ranks[shuffled] = (2 * np.arange(len(shuffled)) + 1) / (2 * len(shuffled))
    return np.lexsort((np.arange(len(classes)), classes, ranks))


def subsample(examples: Examples, size: int, seed: int) -> Examples:
    """`size` of the examples, in their old order; all of them where there are no more."""
    if size >= len(examples):
        logger.info("max_train_examples is %d: all %d are used", size, len(examples))
    order = stratified_order(examples.label_numbers(), seed)
    return examples.take(np.sort(order[:size]))


def fewest_of_all(examples: Examples) -> int:
    """The size of the smallest subsample that has every class, whatever the seed."""
    classes = examples.label_numbers()
    _, first = np.unique(classes[stratified_order(classes, 0)], return_index=True)
    return int(first.max()) + 1


def split_off(
    examples: Examples, size: float | int, seed: int, option: str
) -> tuple[Examples, Examples]:
    """(the others, those split off), both in their old order and in the same class balance.

    Arguments:
        size: how many; a float is a share of them, rounded down but at least one.
        option: the name of `size` in a config, for the error when it takes everything.
    """
    count = count_of(size, len(examples))
    if count >= len(examples):
        raise DataError(
            f"{option}: {size} leaves nothing to train on: there are {len(examples)} examples "
            f"({examples.name}).",
            f"Set a smaller {option}.",
        )
    chosen = np.zeros(len(examples), dtype=np.bool_)
    chosen[stratified_order(examples.label_numbers(), seed)[:count]] = True
    rest = examples.take(~chosen)
    lost = [each for each in examples.counts() if each not in rest.counts()]
    if lost:
        raise DataError(
            f"{option}: {size} takes every example of {len(lost)} of the classes "
            f"({listed(lost)}) out of training ({examples.name}).",
            f"Set a smaller {option}, or add examples of them.",
        )
    return rest, examples.take(chosen)


def count_of(size: float | int, total: int) -> int:
    """A count as it is, a share of `total` rounded down (0.1 is exactly a tenth) but at least 1."""
    return size if isinstance(size, int) else max(1, int(Fraction(str(size)) * total))


def class_names(labels: Iterable[str]) -> list[str]:
    """The distinct labels: in numeric order if all are plain integers, else alphabetically.

    `007`, `+1` and `1.0` are words.
    """
    names = set(labels)
    if all(INTEGER.fullmatch(name) for name in names):
        return sorted(names, key=int)
    return sorted(names)


def log_unseen(splits: Mapping[str, Examples]) -> None:
    """Says how many held-out texts are of classes that no training text has."""
    known = splits["train"].counts()
    for split in splits:
        unseen = {label: n for label, n in splits[split].counts().items() if label not in known}
        if unseen:
            logger.info(
                "%d of %d %s texts are of classes without training texts: %s",
                sum(unseen.values()), len(splits[split]), split, listed(unseen),
            )  # fmt: skip
