"""Data sets as tables: a Hub id, a folder by `save_to_disk`, parquet files."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow
from datasets import ClassLabel, Dataset
from pyarrow import parquet

from sopa_plugin.data.readers.split_files import SPLITS, canonical_split, split_of
from sopa_plugin.errors import UserError

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TRUE = {"1", "ON", "YES", "TRUE"}


@dataclass(frozen=True)
class Table:
    """One split of a data set; `name` says where it is from, and rows count as lines."""

    name: str
    data: Dataset

    def __str__(self) -> str:
        return self.name

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields (row from 1, cells); a `ClassLabel` becomes its name, if it is not missing."""
        labels = {
            name: feature
            for name, feature in self.data.features.items()
            if isinstance(feature, ClassLabel)
        }
        for number, row in enumerate(self.data, 1):
            for name, feature in labels.items():
                value = row[name]
                if value is not None and value >= 0:
                    row[name] = feature.int2str(value)
            yield number, row


def is_table_folder(path: Path) -> bool:
    """Whether a folder is one written by `save_to_disk` or holds parquet files."""
    return path.is_dir() and ((path / "dataset_dict.json").exists() or bool(_parquet_files(path)))


def read_table_folder(path: Path) -> dict[str, Table]:
    """The splits of such a folder by their own names, read without a cache."""
    if (path / "dataset_dict.json").exists():
        stored = datasets.load_from_disk(str(path))
        return {str(split): Table(f"{path}[{split}]", data) for split, data in stored.items()}
    shards: dict[str, list[Path]] = defaultdict(list)
    for file in _parquet_files(path):
        split = split_of(file.name)
        if split is None:
            raise UserError(
                f"{file}: its name says no split; expected train, dev, validation or test in it."
            )
        shards[split].append(file)
    return {split: read_parquet(*files) for split, files in shards.items()}


def read_parquet(*files: Path) -> Table:
    """One split from its files, in order; features stored by `datasets` are kept."""
    try:
        table = pyarrow.concat_tables([parquet.read_table(file) for file in files])
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{files[0]}: not a parquet file that can be read ({error}).") from None
    return Table(str(files[0]), Dataset(table))


def load_hub(path: str, config_name: str | None, instead: str) -> dict[str, Table]:
    """The splits of a data set on the Hugging Face Hub, by their own names.

    Arguments:
        config_name: which of its configurations, as in `datasets.load_dataset`.
        instead: what to set to have local files read, for the error.
    """
    parent = Path(path).parent
    if not _HUB_ID.fullmatch(path) or (parent != Path() and parent.is_dir()):
        raise UserError(f"{path}: no such file or folder. Set {instead}.")
    try:
        loaded = datasets.load_dataset(path, config_name)
    except (OSError, ValueError, RuntimeError) as error:
        offline = [name for name in _offline_variables() if os.environ.get(name)]
        asked = f" {offline[0]} is set, so the Hub was not asked." if offline else ""
        raise UserError(
            f"{path}: no such file or folder, and no data set could be had under this name from "
            f"the Hugging Face Hub ({_first_line(error)}).{asked} Set {instead}."
        ) from None
    return {str(split): Table(f"{path}[{split}]", data) for split, data in loaded.items()}


def canonical_splits(
    tables: Mapping[str, Table], names: Mapping[str, str] | None = None
) -> dict[str, Table]:
    """train, dev and test of a data set, `validation` being dev.

    Arguments:
        names: the data set's own names, where they are others; then only these splits are taken.
    """
    if names is None:
        splits = {canonical_split(name): table for name, table in tables.items()}
        return {name: splits[name] for name in SPLITS if name in splits}
    missing = [name for name in names.values() if name not in tables]
    if missing:
        raise UserError(
            f"split_names: no split {missing[0]!r}; the data set has "
            f"{', '.join(map(repr, tables))}."
        )
    return {split: tables[name] for split, name in names.items()}


def _parquet_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.parquet")) or sorted((path / "data").glob("*.parquet"))


def _offline_variables() -> list[str]:
    """Those of the offline variables that are on; the first one decides for `datasets`."""
    names = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")
    return [name for name in names if os.environ.get(name, "").upper() in _TRUE]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
