from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_plugin.data.readers.example import Example
from sopa_plugin.data.readers.splits import (
    class_names,
    count_of,
    split_off,
    stratified_order,
    subsample,
)
from sopa_plugin.errors import UserError

labels = st.lists(st.sampled_from("abcde"), min_size=1, max_size=120)


def examples_of(names: list[str]) -> list[Example]:
    return [Example(f"text {index}", name, "file", index + 1) for index, name in enumerate(names)]


@given(labels, st.integers(0, 5))
@settings(max_examples=50)
def test_every_beginning_is_in_proportion(names: list[str], seed: int) -> None:
    order = stratified_order(names, seed)
    assert sorted(order) == list(range(len(names)))
    total = Counter(names)
    for size in range(1, len(names) + 1):
        drawn = Counter(names[index] for index in order[:size])
        for name, count in total.items():
            share = size * count / len(names)
            # Sainte-Laguë: half a seat for the class, half a seat for each class in its share
            slack = 0.5 + len(total) / 2 * count / len(names)
            assert abs(drawn[name] - share) <= slack + 1e-9


def test_two_classes_are_exact() -> None:
    names = ["n"] * 30 + ["p"] * 70
    drawn = [names[index] for index in stratified_order(names, 3)[:50]]
    assert Counter(drawn) == {"n": 15, "p": 35}


@given(labels, st.data())
@settings(max_examples=50)
def test_smaller_sets_are_nested_in_larger_ones(names: list[str], data: st.DataObject) -> None:
    examples = examples_of(names)
    small = data.draw(st.integers(1, len(names)))
    large = data.draw(st.integers(small, len(names)))
    assert set(subsample(examples, small, 7)) <= set(subsample(examples, large, 7))
    assert len(subsample(examples, small, 7)) == small


def test_the_seed_decides_which() -> None:
    examples = examples_of(["a", "b"] * 50)
    assert subsample(examples, 10, 1) == subsample(examples, 10, 1)
    assert subsample(examples, 10, 1) != subsample(examples, 10, 2)
    assert subsample(examples, 1_000, 1) == examples


@given(labels.filter(lambda names: len(names) > 2), st.floats(0.01, 0.6), st.integers(0, 5))
@settings(max_examples=50)
def test_splitting_off_loses_and_doubles_nothing(names: list[str], size: float, seed: int) -> None:
    examples = examples_of(names)
    rest, held = split_off(examples, size, seed, "dev_size")
    assert sorted(rest + held) == sorted(examples)
    assert len(held) == count_of(size, len(names)) >= 1


def test_shares_are_decimal() -> None:
    assert count_of(0.29, 100) == 29  # int(0.29 * 100) is 28
    assert count_of(0.1, 5) == 1
    assert count_of(7, 100) == 7


def test_a_split_that_takes_everything() -> None:
    with pytest.raises(UserError, match="dev_size: 3 leaves nothing to train on"):
        split_off(examples_of(["a", "b", "a"]), 3, 0, "dev_size")


def test_integer_classes_are_in_numeric_order() -> None:
    assert class_names(["10", "9", "1", "-5", "9"]) == ["-5", "1", "9", "10"]
    assert class_names(["b", "10", "9"]) == ["10", "9", "b"]
