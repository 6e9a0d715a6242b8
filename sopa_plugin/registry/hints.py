"""Type hints: what they come down to, and how a message says what they ask for."""

from __future__ import annotations

import types
from collections import abc
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin

from sopa_plugin.registry.lazy import Lazy
from sopa_plugin.registry.problems import found
from sopa_plugin.registry.registrable import Registrable, choices, is_base
from sopa_plugin.registry.signatures import buildable

_LOCAL_PATH = "a local file or folder, or the name of something elsewhere"
LocalPath = Annotated[str, _LOCAL_PATH]
"""Hint of a string that may name a local file or folder; saved configs hold it absolute."""


@dataclass(frozen=True)
class Bound:
    """What a number of a config may be, in its type hint: `Annotated[float, Bound(above=0)]`.

    Neither nan nor an infinite number is within any bound. The check of a config reports a number
    out of its bounds, and so does the constructor of a `Registrable` (`ValueError`).
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, number: Any) -> bool:
        return (
            number - number == 0  # finite, and of any size
            and (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        limits = {
            "at least": self.at_least,
            "above": self.above,
            "at most": self.at_most,
            "below": self.below,
        }
        words = " and ".join(f"{how} {each}" for how, each in limits.items() if each is not None)
        return f"of {words}" if words.startswith("at ") else words


PositiveInt = Annotated[int, Bound(at_least=1)]
NonNegativeInt = Annotated[int, Bound(at_least=0)]
PositiveFloat = Annotated[float, Bound(above=0)]
NonNegativeFloat = Annotated[float, Bound(at_least=0)]
Rate = Annotated[float, Bound(at_least=0, below=1)]
"""The share of what a dropout drops."""

UNIONS = (Union, types.UnionType)
LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection)
SETS = (set, frozenset, abc.Set, abc.MutableSet)
MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
ANYTHING = (Any, object)
_SCALARS: dict[Any, str] = {
    type(None): "null",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    Path: "a path",
}


def unwrap(hint: Any) -> tuple[Any, list[Any]]:
    """`hint` without its layers (NewType, Annotated, ...), and what `Annotated` says in them."""
    notes: list[Any] = []
    while True:
        if isinstance(hint, NewType):
            hint = hint.__supertype__
        elif isinstance(hint, TypeVar):
            hint = hint.__bound__ if hint.__bound__ is not None else Any
        elif get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            notes += more
        elif type(hint).__name__ == "TypeAliasType":  # `type X = ...`, from Python 3.12
            hint = hint.__value__
        elif hint is None:
            return type(None), notes
        else:
            return hint, notes


def plain_hint(hint: Any) -> Any:
    """`hint` without the layers that say nothing about the type of its values."""
    return unwrap(hint)[0]


def is_local_path(hint: Any) -> bool:
    return _LOCAL_PATH in unwrap(hint)[1]


def bounds(hint: Any) -> list[Bound]:
    return [note for note in unwrap(hint)[1] if isinstance(note, Bound)]


def is_restricted(hint: Any) -> bool:
    """Whether the hint says more of a value than its type: a bound or a `Literal` is in it."""
    plain = plain_hint(hint)
    if get_origin(plain) is Literal or bounds(hint):
        return True
    inner = (*UNIONS, *LISTS, *SETS, *MAPPINGS, tuple)
    return get_origin(plain) in inner and any(map(is_restricted, get_args(plain)))


def members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the hint alone."""
    hint = plain_hint(hint)
    return get_args(hint) if get_origin(hint) in UNIONS else (hint,)


def lazy_kind(hint: Any) -> Any:
    """T of a hint `Lazy[T]`; None for other hints."""
    hint = plain_hint(hint)
    if hint is Lazy:
        return Any
    return get_args(hint)[0] if get_origin(hint) is Lazy else None


def is_part(hint: Any) -> bool:
    """Whether a config gives such a value as an object holding a constructor's arguments."""
    if not isinstance(hint, type) or hint in ANYTHING or hint in _SCALARS:
        return False
    if hint in (*LISTS, *SETS, *MAPPINGS, tuple) or issubclass(hint, Enum):
        return False
    return issubclass(hint, Registrable) or buildable(hint)


def describe(hint: Any) -> str:
    """What a hint asks for, in words."""
    if is_local_path(hint):
        return "a path (a string)"
    within = bounds(hint)
    hint = plain_hint(hint)
    if within:
        return " and ".join([f"{describe(hint)} {within[0]}", *map(str, within[1:])])
    origin, args = get_origin(hint), get_args(hint)
    kind = origin or hint
    if hint in _SCALARS:
        return _SCALARS[hint]
    if hint in ANYTHING:
        return "anything"
    if origin in UNIONS:
        return _either(describe(each) for each in args if _in_config(each)) or "nothing"
    if origin is Literal:
        return _either(f'"{each}"' if isinstance(each, str) else found(each) for each in args)
    if kind in LISTS or kind in SETS:
        return f"a list of {describe(args[0])}" if args else "a list"
    if kind is tuple:
        return _describe_tuple(args)
    if kind in MAPPINGS:
        return f"an object of {describe(args[0])}: {describe(args[1])}" if args else "an object"
    if lazy_kind(hint) is not None:
        return describe(lazy_kind(hint))
    if isinstance(kind, type):
        return _describe_class(kind)
    return str(hint)


def _describe_tuple(args: tuple[Any, ...]) -> str:
    if not args:
        return "a list"
    if args[-1] is Ellipsis:
        return f"a list of {describe(args[0])}"
    return f"a list of {len(args)}: " + ", ".join(describe(each) for each in args)


def _describe_class(kind: type) -> str:
    if issubclass(kind, Enum):
        return _either(found(each.value) for each in kind)
    if issubclass(kind, Registrable) and is_base(kind):
        return f"a {kind.__name__} (type: {', '.join(sorted(choices(kind))) or 'none known'})"
    if is_part(kind):
        return f"an object (arguments of {kind.__name__})"
    return f"a Python {kind.__name__} (not to be given in a config)"


def _in_config(hint: Any) -> bool:
    """Whether JSON can hold a value of that hint (a tensor or function comes from a program)."""
    kind = get_origin(plain_hint(hint)) or plain_hint(hint)
    if not isinstance(kind, type) or kind in _SCALARS or is_part(kind) or issubclass(kind, Enum):
        return kind is not abc.Callable
    return kind in (*LISTS, *SETS, *MAPPINGS, tuple, object, Lazy, types.UnionType)


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))
