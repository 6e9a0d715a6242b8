"""Any texts, mostly labelled: tables of text, parquet, a folder per label, the Hub."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from sopa_plugin.data.readers.dataset_reader import DatasetReader
from sopa_plugin.data.readers.splits import Example, Examples
from sopa_plugin.data.readers.tables import Table
from sopa_plugin.data.sources import (
    SPLITS,
    DataError,
    canonical_splits,
    entries,
    find_files,
    format_of,
    read_records,
    read_text,
    split_of,
    suffix_of,
)
from sopa_plugin.errors import UserError, listed, shortened
from sopa_plugin.registry import LocalPath

TEXTS = (".txt", ".text", ".md", "")
_EXPECTED = (
    "train, dev and test as .csv, .tsv or .jsonl files (also .gz), parquet files, a folder for "
    "every label with one .txt file a text, or a Hub id"
)
_UNLABELLED = "unsup"  # the Large Movie Review set keeps its unlabelled reviews in this folder
logger = logging.getLogger(__name__)


@DatasetReader.register("text")
@dataclass(eq=False)
class TextReader(DatasetReader):
    """Texts with a label each, or none, from the usual kinds of files.

    Registered as `text`. Each split is a `.csv`, `.tsv` or `.jsonl` file (also `.gz`) with a
    header or keys, `.parquet` files, or a folder with a folder per label that holds a file per text
    (`.txt`, `.text`, `.md` or without suffix, also `.gz`, at any depth). Cells stay text whatever
    they look like (`NA`, `null`, `007`). Columns of `.csv` files may be parted by semicolons or
    tabs; in tab-separated files quotes have no meaning. Labels that are all plain integers become
    class names in numeric order, others in alphabetical order, those of a stored `ClassLabel` in
    its order; the classes are those of the training set. Where there is no dev set, a tenth of the
    training set is split off.

    Arguments:
        path: a folder with one data set whose files are told apart by `train`, `dev` or
            `validation`, and `test` in their names; one file; or a Hub id.
        train: the training file or folder, in place of `path`; likewise `dev` and `test`.
        text_column: the column or key of the text.
        label_column: the column or key of the label; null where texts have none. A table that has
            no other column than that of the text has none either.
        column_names: the columns of `.csv` and `.tsv` files that have no header row.
        split_names: what train, dev and test are called in a Hub (or stored) data set, where they
            are others: `{train: 'train', test: 'validation'}`. Only those named are taken.
        config_name: which configuration of a Hub data set (`sst2` of `nyu-mll/glue`).

    The other arguments are those of `DatasetReader`.
    """

    default_dev_size = 0.1

    path: LocalPath | None = None
    train: LocalPath | None = None
    dev: LocalPath | None = None
    test: LocalPath | None = None
    text_column: str = "text"
    label_column: str | None = "label"
    column_names: list[str] | None = None
    split_names: dict[str, str] | None = None
    config_name: str | None = None

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """What is wrong across arguments, too."""
        yield from super().check_params(params)
        separate = [split for split in SPLITS if params.get(split) is not None]
        if params.get("path") is None and "train" not in separate:
            yield "path", "expected a folder, a file or a Hub id here, or `train`, found neither"
        if params.get("path") is not None and separate:
            yield separate[0], "give either `path` or `train`, `dev` and `test`, not both"
        names = params.get("split_names")
        if names is not None and ("train" not in names or set(names) - set(SPLITS)):
            yield "split_names", f"expected keys 'train', 'dev' and 'test', found {sorted(names)}"
        columns = params.get("column_names")
        for key in ("text_column", "label_column"):
            if columns is not None and params.get(key) not in (None, *columns):
                yield key, f"{params[key]!r} is not one of column_names: {columns}"
        if params["text_column"] == params["label_column"]:
            yield (
                "label_column",
                f"expected another than text_column, found {params['text_column']!r}",
            )

    def sources(self) -> dict[str, Path | Table]:
        if self.path is None:
            given = {split: getattr(self, split) for split in SPLITS}
            return {split: self._source([Path(path)]) for split, path in given.items() if path}
        path = Path(self.path)
        if _class_folders(path) and not find_files(path, _is_split, _is_table_file):
            splits: dict[str, Path | Table] = {"train": path}
        else:
            splits = self._locate(_is_split, _EXPECTED, _is_table_file)
        plain = any(isinstance(source, Path) for source in splits.values())
        if plain and (self.split_names or self.config_name):
            raise DataError(
                f"{path}: dataset.split_names and config_name are for Hub and stored data sets, "
                "and these are plain files;",
                "leave them out, or give `train`, `dev` and `test`.",
            )
        return splits

    def examples(self, source: Path | Table) -> Examples:
        examples = self._examples(source)
        drop = self.empty_text == "drop"
        _check_labels(examples.take(~examples.empty_texts()) if drop else examples)
        return examples

    def _examples(self, source: Path | Table) -> Examples:
        if isinstance(source, Path):
            path = source
            if path.is_dir():
                _report_left_out(path)
                return Examples.parsed(str(path), lambda: self._from_folder(path))
            if format_of(path.name) not in ("csv", "tsv", "jsonl"):
                raise UserError(f"{path}: expected {_EXPECTED}.")
            return Examples.parsed(str(path), lambda: self._from_records(path))
        self._check_columns(source.columns, source.name)
        label = self._label(source.columns)
        return source.examples(self.text_column, label)

    def class_names(self, *examples: Examples) -> Sequence[str]:
        """As in the base class, but those of a stored `ClassLabel` keep its order."""
        names = super().class_names(*examples)
        if examples[0].stored_names is None:
            return names
        return [name for name in examples[0].stored_names if name in names]

    def _loaded_splits(self) -> dict[str, Table]:
        tables = self._loaded_tables(self.config_name)
        if self.split_names is None:
            return canonical_splits(tables)
        missing = [name for name in self.split_names.values() if name not in tables]
        if missing:
            raise UserError(
                f"split_names: no split {missing[0]!r}; the data set has {listed(tables)}."
            )
        return {split: tables[name] for split, name in self.split_names.items()}

    def _from_records(self, path: Path) -> Iterator[Example]:
        wanted = [self.text_column, self.label_column or self.text_column]
        name, columns, column = str(path), None, None
        for number, row in read_records(path, self.encoding, self.column_names, wanted):
            where = f"{name}:{number}"
            if row.keys() != columns:  # other ones than the row before has
                columns, column = row.keys(), self._label(row)
                self._check_columns(row, where if format_of(name) == "jsonl" else name)
            text = row[self.text_column]
            label = "" if column is None else label_text(row[column], where)
            if text is not None and not isinstance(text, str):
                raise UserError(f"{where}: {self.text_column!r} is not text: {shortened(text)}.")
            yield Example(text or "", label, where)

    def _label(self, columns: Collection[str]) -> str | None:
        """The column of labels; None where there is none beside that of the text."""
        return None if set(columns) == {self.text_column} else self.label_column

    def _check_columns(self, columns: Collection[str], where: str) -> None:
        names = {"text_column": self.text_column, "label_column": self._label(columns)}
        missing = {option: each for option, each in names.items() if each not in (None, *columns)}
        if missing:
            raise DataError(
                f"{where}: no column {' and no column '.join(map(shortened, missing.values()))}; "
                f"the columns are {listed(columns)}.",
                f"Set {' and '.join(f'dataset.{option}' for option in missing)} to one of them"
                f"{', or to null if there are no labels' * ([*missing] == ['label_column'])}.",
            )

    def _from_folder(self, folder: Path) -> Iterator[Example]:
        for label in _class_folders(folder):
            for file in sorted(filter(_is_text, label.rglob("*"))):
                yield Example(read_text(file, self.encoding), label.name, str(file))


def label_text(value: Any, where: str) -> str:
    """A label in JSON as it is written in other files; numbers that are integers as such."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return str(value)
    raise UserError(f"{where}: expected a label (a word or a number), found {shortened(value)}.")


