"""The base class of what reads labelled texts."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from sopa_plugin.data.readers import splits as split_tools
from sopa_plugin.data.readers.splits import Examples
from sopa_plugin.data.readers.tables import Table, load_hub, load_stored, parquet_table
from sopa_plugin.data.sources import (
    SPLITS,
    DataError,
    canonical_splits,
    encoding_problem,
    find_files,
    is_parquet,
    is_stored,
    path_problem,
)
from sopa_plugin.data.tokenizers import MaxTokens
from sopa_plugin.errors import TrainingFailed, UserError, listed, shortened
from sopa_plugin.registry import Bound, LocalPath, PositiveInt, Registrable

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

Splits = dict[str, Examples]
Size = Annotated[float, Bound(above=0, below=1)] | PositiveInt
"""How much is split off: a share, or a count."""
PATHS = ("path", *SPLITS)
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class DatasetReader(ABC, Registrable):
    """Reads files, a local data set or one on the Hub into train, dev and test.

    A subclass says where each split is (`sources`) and what one source holds (`examples`); what is
    done afterwards is the same for all and done here, in this order: texts lose the blanks at their
    ends, a missing test set and then a missing dev set are split off the training set, and of what
    is left `max_train_examples` are taken. A subclass that is a dataclass has its own arguments
    beside those below; the constructor of another takes `**options` for these, and hands them on.

    Arguments:
        path: a local folder or file, or the id of a data set on the Hugging Face Hub.
        lowercase: whether texts are lower-cased, and
        max_tokens: how many words (separated by blanks) of each are kept, whatever the tokenizer
            is set to, which does both (see `Tokenizer`): so at prediction, too.
        max_train_examples: how many training examples are drawn, in the proportions of the
            classes; with the same seed a smaller set is part of every larger one. None takes all.
        subsample_seed: the seed of that drawing; dev and test do not depend on it.
        dev_size: what to split off as dev where the data have none: a count, or a share (below 1)
            of the training examples. None is the reader's own share, `default_dev_size`.
        test_size: the same for test (`default_test_size`), taken before dev; 0 does without.
        split_seed: the seed of both splits.
        encoding: of text files.
        empty_text: whether an empty text is an error or is left out and counted in the log.
        unseen_classes: whether a class of dev or test texts that no training text has, not even
            after `max_train_examples`, is an error or is kept: it cannot be learned, and its texts
            count as wrong. The log counts them.
        labels_only_in_test: whether test examples of a label that training has not are an `error`,
            or `count` as wrong answers.

    Raises:
        UserError: everything that is wrong with the data, with file and line.
    """

    title: ClassVar[str] = "texts"
    env_variable: ClassVar[str | None] = None
    """The environment variable by which the shipped config finds the data."""
    default_dev_size: ClassVar[float | None] = None
    default_test_size: ClassVar[float | None] = None

    path: LocalPath | None
    _: KW_ONLY
    lowercase: bool = False
    max_tokens: MaxTokens | None = None
    max_train_examples: PositiveInt | None = None
    subsample_seed: int = 0
    dev_size: Size | None = None
    test_size: Size | Literal[0] | None = None
    split_seed: int = 0
    encoding: str = "utf-8"
    empty_text: Literal["error", "drop"] = "error"
    unseen_classes: Literal["error", "keep"] = "error"
    labels_only_in_test: Literal["error", "count"] = "error"

    def __post_init__(self) -> None:
        given = vars(self)
        given |= {key: os.path.expanduser(given[key]) for key in PATHS if given.get(key)}
        for key, message in type(self).check_params(given):
            raise UserError(f"{key}: {message}")

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """What the type hints cannot say about the options."""
        for key in PATHS:
            if params.get(key) is not None and (problem := path_problem(params[key])):
                yield key, problem
        if problem := encoding_problem(params["encoding"]):
            yield "encoding", problem

    @abstractmethod
    def sources(self) -> dict[str, Path | Table]:
        """Where `train` and, where the data have them, `dev` and `test` are."""

    @abstractmethod
    def examples(self, source: Path | Table) -> Examples:
        """The examples of one source, with their labels as they are written there."""

    def map_labels(self, splits: Splits) -> Splits:
        """Turns labels as they are written into class names, and drops what is in no class."""
        return splits

    def read(self) -> DatasetDict:
        """`train`, `dev` and any `test` with columns `text` and `label`, one `ClassLabel` for all.

        With `labels_only_in_test` that of test may go on with classes that training has not. Texts
        may have no labels: where those of training have none, no test set is split off, and the
        classes are those of dev and test.
        """
        from datasets import DatasetDict

        sources = self._found()
        if "train" not in sources:
            raise UserError(f"{self.path}: no training set; found {', '.join(sources) or 'none'}.")
        splits = self._with_held_out_sets(self._load(sources))
        train = splits["train"]
        kept = self.unseen_classes == "keep" or not train.counts()
        self._check_labels(splits)
        names = self.class_names(train, *(splits.values() if kept else []))
        if self.max_train_examples is not None:
            splits["train"] = split_tools.subsample(
                train, self.max_train_examples, self.subsample_seed
            )
            if not kept:
                self._check_classes_kept(splits, train)
        if kept and train.counts():
            split_tools.log_unseen(splits)
        sets = {split: splits[split].to_dataset(names) for split in ("train", "dev")}
        if "test" in splits:
            sets["test"] = self._named(splits["test"], names)
        return DatasetDict(sets)

    def read_test(self, class_names: Sequence[str] | None = None) -> Dataset:
        """The test set at the path, or what is split off as one.

        Unlike `read` it needs no training set, and a `test_size` only where there is no test set.

        Arguments:
            class_names: a trained model's classes in order; labels are matched to them by name.
                By default this reader's own, or those in the data.
        """
        sources = self._found()
        if "test" in sources:
            return self._named(self._load({"test": sources["test"]})["test"], class_names)
        if "train" not in sources:
            raise UserError(f"{self.path}: no test set; found {', '.join(sources) or 'none'}.")
        splits = self._load({"train": sources["train"]})
        return self._named(self._split_off(splits["train"], "test")[1], class_names)

    def read_file(self, path: str | Path, class_names: Sequence[str] | None = None) -> Dataset:
        """All examples of one file in this reader's format, for instance to evaluate on.

        Arguments:
            class_names: as for `read_test`.
        """
        source = self._source([Path(path).expanduser()])
        return self._named(self._load({"test": source})["test"], class_names)

    def class_names(self, *examples: Examples) -> Sequence[str]:
        """The class names in the order of their numbers; by default those of `examples`."""
        return split_tools.class_names(label for each in examples for label in each.counts())

    @property
    def is_embedded_sample(self) -> bool:
        """Whether the data are this project's own small sample, in its folder `fixtures`."""
        return any(in_fixtures(Path(path)) for path in self._paths())

    def describe(self) -> str:
        """What was read, for the model card: the title and the last parts of the path."""
        paths = dict.fromkeys("/".join(Path(path).parts[-2:]) for path in self._paths())
        sample = " (the embedded sample)" if self.is_embedded_sample else ""
        return f"{self.title} from {', '.join(paths)}{sample}"

    def split_off(
        self, examples: Examples, size: float | int, option: str
    ) -> tuple[Examples, Examples]:
        """(those that stay, those split off); keeps the balance of the classes."""
        return split_tools.split_off(examples, size, self.split_seed, option)

    def _paths(self) -> list[str]:
        """Every path of the config."""
        return [path for key in PATHS if (path := getattr(self, key, None)) is not None]

    def _locate(
        self,
        wanted: Callable[[Path], bool],
        expected: str,
        may_lack_split: Callable[[Path], bool] | None = None,
    ) -> dict[str, Path | Table]:
        """The splits at the path: the only data set in files there, a stored one, or a Hub id.

        Arguments:
            wanted: whether a file can be one of this reader's own; Parquet files always can.
            expected: what should be there, for the error.
            may_lack_split: which files are a training set even if no split is in their name.
        """
        path = Path(self.path or "")
        files = find_files(path, lambda file: wanted(file) or is_parquet(file), may_lack_split)
        if files:
            return {split: self._source(each) for split, each in files.items()}
        if path.exists() and not is_stored(path):
            raise UserError(f"{path}: no data set found there; expected {expected}.")
        return {**self._loaded_splits()}

    def _loaded_splits(self) -> dict[str, Table]:
        """The splits of the stored data set at the path, or of that of the Hub."""
        return canonical_splits(self._loaded_tables())

    def _loaded_tables(self, config_name: str | None = None) -> dict[str, Table]:
        """The same by their own names."""
        assert self.path is not None
        path = Path(self.path)
        if path.exists():
            return load_stored(path)
        variable = f"{self.env_variable} (dataset.path)" if self.env_variable else "dataset.path"
        return load_hub(self.path, config_name, f"{variable} to a local file or folder")

    def _found(self) -> dict[str, Path | Table]:
        """The sources; that a folder may not be looked into is the user's to know."""
        try:
            return self.sources()
        except OSError as error:
            path = error.filename or ", ".join(self._paths())
            raise UserError(f"{shortened(path)}: cannot be read ({error.strerror}).") from error

    def _source(self, files: list[Path]) -> Path | Table:
        """One split in files: Parquet as a table, others as the reader reads them itself."""
        return parquet_table(files) if is_parquet(files[0]) else files[0]

    def _load(self, sources: Mapping[str, Path | Table]) -> Splits:
        """The examples of each source by class name; a split without any is an error."""
        found, faults = {}, list[UserError]()
        for split, each in sources.items():
            try:
                found[split] = self._with_texts(self.examples(each))
            except UserError as error:
                faults.append(error)
        if faults:
            raise faults[0] if len(faults) == 1 else UserError("\n".join(map(str, faults)))
        splits = self.map_labels(found)
        for split, examples in splits.items():
            if not len(examples):
                raise UserError(
                    f"{examples.name}: no {split} examples in it; expected {self.title}."
                )
        return splits

    def _with_texts(self, examples: Examples) -> Examples:
        """The examples, those without a text refused or left out."""
        empty = examples.empty_texts()
        if not empty.any():
            return examples
        if self.empty_text == "error":
            more = f" (and {empty.sum() - 1} more)" if empty.sum() > 1 else ""
            raise DataError(
                f"{examples.place(int(examples.rows[empty.argmax()]))}: the text is empty{more}; "
                "expected some text.",
                "Take the example out, or set dataset.empty_text to 'drop' to leave such examples "
                "out.",
            )
        logger.info("%s: left out %d examples with an empty text", examples.name, empty.sum())
        return examples.take(~empty)

    def _named(self, examples: Examples, class_names: Sequence[str] | None) -> Dataset:
        """The examples by the class names of a model, if such are given."""
        names = class_names or self.class_names(examples)
        counts = examples.counts()
        others = [label for label in counts if label not in names]
        if others and (self.labels_only_in_test == "error" or len(others) == len(counts)):
            raise UserError(
                "\n".join(
                    f"{examples.first(label)}: the label {shortened(label)} is not a class of the "
                    f"model, which has {listed(names)}."
                    for label in others[:20]
                )
            )
        if others:
            logger.warning(
                "%s: %d examples have labels that training has not (%s); they count as wrong",
                examples.name,
                sum(counts[label] for label in others),
                listed(others),
            )
        return examples.to_dataset([*names, *others])

    def _check_labels(self, splits: Splits) -> None:
        """Whether there are classes to tell apart, and every label is one that training has."""
        train = splits["train"]
        known = train.counts()
        if len(known) == 1:
            raise UserError(
                f"{train.name}: every training example has the label {shortened(min(known))}; "
                "a classifier needs at least two classes."
            )
        bare = [each.name for each in splits.values() if not each.counts()]
        if known and bare:
            raise UserError(f"{bare[0]}: its texts have no labels; expected some, as in training")
        checked = ["dev"] if self.labels_only_in_test == "count" else list(splits)
        if self.unseen_classes == "keep" or not known:
            checked = []
        faults = [
            f"{splits[split].first(label)}: the label {shortened(label)} of this {split} "
            f"example is not in the training set, which has {listed(known)}. Correct the label, "
            "add training examples of this class, or set dataset.unseen_classes to 'keep'."
            for split in checked
            for label in splits[split].counts()
            if label not in known
        ]
        if faults:
            raise UserError("\n".join(faults[:20]))

    def _with_held_out_sets(self, splits: Splits) -> Splits:
        """Splits off the test set, then the dev set, if the data have none."""
        splits = dict(splits)
        for split in ("test", "dev"):
            idle = split == "test" and not splits["train"].counts()  # it would test nothing
            if split not in splits and getattr(self, f"{split}_size") != 0 and not idle:
                splits["train"], splits[split] = self._split_off(splits["train"], split)
            elif split in splits and getattr(self, f"{split}_size") is not None:
                raise UserError(
                    f"dataset.{split}_size: the data have a {split} set of their own "
                    f"({splits[split].name}); leave it out, or take that set away."
                )
        return splits

    def _split_off(self, train: Examples, split: str) -> tuple[Examples, Examples]:
        """(what stays of the training set, the dev or test set that it has to give)."""
        option = f"dataset.{split}_size"
        given = getattr(self, f"{split}_size")
        size = getattr(self, f"default_{split}_size") if given is None else given
        if not size:
            raise DataError(
                f"{self._paths()[0]}: no {split} set there;",
                f"set {option} to split one off the training set: a count, or a share like 0.1.",
            )
        rest, held_out = self.split_off(train, size, option)
        logger.info(
            "no %s set in the data: %d of the training examples are split off, %d stay",
            split,
            len(held_out),
            len(rest),
        )
        return rest, held_out

    def _check_classes_kept(self, splits: Splits, train: Examples) -> None:
        """Whether the training examples drawn from `train` have all classes of dev and test."""
        drawn = splits["train"].counts()
        for split in splits:
            for label in splits[split].counts():
                if label not in drawn:
                    raise TrainingFailed(
                        f"dataset.max_train_examples: {len(splits['train'])} examples have none "
                        f"of the class {shortened(label)}, which {split} examples have; the fewest "
                        f"that have one of every class are {split_tools.fewest_of_all(train)}."
                    )


def in_fixtures(path: Path) -> bool:
    """Whether the path lies in a folder `fixtures` beside this package's source, or in it."""
    resolved = path.resolve()
    return any(
        folder.name == "fixtures"
        and any(
            (each / "sopa_plugin" / "__init__.py").exists() for each in list(folder.parents)[:2]
        )
        for folder in (resolved, *resolved.parents)
    )
