"""Sets drawn from a set: class balance kept, smaller ones nested in larger ones, one label set."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random

from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from sopa_plugin.data.readers.example import Example
from sopa_plugin.data.readers.split_files import SPLITS
from sopa_plugin.errors import UserError

INTEGER = re.compile(r"[+-]?\d+")
logger = logging.getLogger(__name__)


def stratified_order(labels: Sequence[str], seed: int) -> list[int]:
    """An order of the examples in which every beginning keeps the balance of the classes.

    Each class is shuffled by `seed`, then the classes are merged as seats are given by the
    Sainte-Laguë method: the r-th example (from 0) of a class of n has rank (r + 1/2) / n. Like
    that method the order is in proportion at every length (two classes: each within one example of
    its share), and the first 100 are among the first 500.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        members[label].append(index)
    random = Random(seed)
    ranked: list[tuple[float, int, int]] = []
    for position, label in enumerate(sorted(members)):
        indices = members[label]
        random.shuffle(indices)
        ranked += [
            ((2 * rank + 1) / (2 * len(indices)), position, index)
            for rank, index in enumerate(indices)
        ]
    return [index for _, _, index in sorted(ranked)]


def subsample(examples: Sequence[Example], size: int, seed: int) -> list[Example]:
    """`size` of the examples, in their old order; all of them where there are no more."""
    if size >= len(examples):
        logger.info("max_train_examples is %d: all %d are used", size, len(examples))
    order = stratified_order([example.label for example in examples], seed)
    return [examples[index] for index in sorted(order[:size])]


def split_off(
    examples: Sequence[Example], size: float | int, seed: int, option: str
) -> tuple[list[Example], list[Example]]:
    """(the others, those split off), both in their old order and in the same class balance.

    Arguments:
        size: how many; a float is a share of them, rounded down but at least one.
        option: the name of `size` in a config, for the error when it takes everything.
    """
    count = count_of(size, len(examples))
    if count >= len(examples):
        raise UserError(
            f"{option}: {size} leaves nothing to train on: there are {len(examples)} examples "
            f"({examples[0].file}). Set a smaller {option}."
        )
    order = stratified_order([example.label for example in examples], seed)
    chosen = set(order[:count])
    return (
        [example for index, example in enumerate(examples) if index not in chosen],
        [example for index, example in enumerate(examples) if index in chosen],
    )


def count_of(size: float | int, total: int) -> int:
    """A count as it is, a share of `total` rounded down (0.1 is exactly a tenth) but at least 1."""
    return size if isinstance(size, int) else max(1, int(Fraction(str(size)) * total))


def class_names(labels: Sequence[str]) -> list[str]:
    """The distinct labels, integers in numeric order, else in alphabetical order."""
    names = set(labels)
    if all(INTEGER.fullmatch(name) for name in names):
        return sorted(names, key=int)
    return sorted(names)


def check_labels(train: Sequence[Example], others: Mapping[str, Sequence[Example]]) -> None:
    """Raises a `UserError` for one class only, or for a label that the training set lacks."""
    known = Counter(example.label for example in train)
    if len(known) < 2:
        raise UserError(
            f"{train[0].file}: every training example has the label {train[0].label!r}; "
            "a classifier needs at least two classes."
        )
    for split, examples in others.items():
        for example in examples:
            if example.label not in known:
                raise UserError(
                    f"{example.where}: the label {example.label!r} of this {split} example is not "
                    f"in the training set, which has {', '.join(map(repr, sorted(known)))}. "
                    "Correct the label, or add training examples of this class."
                )


def log_overlap(splits: Mapping[str, Sequence[Example]]) -> None:
    """Says how many held-out texts also occur in the training set."""
    train = {example.text for example in splits["train"]}
    for split in ("dev", "test"):
        shared = sum(example.text in train for example in splits[split])
        if shared:
            logger.info("%d of %d %s texts also occur in train", shared, len(splits[split]), split)


def to_dataset(examples: Sequence[Example], names: Sequence[str]) -> Dataset:
    """Columns `text` and `label`, in memory: nothing is cached, so nothing can be out of date."""
    number = {name: index for index, name in enumerate(names)}
    columns = {
        "text": [example.text for example in examples],
        "label": [number[example.label] for example in examples],
    }
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(names))})
    return Dataset.from_dict(columns, features=features)


def to_dataset_dict(splits: Mapping[str, Sequence[Example]], names: Sequence[str]) -> DatasetDict:
    """One data set a split, all with the same `ClassLabel`."""
    return DatasetDict({split: to_dataset(splits[split], names) for split in SPLITS})
