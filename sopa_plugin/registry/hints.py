"""Type hints: what a constructor takes, what a number may be, what a hint comes down to."""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import os
import re
import sys
import types
import typing
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NewType,
    Optional,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

UNIONS = (Union, types.UnionType)
LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection)
SETS = (set, frozenset, abc.Set, abc.MutableSet)
MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
ANYTHING = (Any, object)
SCALARS: dict[Any, str] = {
    types.NoneType: "null",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    Path: "a path",
}
"""What a config writes as one value, in words."""

REQUIRED = inspect.Parameter.empty
_ARGS, _KWARGS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_BY_KEY = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILE_SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet", ".vec", ".gz", ".zip")

T = TypeVar("T")
logger = logging.getLogger(__name__)


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
        limits = [(how.replace("_", " "), each) for how, each in vars(self).items()]
        words = " and ".join(f"{how} {each}" for how, each in limits if each is not None)
        return f"of {words}" if words.startswith("at ") else words


@dataclass(frozen=True)
class Local:
    """Says in a hint that a string may name a local file or folder, or something elsewhere."""

    may_be_on_hub: bool


LocalPath = Annotated[str, Local(may_be_on_hub=True)]
"""Hint of a string that may name a local file or folder; saved configs hold it absolute."""
LocalFile = Annotated[str, Local(may_be_on_hub=False)]
"""The same where a name without a scheme (`hf://`) can only be of a local file or folder."""


@dataclass(frozen=True)
class ConfigOf:
    """Says in a hint that an object is (a part of) the config of a `kind`, checked elsewhere."""

    kind: Any


class Deferred(Generic[T]):
    """Base of `Lazy`: what a hint `Lazy[T]` asks for is what T does."""


PositiveInt = Annotated[int, Bound(at_least=1)]
NonNegativeInt = Annotated[int, Bound(at_least=0)]
PositiveFloat = Annotated[float, Bound(above=0)]
NonNegativeFloat = Annotated[float, Bound(at_least=0)]
Rate = Annotated[float, Bound(at_least=0, below=1)]
"""The share of what a dropout drops."""


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


def notes(hint: Any, kind: type[T]) -> list[T]:
    """What `Annotated` says in a hint by notes of a `kind`: `Bound`, `Local` or `ConfigOf`."""
    return [note for note in unwrap(hint)[1] if isinstance(note, kind)]


def is_hub_id(path: str) -> bool:
    """Whether a path that is not there may be a name on the Hugging Face Hub.

    Not that of a file by its suffix, or of something in a folder that is there.
    """
    if not _HUB_ID.fullmatch(path) or path.lower().endswith(_FILE_SUFFIXES):
        return False
    folder = os.path.dirname(path)
    return not (folder and os.path.isdir(folder))


def is_restricted(hint: Any) -> bool:
    """Whether the hint says more of a value than its type: a bound or a `Literal` is in it."""
    plain = plain_hint(hint)
    if get_origin(plain) is Literal or notes(hint, Bound):
        return True
    inner = (*UNIONS, *LISTS, *SETS, *MAPPINGS, tuple)
    return get_origin(plain) in inner and any(map(is_restricted, get_args(plain)))


def undeferred(hint: Any) -> Any:
    """T of a hint `Lazy[T]`; any other hint itself, plain."""
    hint = plain_hint(hint)
    if is_subclass(hint, Deferred):
        return Any
    return get_args(hint)[0] if is_subclass(get_origin(hint), Deferred) else hint


def is_part(hint: Any) -> bool:
    """Whether a config gives such a value as an object holding a constructor's arguments."""
    if not isinstance(hint, type) or hint in (*ANYTHING, *SCALARS, *LISTS, *SETS, *MAPPINGS):
        return False
    if hint is tuple or issubclass(hint, Enum) or hint.__module__ == "collections.abc":
        return False  # the last are abstract
    return buildable(hint)


def is_subclass(target: object, kind: type) -> bool:
    return isinstance(target, type) and issubclass(target, kind)


def members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the hint alone."""
    hint = plain_hint(hint)
    return get_args(hint) if get_origin(hint) in UNIONS else (hint,)


@dataclass(frozen=True)
class Argument:
    """One argument of a constructor; `default` is `REQUIRED` where there is none."""

    hint: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


def arguments(make: Callable[..., Any]) -> dict[str, Argument]:
    """The arguments that a config can give to `make`, a class, classmethod or function.

    `**kwargs` of the constructor of a class stand for the arguments of the next constructor in the
    order of `super`, and so on; of an argument named twice the first hint and default count.
    Beside `*args`, in functions and classmethods they are left out, as `*args` are: what they would
    take has no name or type to check.
    """
    return dict(_arguments(make))


@functools.cache  # resolving hints is most of the time of a check
def _arguments(make: Callable[..., Any]) -> dict[str, Argument]:
    taken: dict[str, Argument] = {}
    for function in constructors(make) if isinstance(make, type) else [make]:
        parameters = list(inspect.signature(function).parameters.values())
        if isinstance(make, type):
            parameters = parameters[1:]  # self
        hints = _hints(function)
        for each in parameters:
            if each.kind in _BY_KEY:
                hint = hints.get(each.name, Any)
                if each.default is None:
                    hint = Optional[hint]  # noqa: UP045  # `x: int = None` takes null
                taken.setdefault(each.name, Argument(hint, each.default))
        kinds = [each.kind for each in parameters]
        if _KWARGS not in kinds or _ARGS in kinds:
            break
    return taken


def constructors(cls: type) -> list[Callable[..., Any]]:
    """What builds `cls`: every `__init__` in the order of `super`, up to one not written in Python.

    Where that is the first one, every `__new__`.
    """
    for name in ("__init__", "__new__"):
        functions = [getattr(each, name) for each in cls.__mro__ if name in vars(each)]
        written = list(itertools.takewhile(inspect.isfunction, functions))
        if written:
            return written
    return []


def buildable(cls: type) -> bool:
    """Whether the arguments of `cls` can be read: not so for classes written in C (a tensor)."""
    plain = all(getattr(cls, each) is getattr(object, each) for each in ("__init__", "__new__"))
    return cls is not object and (plain or bool(constructors(cls)))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Resolved type hints; one that cannot be, or is no type, becomes `Any`, the others stay."""
    source = inspect.unwrap(function)
    names, scope = getattr(source, "__annotations__", {}), getattr(source, "__globals__", {})
    return {name: _hint(name, annotation, scope) for name, annotation in names.items()}


def field_hints(cls: Any) -> dict[str, Any]:
    """The hints of a dataclass's fields, each resolved where its class is written."""
    return {
        name: _hint(name, annotation, vars(sys.modules[base.__module__]))
        for base in reversed(cls.__mro__)
        for name, annotation in vars(base).get("__annotations__", {}).items()
        if name in cls.__dataclass_fields__
    }


def _hint(name: str, annotation: Any, scope: dict[str, Any]) -> Any:
    alone = SimpleNamespace(__annotations__={name: annotation})
    try:
        hint = typing.get_type_hints(alone, scope, include_extras=True)[name]
        Optional[hint]  # noqa: UP045  # raises for what is no type
        return hint
    except Exception as error:
        logger.debug("the type hint %r of %s is not checked: %s", annotation, name, error)
        return Any
