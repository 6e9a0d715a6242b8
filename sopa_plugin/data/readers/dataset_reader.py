"""The base class of what reads labelled texts."""

from __future__ import annotations

import codecs
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from datasets import Dataset, DatasetDict

from sopa_plugin.data.readers import splits as split_tools
from sopa_plugin.data.readers.example import Example, clean_text
from sopa_plugin.data.readers.split_files import SPLITS, choose_form, forms_at
from sopa_plugin.data.readers.tables import (
    Table,
    canonical_splits,
    is_table_folder,
    load_hub,
    read_parquet,
    read_table_folder,
)
from sopa_plugin.errors import UserError
from sopa_plugin.registry import Registrable

Splits = dict[str, list[Example]]
logger = logging.getLogger(__name__)


class DatasetReader(ABC, Registrable):
    """Reads files, a local data set or one on the Hub into train, dev and test.

    A subclass says where each split is (`sources`) and what one source holds (`examples`); what
    is done to the texts and sets afterwards is the same for all and done here, in this order:
    texts are cleaned, a missing test set and then a missing dev set are split off the training
    set, and of what is left `max_train_examples` are taken. Nothing is cached. A constructor of a
    subclass takes its own arguments, and `**options` for those below, which it hands on.

    Arguments:
        path: a local folder or file, or the id of a data set on the Hugging Face Hub.
        lowercase: whether texts are lower-cased.
        max_tokens: how many words (separated by blanks) of each text are kept; None keeps all.
        max_train_examples: how many training examples are drawn, in the proportions of the
            classes; with the same seed a smaller set is part of every larger one. None takes all.
        subsample_seed: the seed of that drawing; dev and test do not depend on it.
        dev_size: what to split off as dev where the data have none: a count, or a share (below 1)
            of the training examples. None is the reader's own share, `default_dev_size`.
        test_size: the same for test (`default_test_size`), taken before dev.
        split_seed: the seed of both splits.
        encoding: of text files.
        empty_text: whether an empty text is an error or is left out and counted in the log.

    Raises:
        UserError: everything that is wrong with the data, with file and line.
    """

    title: ClassVar[str] = "texts"
    env_variable: ClassVar[str | None] = None
    """The environment variable by which the shipped config finds the data."""
    default_dev_size: ClassVar[float | None] = None
    default_test_size: ClassVar[float | None] = None
    known_class_names: Sequence[str] | None = None
    """The classes where the task has fixed ones, in the order of their numbers."""

    def __init__(
        self,
        path: str | None,
        *,
        lowercase: bool = False,
        max_tokens: int | None = None,
        max_train_examples: int | None = None,
        subsample_seed: int = 0,
        dev_size: float | int | None = None,
        test_size: float | int | None = None,
        split_seed: int = 0,
        encoding: str = "utf-8",
        empty_text: Literal["error", "drop"] = "error",
    ) -> None:
        self.path = None if path is None else os.path.expanduser(path)
        self.lowercase = lowercase
        self.max_tokens = max_tokens
        self.max_train_examples = max_train_examples
        self.subsample_seed = subsample_seed
        self.dev_size = dev_size
        self.test_size = test_size
        self.split_seed = split_seed
        self.encoding = encoding
        self.empty_text = empty_text
        for key, message in _option_problems(vars(self)):
            raise UserError(f"{key}: {message}")

    @classmethod
    def check_params(cls, params: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """What the type hints cannot say about the options."""
        return _option_problems(params)

    @abstractmethod
    def sources(self) -> dict[str, Path | Table]:
        """Where `train` and, where the data have them, `dev` and `test` are."""

    @abstractmethod
    def examples(self, source: Path | Table) -> Iterator[Example]:
        """The examples of one source, as they are written there."""

    def map_labels(self, splits: Splits) -> Splits:
        """Turns labels as they are written into class names, and drops what is in no class."""
        return splits

    def read(self) -> DatasetDict:
        """`train`, `dev` and `test` with columns `text` and `label`, one `ClassLabel` for all."""
        sources = self.sources()
        if "train" not in sources:
            raise UserError(f"{self.path}: no training set; found {', '.join(sources) or 'none'}.")
        splits = self.map_labels({split: self._load(sources[split]) for split in sources})
        for split, examples in splits.items():
            if not examples:
                raise UserError(
                    f"{sources[split]}: no {split} examples in it; expected {self.title}."
                )
        splits = self._with_held_out_sets(splits)
        train = splits["train"]
        split_tools.check_labels(train, {"dev": splits["dev"], "test": splits["test"]})
        names = self.class_names(train, sources["train"])
        split_tools.log_overlap(splits)
        if self.max_train_examples is not None:
            splits["train"] = split_tools.subsample(
                train, self.max_train_examples, self.subsample_seed
            )
        return split_tools.to_dataset_dict(splits, names)

    def read_file(self, path: str | Path, class_names: Sequence[str] | None = None) -> Dataset:
        """All examples of one file in this reader's format, for instance to evaluate on.

        Arguments:
            class_names: a trained model's classes in order; labels are matched to them by name.
                By default this reader's own, or those in the file.
        """
        source = self._source(Path(path).expanduser())
        examples = self.map_labels({"test": self._load(source)})["test"]
        if not examples:
            raise UserError(f"{source}: no examples in it; expected {self.title}.")
        names = class_names or self.class_names(examples, source)
        for example in examples:
            if example.label not in names:
                raise UserError(
                    f"{example.where}: the label {example.label!r} is not a class of the model, "
                    f"which has {', '.join(map(repr, names))}."
                )
        return split_tools.to_dataset(examples, names)

    def class_names(self, examples: list[Example], source: Path | Table) -> Sequence[str]:
        """The class names in the order of their numbers, by default those of the training set."""
        return self.known_class_names or split_tools.class_names([each.label for each in examples])

    @property
    def is_embedded_sample(self) -> bool:
        """Whether the data are this project's own small sample, in its folder `fixtures`."""
        return any(_in_fixtures(Path(path)) for path in self._paths())

    def describe(self) -> str:
        """What was read, for the model card: the title and the last parts of the path."""
        paths = dict.fromkeys("/".join(Path(path).parts[-2:]) for path in self._paths())
        sample = " (the embedded sample)" if self.is_embedded_sample else ""
        return f"{self.title} from {', '.join(paths)}{sample}"

    def split_off(
        self, examples: list[Example], size: float | int, option: str
    ) -> tuple[list[Example], list[Example]]:
        """(those that stay, those split off); keeps the balance of the classes."""
        return split_tools.split_off(examples, size, self.split_seed, option)

    def _paths(self) -> list[str]:
        """Every path of the config."""
        return [] if self.path is None else [self.path]

    def _tables(self, config_name: str | None = None) -> dict[str, Table] | None:
        """The path as a local table folder or a Hub id; None if it is another local path."""
        assert self.path is not None
        path = Path(self.path)
        if is_table_folder(path):
            return read_table_folder(path)
        if path.exists():
            return None
        variable = f"{self.env_variable} (dataset.path)" if self.env_variable else "dataset.path"
        return load_hub(self.path, config_name, f"{variable} to a local file or folder")

    def _locate(
        self,
        wanted: Callable[[Path], bool],
        expected: str,
        may_lack_split: Callable[[Path], bool] | None = None,
    ) -> dict[str, Path | Table]:
        """The splits at the path: the only form of files there, a table folder or a Hub id.

        Arguments:
            wanted: whether a file can be one of this reader's.
            expected: what should be there, for the error.
            may_lack_split: which files are a training set even if no split is in their name.
        """
        path = Path(self.path or "")
        forms = forms_at(path, wanted, may_lack_split)
        if forms and is_table_folder(path):
            raise UserError(
                f"{path}: holds a stored data set (parquet or save_to_disk) and "
                f"{forms[0].files['train'].name} as well; set the path to {forms[0].choice}, "
                "or move one of them to a folder of its own."
            )
        tables = None if forms else self._table_splits()
        if tables is not None:
            return {**tables}
        return {**choose_form(path, forms, expected).files}

    def _table_splits(self) -> dict[str, Table] | None:
        tables = self._tables()
        return None if tables is None else canonical_splits(tables)

    def _source(self, path: Path) -> Path | Table:
        return read_parquet(path) if path.suffix == ".parquet" else path

    def _load(self, source: Path | Table) -> list[Example]:
        kept, empty = [], 0
        for example in self.examples(source):
            cleaned = clean_text(example, self.lowercase, self.max_tokens)
            if cleaned.text:
                kept.append(cleaned)
            elif self.empty_text == "error":
                raise UserError(
                    f"{example.where}: the text is empty; expected some text. Take the example "
                    "out, or set `empty_text` to 'drop' to leave such examples out."
                )
            else:
                empty += 1
        if empty:
            logger.info("%s: left out %d examples with an empty text", source, empty)
        return kept

    def _with_held_out_sets(self, splits: Splits) -> Splits:
        """Splits off the test set, then the dev set, if the data have none."""
        splits = dict(splits)
        for split in ("test", "dev"):
            option = f"{split}_size"
            given = getattr(self, option)
            size = getattr(self, f"default_{option}") if given is None else given
            if split not in splits and size is None:
                raise UserError(
                    f"{self._paths()[0]}: no {split} set there; set `{option}` to split one off "
                    "the training set: a count, or a share like 0.1."
                )
            if split in splits and given is not None:
                raise UserError(
                    f"{option}: the data have a {split} set of their own "
                    f"({splits[split][0].file}); leave `{option}` out, or take that set away."
                )
            if split not in splits:
                splits["train"], splits[split] = self.split_off(splits["train"], size, option)
                logger.info(
                    "no %s set in the data: %d of the training examples are split off, %d stay",
                    split,
                    len(splits[split]),
                    len(splits["train"]),
                )
        return {split: splits[split] for split in SPLITS}


def _option_problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the options that all readers share."""
    if params.get("path") == "":  # to the system, the current folder
        yield "path", "expected a folder, a file or a Hub id, found nothing"
    for key in ("max_tokens", "max_train_examples"):
        value = params.get(key)
        if value is not None and value < 1:
            yield key, f"expected at least 1, found {value}"
    for key in ("dev_size", "test_size"):
        value = params.get(key)
        if value is None:
            continue
        if isinstance(value, float) and not 0 < value < 1:
            yield (
                key,
                f"expected a share between 0 and 1, or a count without a point, found {value}",
            )
        elif value < 1 and isinstance(value, int):
            yield key, f"expected at least 1, found {value}"
    if params["empty_text"] not in ("error", "drop"):
        yield "empty_text", f"expected 'error' or 'drop', found {params['empty_text']!r}"
    try:
        codecs.lookup(params["encoding"])
    except LookupError:
        yield "encoding", f"expected one like 'utf-8' or 'latin-1', found {params['encoding']!r}"


def _in_fixtures(path: Path) -> bool:
    """Whether the path lies in a folder `fixtures` that stands beside this package's source."""
    resolved = path.resolve()
    return any(
        folder.name == "fixtures" and (folder.parent / "sopa_plugin" / "__init__.py").exists()
        for folder in (resolved, *resolved.parents)
    )
