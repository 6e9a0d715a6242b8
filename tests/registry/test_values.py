"""Type hints: what fits, what it becomes, what is refused."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, TypeVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_plugin.registry import ConfigError, Registrable, build, check, fill_defaults
from sopa_plugin.registry.problems import describe

if TYPE_CHECKING:
    from nowhere import Missing

Dim = NewType("Dim", int)
Number = TypeVar("Number", bound=float)


class Color(Enum):
    RED = "red"
    BLUE = 2


class Semiring(Registrable):
    pass


@Semiring.register("max")
class Max(Semiring):
    pass


@Semiring.register("log")
class Log(Semiring):
    def __init__(self, base: float = math.e) -> None:
        self.base = base


@dataclass
class Point:
    x: int
    y: int = 0


class Half:
    """Its first hint cannot be resolved; the second is checked all the same."""

    def __init__(self, missing: Missing, number: int) -> None:
        self.missing, self.number = missing, number


class ImplicitNull:
    def __init__(self, number: int = None) -> None:  # noqa: RUF013
        self.number = number


class Open:
    def __init__(self, number: int = 1, *args: Any, **kwargs: Any) -> None:
        self.number = number


FITS = [
    (int, 3, 3),
    (float, 0.5, 0.5),
    (bool, True, True),
    (str, "a", "a"),
    (None, None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (object, 1, 1),
    (int | None, None, None),
    (typing.Optional[int], 3, 3),  # noqa: UP045
    (typing.Union[int, str], "3", "3"),  # noqa: UP007
    (float | int, 3, 3),
    (int | float, 3.5, 3.5),
    (str | list[str], ["a"], ["a"]),
    (Literal["mean", "sum"], "sum", "sum"),
    (Literal[1, None], None, None),
    (list, [1, "a"], [1, "a"]),
    (list[int], [1, 2], [1, 2]),
    (Sequence[int], (1, 2), [1, 2]),
    (Iterable[str], ["a"], ["a"]),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [], ()),
    (tuple[float, float], [0, 1], (0.0, 1.0)),
    (set[int], [1, 1], {1}),
    (frozenset[str], ["a"], frozenset("a")),
    (dict, {"a": 1}, {"a": 1}),
    (dict[int, int], {"6": 10, "-5": 1}, {6: 10, -5: 1}),
    (dict[float, str], {"0.5": "a"}, {0.5: "a"}),
    (Mapping[str, list[int]], {"6": [1]}, {"6": [1]}),
    (dict[bool, int], {"true": 1}, {True: 1}),
    (dict[int | str, int], {"6": 1, "a": 2}, {"6": 1, "a": 2}),
    (dict[Literal["a", 3], int], {"a": 1, "3": 2}, {"a": 1, 3: 2}),
    (Annotated[int, "positive"], 3, 3),
    (Dim, 3, 3),
    (Number, 3, 3.0),
    (Path, "a/b", Path("a/b")),
    (Color, "red", Color.RED),
    (Color, 2, Color.BLUE),
    (Point, {"x": 1}, Point(1, 0)),
    (list[Point], [{"x": 1, "y": 2}], [Point(1, 2)]),
    (dict[str, Point] | None, {"a": {"x": 1}}, {"a": Point(1)}),
]

FAILS = [
    (int, True),
    (int, 3.0),
    (int, "3"),
    (int, None),
    (float, True),
    (float, "0.5"),
    (bool, 1),
    (bool, "true"),
    (str, 1),
    (str, None),
    (None, 0),
    (int | None, "a"),
    (Literal["mean", "sum"], "men"),
    (Literal[1], True),
    (list[int], "12"),
    (Sequence[str], "ab"),
    (list[int], {"0": 1}),
    (tuple[int, str], [1]),
    (dict[int, int], [1]),
    (dict[int, int], {"a": 1}),
    (dict[int, int], {"6": "10"}),
    (dict[int, int], {"06": 1}),
    (dict[int, int], {"6": 1, 6: 2}),
    (set[int], 1),
    (Color, "green"),
    (Path, 3),
    (Dim, "3"),
    (Point, {}),
    (Point, "x"),
    (Point, [1, 2]),
    (torch.Tensor, {"data": [1]}),
    (Callable[[int], int], "math.sqrt"),
    (Callable, {}),
]


@pytest.mark.parametrize(("hint", "value", "expected"), FITS)
def test_what_fits_is_converted(hint: Any, value: Any, expected: Any) -> None:
    assert check(hint, value) == []
    built = build(hint, value)
    assert built == expected
    assert type(built) is type(expected)


@pytest.mark.parametrize(("hint", "value"), FAILS)
def test_what_does_not_fit_is_one_problem(hint: Any, value: Any) -> None:
    (problem,) = check(hint, value, "a.b")
    assert problem.path.startswith("a.b")
    assert problem.what
    assert str(problem).startswith(problem.path)
    with pytest.raises(ConfigError):
        build(hint, value)


def test_every_item_is_checked() -> None:
    problems = check(dict[str, list[int]], {"a": [1, "x", None], "b": 3}, "top")
    assert [each.path for each in problems] == ["top.a.1", "top.a.2", "top.b"]


class TestUnions:
    def test_the_member_of_the_same_shape_reports(self) -> None:
        (problem,) = check(Point | int | None, {"x": "1"}, "p")
        assert problem.path == "p.x"

    def test_a_wrong_shape_lists_all_members(self) -> None:
        (problem,) = check(int | list[str] | None, {"x": 1}, "p")
        assert problem.expected == "an integer or a list of a string or null"

    def test_a_string_is_the_name_of_a_part_where_it_may_be(self) -> None:
        assert type(build(Semiring | str, "max")) is Max
        assert type(build(str | Semiring, "max")) is Max
        (problem,) = check(str | Semiring, "mx", "semiring")
        assert problem.path == "semiring"
        assert "did you mean 'max'" in problem.hint

    def test_a_tensor_is_not_offered(self) -> None:
        (problem,) = check(float | torch.Tensor, "fast")
        assert problem.expected == "a number"
        assert build(float | torch.Tensor, torch.ones(1)) == torch.ones(1)


class TestParts:
    def test_a_built_part_is_taken_as_it_is(self) -> None:
        part = Log(2.0)
        assert build(Semiring, part) is part

    def test_unknown_keys_are_problems_under_kwargs_too(self) -> None:
        (problem,) = check(Open, {"nmuber": 2})
        assert (problem.path, problem.what) == ("nmuber", "unknown key")
        assert problem.hint == "did you mean 'number'?"
        assert build(Open, {"number": 2}).number == 2

    def test_an_unresolvable_hint_takes_anything_and_the_others_are_checked(self) -> None:
        assert build(Half, {"missing": {"a": 1}, "number": 2}).missing == {"a": 1}
        (problem,) = check(Half, {"missing": 1, "number": "2"})
        assert problem.path == "number"
        assert problem.hint == "remove the quotes"

    @pytest.mark.parametrize(
        ("text", "advice"), [(".5", "write 0.5"), ("None", "write null"), ("oh", ""), ("[1]", "")]
    )
    def test_a_value_that_is_not_json(self, text: str, advice: str) -> None:
        (problem,) = check(float | None, text)
        assert problem.hint == advice

    def test_null_fits_a_default_of_none(self) -> None:
        assert build(ImplicitNull, {"number": None}).number is None
        assert check(ImplicitNull, fill_defaults(ImplicitNull, {})) == []

    def test_a_misspelt_required_key_is_one_problem(self) -> None:
        (problem,) = check(Half, {"missing": 1, "numbr": 2})
        assert (problem.path, problem.hint) == ("numbr", "did you mean 'number'?")

    def test_keys_must_be_names(self) -> None:
        (problem,) = check(Open, {3: 1})
        assert problem.what == "unknown key"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.sampled_from("ax6"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy6a"), inner),
    max_leaves=8,
)
HINTS = st.sampled_from([hint for hint, _, _ in FITS if hint not in (Any, object)])


@given(HINTS, JSON)
@settings(deadline=None)  # a busy machine is no failure
def test_check_is_silent_exactly_where_build_succeeds(hint: Any, value: Any) -> None:
    problems = check(hint, value)
    if problems:
        with pytest.raises(ConfigError) as caught:
            build(hint, value)
        assert caught.value.problems == problems
        assert all(str(each) for each in problems)
    else:
        assert build(hint, fill_defaults(hint, value)) == build(hint, value)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (dict[int, float], "an object of an integer: a number"),
        (tuple[int, str], "a list of 2: an integer, a string"),
        (Literal["a", 1], '"a" or 1 (an integer)'),
        (Semiring, "a Semiring (type: log, max)"),
        (Point, "an object (arguments of Point)"),
        (Color, '"red" (a string) or 2 (an integer)'),
        (Any, "anything"),
    ],
)
def test_hints_are_described_in_words(hint: Any, words: str) -> None:
    assert describe(hint) == words
