"""What a constructor takes: names, resolved type hints, defaults."""

from __future__ import annotations

import functools
import inspect
import logging
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

REQUIRED = inspect.Parameter.empty
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

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

    `*args` and `**kwargs` are left out: what they would take has no name or type to check.
    """
    return dict(_arguments(make))


@functools.cache  # resolving hints is most of the time of a check
def _arguments(make: Callable[..., Any]) -> dict[str, Argument]:
    function = constructor_of(make) if isinstance(make, type) else make
    if function is None:
        return {}
    parameters = list(inspect.signature(function).parameters.values())
    if isinstance(make, type):
        parameters = parameters[1:]  # self
    hints = _hints(function)
    return {
        each.name: Argument(each.name, hints.get(each.name, Any), each.default)
        for each in parameters
        if each.kind not in _VARIADIC
    }


def constructor_of(cls: type) -> Callable[..., Any] | None:
    """The `__init__` (or `__new__`) written in Python that `cls` is built by, if there is one."""
    for function in (cls.__init__, cls.__new__):  # type: ignore[misc]
        if inspect.isfunction(function):
            return function
    return None


def buildable(cls: type) -> bool:
    """Whether the arguments of `cls` can be read: not so for classes written in C (a tensor)."""
    plain = all(getattr(cls, each) is getattr(object, each) for each in ("__init__", "__new__"))
    return cls is not object and (plain or constructor_of(cls) is not None)


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
