"""Bounds and literals in type hints: in the check of a config and in constructors."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NewType

import numpy as np
import pytest
import torch

from sopa_plugin.registry import (
    Bound,
    ConfigError,
    LocalPath,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rate,
    Registrable,
    build,
    check,
    fill_defaults,
)
from sopa_plugin.registry.problems import describe

Seed = NewType("Seed", Annotated[int, Bound(at_least=0, at_most=2**32 - 1)])
Share = Annotated[float, Bound(above=0, at_most=1)]


@pytest.mark.parametrize(
    ("hint", "fits", "fails"),
    [
        (PositiveInt, [1, 10**400], [0, -1, 1.5, True, "1", None]),
        (NonNegativeInt, [0], [-1, False]),
        (PositiveFloat, [1, 1e-9], [0, -0.0, -1, math.inf, math.nan, 10**400]),
        (NonNegativeFloat, [0, 2.5], [-1e-9, math.inf, math.nan]),
        (Rate, [0, 0.5], [1, -0.1, math.nan]),
        (Share, [1, 0.1], [0, 1.1]),
        (Annotated[PositiveFloat, Bound(below=2)], [1], [0, 2]),
        (Seed, [0, 2**32 - 1], [-1, 2**32]),
        (PositiveInt | None, [None, 1], [0, "1"]),
        (Share | PositiveInt, [0.5, 1, 7], [0, 1.5, -1]),
        (list[Rate], [[], [0.5]], [[0.5, 1], 0.5]),
        (tuple[PositiveInt, ...], [[1, 2]], [[0]]),
        (tuple[Rate, PositiveInt], [[0, 1]], [[0, 0]]),
        (dict[str, PositiveInt] | None, [{"a": 1}], [{"a": 0}]),
        (dict[PositiveInt, Any], [{"1": 0}], [{"0": 0}, {"a": 0}]),
        (Sequence[PositiveInt] | PositiveInt, [1, [1]], [0, [0]]),
    ],
)
def test_numbers_within_and_out_of_their_bounds(
    hint: Any, fits: list[Any], fails: list[Any]
) -> None:
    for value in fits:
        assert check(hint, value) == []
    for value in fails:
        (problem,) = check(hint, value, "a.b")
        assert problem.path.startswith("a.b")
        with pytest.raises(ConfigError):
            build(hint, value)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (PositiveInt, "an integer of at least 1"),
        (PositiveFloat, "a number above 0"),
        (Rate, "a number of at least 0 and below 1"),
        (Share, "a number above 0 and at most 1"),
        (Annotated[float, Bound(at_most=1)], "a number of at most 1"),
        (Annotated[PositiveFloat, Bound(below=2)], "a number above 0 and below 2"),
        (list[Rate] | None, "a list of a number of at least 0 and below 1 or null"),
    ],
)
def test_bounds_in_words(hint: Any, words: str) -> None:
    assert describe(hint) == words


def test_a_problem_says_where_what_was_expected_and_what_was_found() -> None:
    (problem,) = check(dict[str, tuple[Rate, ...]], {"a": [0.5, 2]}, "dropouts")
    assert problem.path == "dropouts.a.1"
    expected = "a number of at least 0 and below 1"
    assert (problem.what, problem.expected) == ("wrong value", expected)
    assert problem.found == "2 (an integer)"
    (problem,) = check(PositiveInt | None, 0)
    assert problem.expected == "an integer of at least 1 or null"
    assert check(PositiveInt | None, "3")[0].hint == "remove the quotes"
    assert "did you mean 'mean'" in check(Literal["mean", "sum"] | None, "men")[0].hint


class Encoder(Registrable):
    def __init__(self, dropout: Rate = 0.0) -> None:
        self.dropout = dropout


@Encoder.register("cnn")
class Cnn(Encoder):
    def __init__(
        self,
        windows: Sequence[PositiveInt] | PositiveInt,
        pooling: Literal["max", "mean"] | None = "max",
        path: LocalPath = "",
        scale: PositiveFloat = math.inf,
        weights: torch.Tensor | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.windows, self.pooling, self.scale = windows, pooling, scale


class TestConstructor:
    @pytest.mark.parametrize(
        ("args", "options", "message"),
        [
            ([0], {}, r"windows: expected .*at least 1.*, found 0 \(an integer\)"),
            ([(3, 0)], {}, r"windows\.1: expected an integer of at least 1, found 0"),
            ([3, "men"], {}, 'pooling: expected "max" or "mean" or null, found "men" .*did you'),
            ([3], {"dropout": 1}, "dropout: expected a number of at least 0 and below 1, found 1"),
            ([3], {"scale": math.nan}, "scale: expected a number above 0, found NaN"),
        ],
    )
    def test_what_a_hint_rules_out_is_a_value_error(
        self, args: list[Any], options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            Cnn(*args, **options)

    def test_defaults_and_types_without_bounds_are_left_alone(self) -> None:
        encoder = Cnn([np.int64(3)], dropout=np.float32(0.5), weights=torch.ones(1), path=3)
        assert encoder.scale == math.inf
        assert encoder.dropout == 0.5

    def test_a_wrong_call_is_pythons_own_error(self) -> None:
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'windows'"):
            Cnn()
        with pytest.raises(TypeError, match="unexpected keyword argument 'dropuot'"):
            Cnn(3, dropuot=0)

    def test_signature_hints_copies_and_kwargs_stay(self) -> None:
        assert list(inspect.signature(Cnn).parameters)[:2] == ["windows", "pooling"]
        assert typing.get_type_hints(Cnn.__init__, include_extras=True)["scale"] == PositiveFloat
        assert copy.deepcopy(Cnn(3, dropout=0.5)).dropout == 0.5
        assert pickle.loads(pickle.dumps(Cnn(3))).windows == 3
        assert fill_defaults(Encoder, {"type": "cnn", "windows": 3})["dropout"] == 0.0
        assert check(Encoder, {"type": "cnn", "windows": 3, "dropout": 1})[0].path == "dropout"

    def test_a_subclass_with_a_constructor_of_its_own_is_checked_by_the_base_too(self) -> None:
        class Half(Encoder):
            def __init__(self, keep: float) -> None:
                super().__init__(1 - keep)

        assert Half(0.75).dropout == 0.25
        with pytest.raises(ValueError, match=r"dropout: expected .* found 1"):
            Half(0.0)
