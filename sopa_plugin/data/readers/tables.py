"""Tables read by `datasets`: Parquet, what `save_to_disk` wrote, data sets of the Hub.

Only the columns that are asked for are read, and as strings, so that `007` stays what it is.
"""

from __future__ import annotations

import functools
import glob
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
from pyarrow import ChunkedArray, DataType, Schema, compute, parquet, types

from sopa_plugin.errors import UserError, first_line, listed
from sopa_plugin.registry import is_hub_id

if TYPE_CHECKING:
    from datasets import Dataset

_OFFLINE = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")  # the first decides for `datasets`
_TRUE = {"1", "ON", "YES", "TRUE"}
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Table:
    """One split as a table.

    Attributes:
        name: says where it is from.
        schemas: of each of its files, by name; columns may differ in order and width of integers.
        load: reads some of the columns, as they are or as strings.
    """

    name: str
    schemas: Mapping[str, Schema]
    load: Callable[[Sequence[str]], Mapping[str, ChunkedArray]]

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
        with reading(self.name):
            loaded = self.load(names)
            columns = {}
            for name in names:
                column = loaded[name]
                column.validate(full=True)
                if types.is_floating(column.type):  # nan is how pandas writes what is missing
                    column = compute.if_else(compute.is_nan(column), None, column)
                columns[name] = column.cast(pyarrow.string())
        return [self._named(*each) for each in columns.items()]

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
    schemas, size = {}, 0
    for file in files:
        with reading(file):
            metadata = parquet.read_metadata(file)
            schemas[str(file)] = metadata.schema.to_arrow_schema()
            size += metadata.num_rows
    first, *others = map(_stored_class_names, schemas.values())
    if any(each != first for each in others):
        raise UserError(f"{files[0].parent}: its shards name the classes differently.")

    def load(names: Sequence[str]) -> dict[str, ChunkedArray]:
        from datasets import Features, Value, load_dataset

        if not size:  # which `load_dataset` refuses
            return dict.fromkeys(names, pyarrow.chunked_array([], pyarrow.string()))
        if any("::" in file.name for file in files):
            raise UserError(f"{files[0]}: `datasets` cannot open a file with '::' in its name.")
        kinds = {name: [each.field(name).type for each in schemas.values()] for name in names}
        data = load_dataset(
            "parquet",
            data_files={"train": [glob.escape(os.path.abspath(file)) for file in files]},
            split="train",
            columns=names,
            features=Features(
                {
                    name: Value("float64" if any(map(types.is_floating, each)) else "string")
                    for name, each in kinds.items()
                }
            ),
            cache_dir=_cache_folder(),
        )
        return {name: data.data.column(name) for name in names}

    return Table(str(files[0]), schemas, load)


def loaded_table(name: str, data: Dataset) -> Table:
    """A split of a data set that is in memory or mapped."""

    def load(names: Sequence[str]) -> dict[str, ChunkedArray]:
        chosen = data.select_columns(list(names)).flatten_indices().data
        return {each: chosen.column(each) for each in names}

    return Table(name, {name: data.features.arrow_schema}, load)


def load_stored(folder: Path) -> dict[str, Table]:
    """The splits of a folder that `save_to_disk` wrote, by their own names."""
    from datasets import DatasetDict, load_from_disk

    with reading(folder):
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
        raise UserError(f"{path}: no such file or folder. Set {instead}.")
    try:
        loaded = load_dataset(path, config_name, cache_dir=_cache_folder())
    except (OSError, ValueError, RuntimeError) as error:
        offline = [name for name in _OFFLINE if os.environ.get(name, "").upper() in _TRUE]
        asked = f" {offline[0]} is set, so the Hub was not asked." if offline else ""
        raise UserError(
            f"{path}: no such file or folder, and no data set could be had under this name from "
            f"the Hugging Face Hub ({first_line(error)}).{asked} Set {instead}."
        ) from None
    return {str(split): loaded_table(f"{path}[{split}]", data) for split, data in loaded.items()}


@contextmanager
def reading(name: str | Path) -> Iterator[None]:
    """Says in one line what `datasets` and Arrow make of a file that they cannot read."""
    import datasets

    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # the error below says it
    bars = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # whatever pandas, pyarrow, fsspec and datasets raise
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise UserError(f"{name}: cannot be read ({first_line(cause)}).") from error
    finally:
        datasets.logging.set_verbosity(verbosity)
        if not bars:
            datasets.enable_progress_bars()


@functools.cache
def _cache_folder() -> str | None:
    """None for the usual one; if nothing can be written there, one that this process removes."""
    from datasets import config

    folder = config.HF_DATASETS_CACHE
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        logger.info("%s: no cache (%s); read data are not kept", folder, error.strerror)
    own = tempfile.TemporaryDirectory(prefix="sopa_plugin-")
    _cache_folder.folder = own  # type: ignore[attr-defined]  # goes when the process does
    return own.name


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
    """The names of each `ClassLabel` in a Parquet file by `datasets`, whatever else it holds."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {
            column: list(map(str, feature["names"]))
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError):
        return {}
