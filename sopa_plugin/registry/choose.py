"""Which class an object of a config stands for: its `type`, the default, or the hint itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sopa_plugin.registry.problems import Problem, did_you_mean, found, join
from sopa_plugin.registry.registrable import (
    DOTTED,
    Registrable,
    Registration,
    choices,
    is_base,
    lookup,
    registration_of,
)
from sopa_plugin.registry.signatures import Argument, arguments


@dataclass(frozen=True)
class Choice:
    """A class that a config chose.

    Attributes:
        type_name: what `type` says or would say; "" for a class that is not chosen by name.
        registration: how it is built.
        takes: the arguments of its constructor.
        handed_over: the names that its builder supplies.
    """

    type_name: str
    registration: Registration
    takes: Mapping[str, Argument]
    handed_over: frozenset[str]

    @property
    def configurable(self) -> dict[str, Argument]:
        """The arguments that a config may give."""
        return {key: each for key, each in self.takes.items() if key not in self.handed_over}

    def refuse(self, key: Any, value: Any, path: str) -> Problem:
        """The problem of a key that a config may not give."""
        where, known = join(path, key), sorted(self.configurable)
        if key in self.handed_over:
            advice = "it is handed over by the builder; remove it"
            return Problem(where, "not to be configured", found=found(value), hint=advice)
        owner = self.type_name or getattr(self.registration.target, "__name__", "this part")
        expected = f"a key of {owner}: " + (", ".join(known) or "it has none")
        advice = did_you_mean(str(key), known) or "remove it"
        return Problem(where, "unknown key", expected, found(value), advice)


def takes_type(kind: type) -> bool:
    """Whether the key `type` chooses the class; not so where it is an argument of the class."""
    return issubclass(kind, Registrable) or "type" not in arguments(kind)


def choose(kind: type, params: Mapping[str, Any], path: str, type_path: str) -> Choice | Problem:
    """The class that builds a `kind` from `params`, or what is wrong with their `type`."""
    if not takes_type(kind) or "type" not in params:
        return _without_type(kind, path)
    name = params["type"]
    if not isinstance(name, str):
        return Problem(type_path, "wrong type", "a name (a string)", found(name))
    if not issubclass(kind, Registrable) and not DOTTED.fullmatch(name):
        expected = f"no key 'type', or the dotted path of a subclass of {kind.__name__}"
        return Problem(type_path, f"no {kind.__name__} has a name", expected, f'"{name}"')
    registration = lookup(kind, name, type_path)
    return registration if isinstance(registration, Problem) else _chosen(kind, name, registration)


def _without_type(kind: type, path: str) -> Choice | Problem:
    if not issubclass(kind, Registrable):
        return _chosen(kind, "", Registration("", kind))
    if not is_base(kind):
        registration = registration_of(kind)
        return _chosen(kind, registration.name, registration)
    name = kind.default_implementation
    if name is None:
        expected = "one of " + (", ".join(sorted(choices(kind))) or "(none is registered)")
        hint = f"say which {kind.__name__} it is: {{type: ...}}"
        return Problem(join(path, "type"), "required key is missing", expected, hint=hint)
    registration_or_problem = lookup(kind, name, join(path, "type"))
    if isinstance(registration_or_problem, Problem):
        return registration_or_problem
    return _chosen(kind, name, registration_or_problem)


def _chosen(kind: type, name: str, registration: Registration) -> Choice:
    handed_over = frozenset(getattr(kind, "handed_over", ()))
    handed_over |= frozenset(getattr(registration.target, "handed_over", ()))
    return Choice(name, registration, arguments(registration.make), handed_over)
