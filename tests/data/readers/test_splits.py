from __future__ import annotations

import resource
import tempfile
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_plugin.data.readers.splits import (
    Example,
    Examples,
    class_names,
    count_of,
    fewest_of_all,
    split_off,
    stratified_order,
    subsample,
)
from sopa_plugin.errors import UserError

labels = st.lists(st.sampled_from("abcde"), min_size=1, max_size=120)


def examples_of(names: list[str]) -> Examples:
    return Examples.parsed(
        "file", lambda: [Example(f"text {i}", name, f"file:{i}") for i, name in enumerate(names)]
    )


def rows(examples: Examples) -> list[int]:
    return examples.rows.tolist()


def order_of(names: list[str], seed: int) -> list[int]:
    return stratified_order(examples_of(names).label_numbers(), seed).tolist()


@given(labels, st.integers(0, 5))
@settings(max_examples=50)
def test_every_beginning_is_in_proportion(names: list[str], seed: int) -> None:
    order = order_of(names, seed)
    assert sorted(order) == list(range(len(names)))
    total = Counter(names)
    for size in range(1, len(names) + 1):
        drawn = Counter(names[index] for index in order[:size])
        for name, count in total.items():
            share = size * count / len(names)
            # Sainte-Laguë: half a seat for the class, half a seat for each class in its share
            slack = 0.5 + len(total) / 2 * count / len(names)
            assert abs(drawn[name] - share) <= slack + 1e-9


def test_draws_of_earlier_versions_stay_what_they_were() -> None:
    order = order_of(list("baabbbbbccd" * 3), 3)
    assert order == [
        11,
        1,
        28,
        9,
        29,
        21,
        26,
        12,
        3,
        31,
        7,
        18,
        13,
        17,
        19,
        16,
        32,
        25,
        24,
        14,
        8,
        22,
        5,
        23,
        15,
        20,
        6,
        10,
        27,
        2,
        0,
        30,
        4,
    ]


def test_two_classes_are_exact() -> None:
    names = ["n"] * 30 + ["p"] * 70
    drawn = [names[index] for index in order_of(names, 3)[:50]]
    assert Counter(drawn) == {"n": 15, "p": 35}


@given(labels, st.data())
@settings(max_examples=50)
def test_smaller_sets_are_nested_in_larger_ones(names: list[str], data: st.DataObject) -> None:
    examples = examples_of(names)
    small = data.draw(st.integers(1, len(names)))
    large = data.draw(st.integers(small, len(names)))
    assert set(rows(subsample(examples, small, 7))) <= set(rows(subsample(examples, large, 7)))
    assert len(subsample(examples, small, 7)) == small


def test_the_seed_decides_which() -> None:
    examples = examples_of(["a", "b"] * 50)
    assert rows(subsample(examples, 10, 1)) == rows(subsample(examples, 10, 1))
    assert rows(subsample(examples, 10, 1)) != rows(subsample(examples, 10, 2))
    assert rows(subsample(examples, 1_000, 1)) == rows(examples)


@given(labels.filter(lambda names: len(names) > 2), st.floats(0.01, 0.6), st.integers(0, 5))
@settings(max_examples=50)
def test_splitting_off_loses_and_doubles_nothing(names: list[str], size: float, seed: int) -> None:
    examples = examples_of(names)
    try:
        rest, held = split_off(examples, size, seed, "dev_size")
    except UserError:  # for a class of few examples
        assert min(examples.counts().values()) <= count_of(size, len(names))
        return
    assert sorted(rows(rest) + rows(held)) == rows(examples)
    assert rest.counts().keys() == examples.counts().keys()
    assert len(held) == count_of(size, len(names)) >= 1


def test_shares_are_decimal() -> None:
    assert count_of(0.29, 100) == 29  # int(0.29 * 100) is 28
    assert count_of(0.1, 5) == 1
    assert count_of(7, 100) == 7


def test_a_split_that_takes_everything() -> None:
    with pytest.raises(UserError, match="dev_size: 3 leaves nothing to train on"):
        split_off(examples_of(["a", "b", "a"]), 3, 0, "dev_size")
    with pytest.raises(UserError, match=r"test_size: 2 takes every example of 1 of .* \('b'\)"):
        split_off(examples_of(["a", "a", "b"]), 2, 0, "test_size")
    assert fewest_of_all(examples_of(["a"] * 9 + ["b"])) == 6


def test_texts_are_without_blanks_at_their_ends_and_labels_as_written() -> None:
    read = [(" \ta\r\n\r\nb\u00a0\f", " 007 "), ("", "7"), ("c", "+7"), ("d", "007")]
    examples = Examples.parsed("x", lambda: [Example(*each, "x:1") for each in read])
    assert examples.text.to_pylist() == ["a\n\nb\u00a0", "", "c", "d"]
    assert examples.counts() == {"+7": 1, "007": 2, "7": 1}
    assert examples.empty_texts().tolist() == [False, True, False, False]
    chosen = examples.renamed({"007": "x", "7": None, "+7": "y"}.get)
    assert chosen.counts() == {"x": 2, "y": 1}
    data = chosen.to_dataset(["y", "x"])
    assert data[:] == {"text": ["a\n\nb\u00a0", "c", "d"], "label": [1, 0, 1], "row": [1, 3, 4]}


def test_texts_without_room_for_them() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(UserError) as raised:
            examples_of(["a", "b"] * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(raised.value).startswith(f"{tempfile.gettempdir()}: no room for the texts")
    assert "set TMPDIR" in str(raised.value)


def test_integer_classes_are_in_numeric_order() -> None:
    assert class_names(["10", "9", "1", "-5", "9"]) == ["-5", "1", "9", "10"]
    assert class_names(["b", "10", "9"]) == ["10", "9", "b"]
    assert class_names(["10", "9", "007"]) == ["007", "10", "9"]
    assert class_names(["10", "9", "+7"]) == ["+7", "10", "9"]