def _check_labels(examples: Examples) -> None:
    """Whether every label is one, by which example it is not; there may be none at all."""
    counts = examples.counts()
    if 0 < sum(counts.values()) < len(examples):
        raise UserError(
            f"{examples.first('')}: expected a label, found ''; label the text, or take it out."
        )
    for label in counts:
        if label in ("-1", "-100"):
            raise DataError(
                f"{examples.first(label)}: the label is {label}, which stands for a hidden or "
                "missing label;",
                "use data with labels (for a split of a Hub data set without: "
                "dataset.split_names), or name the class.",
            )


def _is_table_file(path: Path) -> bool:
    return path.is_file() and format_of(path.name) in ("csv", "tsv", "jsonl", "parquet")


def _is_split(path: Path) -> bool:
    """Whether this is a table, or a folder for a split that has a folder for each label."""
    return _is_table_file(path) or bool(split_of(path.name) and _class_folders(path))


def _class_folders(path: Path) -> list[Path]:
    """The folders in a folder that hold texts, one for every label."""
    return [folder for folder in _labels(path) if any(map(_is_text, folder.rglob("*")))]


def _labels(path: Path) -> list[Path]:
    """The folders in a folder that may be labels."""
    return [
        folder
        for folder in entries(path)
        if folder.is_dir() and not folder.name.startswith("__") and folder.name != _UNLABELLED
    ]


def _is_text(path: Path) -> bool:
    return path.is_file() and suffix_of(path.name) in TEXTS and not path.name.startswith(".")


def _report_left_out(folder: Path) -> None:
    """Says how many files of class folders are no texts by their names; more than are is an error.

    That would be a folder of something else.
    """
    files = [path for label in _labels(folder) for path in label.rglob("*") if path.is_file()]
    left_out = Counter(
        path.suffix for path in files if not _is_text(path) and not path.name.startswith(".")
    )
    if not left_out:
        return
    kinds = listed(f"{suffix} {count}" for suffix, count in left_out.most_common(5))
    found = (
        f"{folder}: {left_out.total()} files in its folders are no texts by their names ({kinds}); "
        f"expected .txt, .text, .md or no suffix, also .gz"
    )
    read = sum(map(_is_text, files))
    if left_out.total() > read:
        raise UserError(f"{found}. Convert them, or move them away.")
    logger.warning("%s; they are left out, %d are read", found, read)
