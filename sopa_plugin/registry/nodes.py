"""A checked config as a tree: every node can be built, or written out with its defaults.

`resolve` makes the tree in one walk over config and type hints, so checking, building and filling
in defaults cannot disagree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from sopa_plugin.errors import UserError
from sopa_plugin.registry.lazy import Lazy
from sopa_plugin.registry.problems import ConfigError, Problem
from sopa_plugin.registry.registrable import Registration
from sopa_plugin.registry.signatures import Argument


class Node(Protocol):
    """A part of a checked config."""

    def build(self) -> Any:
        """The Python value, parts built."""

    def filled(self) -> Any:
        """The config, every default written out."""


@dataclass(frozen=True)
class Leaf:
    """A plain value, already converted to its type hint."""

    value: Any

    def build(self) -> Any:
        return self.value

    def filled(self) -> Any:
        return as_json(self.value)


@dataclass(frozen=True)
class PathLeaf:
    """A local path, or the name of something elsewhere; what exists here is written absolute.

    A `~` at its beginning is the home folder.
    """

    value: str

    def build(self) -> str:
        return os.path.expanduser(self.value)

    def filled(self) -> str:
        path = self.build()
        return os.path.abspath(path) if os.path.exists(path) else path


@dataclass(frozen=True)
class Items:
    """A list, tuple or set."""

    items: list[Node]
    collection: Callable[[list[Any]], Any]

    def build(self) -> Any:
        return self.collection([item.build() for item in self.items])

    def filled(self) -> list[Any]:
        return [item.filled() for item in self.items]


@dataclass(frozen=True)
class Table:
    """An object with free keys, converted to their type hint."""

    items: dict[Any, Node]

    def build(self) -> dict[Any, Any]:
        return {key: item.build() for key, item in self.items.items()}

    def filled(self) -> dict[str, Any]:
        return {str(as_json(key)): item.filled() for key, item in self.items.items()}


@dataclass(frozen=True)
class Part:
    """An object that is built by calling a class.

    Attributes:
        type_name: what `type` says; "" for a class that is not chosen by name.
        registration: what is called.
        takes: the arguments of the call.
        handed_over: the arguments among them that the builder supplies.
        given: what the config says.
        defaults: what the config leaves out and can be written in it.
        path: where the part is in the config.
    """

    type_name: str
    registration: Registration
    takes: Mapping[str, Argument]
    handed_over: frozenset[str]
    given: dict[str, Node]
    defaults: dict[str, Any] = field(default_factory=dict)
    path: str = ""

    def build(self, **handed_over: Any) -> Any:
        """Builds the part; what is handed over and not taken by this implementation is left out.

        Raises `TypeError` if an argument is handed over that none of the implementations names, or
        if one is missing, and `ConfigError` if the constructor refuses a value (`ValueError`).
        """
        name = self.type_name or getattr(self.registration.target, "__name__", "part")
        unknown = handed_over.keys() - self.takes.keys() - self.handed_over
        if unknown:
            raise TypeError(f"{name} takes no {', '.join(sorted(unknown))}")
        call = {key: node.build() for key, node in self.given.items()}
        call |= {key: value for key, value in handed_over.items() if key in self.takes}
        missing = [each.name for each in self.takes.values() if each.required]
        missing = [key for key in missing if key not in call]
        if missing:
            raise TypeError(
                f"{self.path or name}: {', '.join(missing)} must be handed over: pass it to "
                "from_params, or annotate the part as Lazy and pass it to construct"
            )
        try:
            return self.registration.make(**call)
        except UserError:
            raise
        except ValueError as error:
            problem = Problem(self.path, f"'{name}' cannot be built", hint=str(error))
            raise ConfigError([problem]) from error

    def filled(self) -> dict[str, Any]:
        params = {"type": self.type_name} if self.type_name else {}
        return params | self.arguments()

    def arguments(self) -> dict[str, Any]:
        """Every argument that has a value, in the order of the constructor."""
        params: dict[str, Any] = {}
        for key in self.takes:
            if key in self.given:
                params[key] = self.given[key].filled()
            elif key in self.defaults:
                params[key] = self.defaults[key]
        return params


@dataclass(frozen=True)
class LazyPart:
    """A part that is checked now and built later, by its owner."""

    kind: Any
    params: Any
    part: Node
    path: str

    def build(self) -> Lazy[Any]:
        return Lazy(self.kind, self.params, self.path)

    def filled(self) -> Any:
        return self.part.filled()


def as_json(value: Any) -> Any:
    """`value` as JSON has it (lists, string keys); what JSON has nothing for is left as it is."""
    if isinstance(value, Enum):
        return as_json(value.value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Lazy):
        return value.params
    if isinstance(value, Mapping):
        return {str(as_json(key)): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((as_json(item) for item in value), key=str)
    return value


def is_json(value: Any) -> bool:
    """Whether `value` can be written as JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
