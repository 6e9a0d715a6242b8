"""Tables: Parquet, and by `datasets` what `save_to_disk` wrote and data sets of the Hub.

Only the columns that are asked for are read, and as strings, so that `007` stays what it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import Array, ChunkedArray, DataType, Schema, compute, parquet, types
from pyarrow import Table as ArrowTable

from sopa_plugin.data.readers.splits import Examples, mapped
from sopa_plugin.data.sources import DataError
from sopa_plugin.errors import UserError, failing, first_line, listed
from sopa_plugin.registry import is_hub_id

if TYPE_CHECKING:
    from datasets import Dataset

_OFFLINE = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")  # the first decides for `datasets`
_TRUE = {"1", "ON", "YES", "TRUE"}


@dataclass(frozen=True)
class Table:
    """One split as a table.

    Attributes:
        name: says where it is from.
        schemas: of each of its files, by name; columns may differ in order and width of integers.
        load: reads some of the columns, as strings.
        sizes: how many rows each of several files has.
    """

    name: str
    schemas: Mapping[str, Schema]
    load: Callable[[Sequence[str]], ArrowTable]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The names of all columns, read or not."""
        return list(self.schemas[self.name].names)

    @property
    def class_names(self) -> dict[str, list[str]]:
        """The names of each column of `ClassLabel`, in their order."""
        return _stored_class_names(self.schemas[self.name])

    def place(self, row: int) -> str:
        """Says where a row is, counted from 0."""
        for file, size in self.sizes.items():
            if row < size:
                return f"{file}, row {row + 1}"
            row -= size
        return f"{self.name}, row {row + 1}"

    def read(self, texts: Sequence[str], labels: Sequence[str]) -> list[ChunkedArray]:
        """Columns that must be text, then such as may be numbers too, all as strings.

        The numbers of a `ClassLabel` become its names.
        """
        names = [*texts, *labels]
        for name in names:
            for file, schema in self.schemas.items():
                if schema.names.count(name) != 1:
                    raise UserError(
                        f"{file}: expected one column {name!r}, found {listed(schema.names)}."
                    )
                _check_type(schema.field(name).type, name in texts, f"{self.name}: {name!r}")
        loaded = self.load(names)
        return [self._named(name, loaded[name]) for name in names]

    def examples(self, text: str, label: str | None) -> Examples:
        """Texts with their labels, those of a `ClassLabel` by name; None: they have none."""
        columns = self.read([text], [] if label is None else [label])
        if label is None:
            columns.append(pyarrow.chunked_array([[""] * len(columns[0])], pyarrow.string()))
        names = self.class_names.get(label or "")
        return Examples.from_columns(self.name, columns, self.place, names)

    def _named(self, column: str, values: ChunkedArray) -> ChunkedArray:
        if column not in self.class_names:
            return values
        names = self.class_names[column]
        written = values.combine_chunks().dictionary_encode()
        named = []
        for value in written.dictionary.to_pylist():
            if int(value) >= len(names):
                raise UserError(
                    f"{self.place(compute.index(values, value).as_py())}: the label is number "
                    f"{value}, but the classes are {listed(names)}, counted from 0."
                )
            named.append(names[int(value)] if int(value) >= 0 else value)
        return pyarrow.chunked_array([pyarrow.array(named, pyarrow.string()).take(written.indices)])


def parquet_table(files: Sequence[Path]) -> Table:
    """Parquet files, one after the other."""
    schemas, sizes = {}, {}
    for file in files:
        with failing(file, "cannot be read"), parquet.ParquetFile(file) as opened:
            schemas[str(file)] = opened.schema_arrow
            sizes[str(file)] = opened.metadata.num_rows
    first, *others = map(_stored_class_names, schemas.values())
    if any(each != first for each in others):
        raise UserError(f"{files[0].parent}: its shards name the classes differently.")

    def columns(names: Sequence[str]) -> Iterator[list[Array]]:
        for file in files:
            with failing(file, "cannot be read"):
                for batch in parquet.ParquetFile(file).iter_batches(columns=names):
                    yield [_as_strings(batch.column(name)) for name in names]

    return Table(str(files[0]), schemas, lambda names: mapped(names, columns(names)), sizes)


def loaded_table(name: str, data: Dataset) -> Table:
    """A split of a data set that is in memory or mapped."""

    def load(names: Sequence[str]) -> ArrowTable:
        with failing(name, "cannot be read"):
            chosen = data.select_columns(list(names)).flatten_indices().data
            return pyarrow.table({each: _as_strings(chosen.column(each)) for each in names})

    return Table(name, {name: data.features.arrow_schema}, load)


def load_stored(folder: Path) -> dict[str, Table]:
    """The splits of a folder that `save_to_disk` wrote, by their own names."""
    from datasets import DatasetDict, load_from_disk

    with failing(folder, "cannot be read"):
        stored = load_from_disk(str(folder))
    splits = stored if isinstance(stored, DatasetDict) else {"train": stored}
    return {str(split): loaded_table(f"{folder}[{split}]", data) for split, data in splits.items()}


def load_hub(path: str, config_name: str | None, instead: str) -> dict[str, Table]:
    """The splits of a data set on the Hugging Face Hub, by their own names.

    Arguments:
        config_name: which of its configurations, as in `datasets.load_dataset`.
        instead: what to set to have local files read, for the error.
    """
    from datasets import load_dataset

    if not is_hub_id(path):
        raise DataError(f"{path}: no such file or folder.", f"Set {instead}.")
    try:
        loaded = load_dataset(path, config_name)
    except (OSError, ValueError, RuntimeError) as error:
        offline = [name for name in _OFFLINE if os.environ.get(name, "").upper() in _TRUE]
        asked = f" {offline[0]} is set, so the Hub was not asked." if offline else ""
        raise DataError(
            f"{path}: no such file or folder, and no data set could be had under this name from "
            f"the Hugging Face Hub ({first_line(error)}).{asked}",
            f"Set {instead}.",
        ) from None
    return {str(split): loaded_table(f"{path}[{split}]", data) for split, data in loaded.items()}


def _as_strings(column: Any) -> Any:
    """An array of strings of any other, once it is sound."""
    column.validate(full=True)
    if types.is_floating(column.type):  # nan is how pandas writes what is missing
        column = compute.if_else(compute.is_nan(column), None, column)
    return column.cast(pyarrow.string())


def _check_type(kind: DataType, text: bool, what: str) -> None:
    """Whether a column can be text, or a label."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    if kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(), pyarrow.null()):
        return
    if text:
        raise UserError(f"{what} is not text, but {kind}.")
    if not (types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind)):
        raise UserError(f"{what}: expected labels (words or integers), found {kind}.")


def _stored_class_names(schema: Schema) -> dict[str, list[str]]:
    """The names of each `ClassLabel` in a Parquet file by `datasets`, whatever else it holds.

    One whose column is no numbers, as other programs leave it, has none.
    """
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {
            each.name: list(map(str, feature["names"]))
            for each in schema
            if isinstance(feature := features.get(each.name), dict)
            and feature.get("_type") == "ClassLabel"
            and types.is_integer(each.type)
        }
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return {}
