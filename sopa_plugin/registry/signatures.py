"""What a constructor takes: names, resolved type hints, defaults."""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

REQUIRED = inspect.Parameter.empty
_ARGS, _KWARGS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_BY_KEY = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Argument:
    """One argument of a constructor; `default` is `REQUIRED` where there is none."""

    name: str
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
                argument = Argument(each.name, hints.get(each.name, Any), each.default)
                taken.setdefault(each.name, argument)
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
    """Resolved type hints; a hint that cannot be resolved becomes `Any`, the others stay."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        source = inspect.unwrap(function)
        names = getattr(source, "__annotations__", {})
        scope = getattr(source, "__globals__", {})
        return {name: _hint(name, annotation, scope) for name, annotation in names.items()}


def _hint(name: str, annotation: Any, scope: dict[str, Any]) -> Any:
    alone = SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(alone, scope, include_extras=True)[name]
    except Exception as error:
        logger.debug("the type hint %r of %s is not checked: %s", annotation, name, error)
        return Any
