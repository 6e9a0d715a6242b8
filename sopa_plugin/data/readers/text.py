"""Any labelled texts: tables of text, parquet, a folder per label, the Hub."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import ClassLabel

from sopa_plugin.data.readers.dataset_reader import DatasetReader
from sopa_plugin.data.readers.example import Example
from sopa_plugin.data.readers.files import column, read_json_lines, read_table, read_text
from sopa_plugin.data.readers.split_files import SPLITS, forms_at, split_of
from sopa_plugin.data.readers.splits import INTEGER
from sopa_plugin.data.readers.tables import Table, canonical_splits
from sopa_plugin.errors import UserError
from sopa_plugin.registry import LocalPath

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".json")
_EXPECTED = (
    "train, dev and test as .csv, .tsv or .jsonl files (also .gz), parquet files, a folder for "
    "every label with one .txt file a text, or a Hub id"
)
_UNLABELLED = "unsup"  # the Large Movie Review set keeps its unlabelled reviews in this folder


@DatasetReader.register("text")
class TextReader(DatasetReader):
    """Texts with a label each, from the usual kinds of files.

    Registered as `text`. Each split is a `.csv`, `.tsv` or `.jsonl` file (also `.gz`) with a
    header or keys, a `.parquet` file, or a folder with a folder per label that holds a `.txt` file
    per text. Cells stay text whatever they look like (`NA`, `null`). In tab-separated files
    quotes have no meaning. Labels that are integers become class names in numeric order, others
    in alphabetical order, those of a stored `ClassLabel` in its order; the classes are those of
    the training set. Where there is no dev set, a tenth of the training set is split off.

    Arguments:
        path: a folder with one data set whose files are told apart by `train`, `dev` or
            `validation`, and `test` in their names; one file; or a Hub id.
        train: the training file or folder, in place of `path`; likewise `dev` and `test`.
        text_column: the column or key of the text.
        label_column: the column or key of the label.
        column_names: the columns of `.csv` and `.tsv` files that have no header row.
        split_names: what train, dev and test are called in a Hub (or stored) data set, where they
            are others: `{train: 'train', test: 'validation'}`. Only those named are taken.
        config_name: which configuration of a Hub data set (`sst2` of `nyu-mll/glue`).

    The other arguments are those of `DatasetReader`.
    """

    title = "labelled texts"
    default_dev_size = 0.1

    def __init__(
        self,
        path: LocalPath | None = None,
        train: LocalPath | None = None,
        dev: LocalPath | None = None,
        test: LocalPath | None = None,
        text_column: str = "text",
        label_column: str = "label",
        column_names: list[str] | None = None,
        split_names: dict[str, str] | None = None,
        config_name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        self.split_paths = {
            split: os.path.expanduser(value)
            for split, value in (("train", train), ("dev", dev), ("test", test))
            if value is not None
        }
        self.text_column = text_column
        self.label_column = label_column
        self.column_names = column_names
        self.split_names = split_names
        self.config_name = config_name
        given = {**vars(self), **dict.fromkeys(SPLITS), **self.split_paths}
        for key, message in _problems(given):
            raise UserError(f"{key}: {message}")

    @classmethod
    def check_params(cls, params: dict[str, Any]) -> Iterable[tuple[str, str]]:
        yield from super().check_params(params)
        yield from _problems(params)

    def sources(self) -> dict[str, Path | Table]:
        if self.path is None:
            paths = self.split_paths
            return {split: self._source(Path(path)) for split, path in paths.items()}
        path = Path(self.path)
        if _label_folders(path) and not forms_at(path, _is_data):
            splits: dict[str, Path | Table] = {"train": path}
        elif path.suffix == ".parquet" and path.is_file():
            splits = {"train": self._source(path)}
        else:
            splits = self._locate(_is_data, _EXPECTED, _is_table_file)
        if not isinstance(splits.get("train"), Table) and (self.split_names or self.config_name):
            raise UserError(
                f"{path}: `split_names` and `config_name` are for Hub and stored data sets, and "
                "these are plain files; leave them out, or give `train`, `dev` and `test`."
            )
        return splits

    def examples(self, source: Path | Table) -> Iterator[Example]:
        if isinstance(source, Path) and source.is_dir():
            yield from self._from_folder(source)
            return
        file = str(source)
        for number, row in self._rows(source):
            where = f"{file}:{number}"
            text = column(row, self.text_column, where, "text_column")
            label = column(row, self.label_column, where, "label_column")
            if text is not None and not isinstance(text, str):
                raise UserError(f"{where}: {self.text_column!r} is not text: {text!r}.")
            yield Example(text or "", _label_name(label, where), file, number)

    def class_names(self, examples: list[Example], source: Path | Table) -> Sequence[str]:
        """As in the base class, but those of a stored `ClassLabel` keep its order."""
        names = super().class_names(examples, source)
        feature = source.data.features[self.label_column] if isinstance(source, Table) else None
        if isinstance(feature, ClassLabel):
            return [name for name in feature.names if name in names]
        return names

    def _table_splits(self) -> dict[str, Table] | None:
        tables = self._tables(self.config_name)
        return None if tables is None else canonical_splits(tables, self.split_names)

    def _paths(self) -> list[str]:
        return list(self.split_paths.values()) or super()._paths()

    def _rows(self, source: Path | Table) -> Iterator[tuple[int, Mapping[str, Any]]]:
        if isinstance(source, Table):
            return source.rows()
        suffix = _format(source)
        if suffix in DELIMITERS:
            return read_table(source, DELIMITERS[suffix], self.encoding, self.column_names)
        if suffix in JSON_LINES:
            return read_json_lines(source, self.encoding)
        raise UserError(f"{source}: expected {_EXPECTED}.")

    def _from_folder(self, folder: Path) -> Iterator[Example]:
        labels = _label_folders(folder)
        if not labels:
            raise UserError(f"{folder}: expected a folder for every label with .txt files in it.")
        for label in labels:
            for file in sorted(label.glob("*.txt")):
                text = read_text(file, self.encoding)
                yield Example(text, _label_name(label.name, str(label)), str(file), 1)


def _problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong across arguments."""
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
        if columns is not None and params.get(key) not in columns:
            yield key, f"{params.get(key)!r} is not one of column_names: {columns}"


def _format(path: Path) -> str:
    """The suffix that says the format: `.csv` of `train.csv.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _is_table_file(path: Path) -> bool:
    return path.is_file() and _format(path) in (*DELIMITERS, *JSON_LINES)


def _is_data(path: Path) -> bool:
    return _is_table_file(path) or bool(_label_folders(path))


def _label_folders(path: Path) -> list[Path]:
    """The folders in a folder that hold texts, one for every label."""
    if not path.is_dir():
        return []
    return [
        folder
        for folder in sorted(path.iterdir())
        if folder.is_dir()
        and not folder.name.startswith(".")
        and folder.name != _UNLABELLED
        and split_of(folder.name) is None
        and next(folder.glob("*.txt"), None) is not None
    ]


def _label_name(value: Any, where: str) -> str:
    """A class name; numbers that are integers are written as such."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value).strip() if isinstance(value, str | int) else ""
    if INTEGER.fullmatch(name):
        name = str(int(name))
    if not name:
        raise UserError(f"{where}: expected a label (a word or an integer), found {value!r}.")
    if name == "-1":
        raise UserError(
            f"{where}: the label is -1, which stands for a hidden or missing label; use data with "
            "labels (for a split of a Hub data set without: `split_names`), or name the class."
        )
    return name
