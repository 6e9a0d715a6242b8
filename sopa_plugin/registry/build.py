"""The three things done with a config: `check`, `build`, `fill_defaults`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sopa_plugin.registry.nodes import LazyPart, Node, Part
from sopa_plugin.registry.problems import ConfigError, Problem
from sopa_plugin.registry.resolve import resolve


def check(kind: Any, config: Any, path: str = "") -> list[Problem]:
    """Every problem of `config` as a `kind` (a class or type hint); builds and reads nothing.

    `path` is where `config` is in a larger config, for the messages.
    """
    problems: list[Problem] = []
    resolve(kind, config, path, problems)
    return problems


def build(kind: Any, config: Any, /, **handed_over: Any) -> Any:
    """Checks `config` and builds it; raises `ConfigError` with every problem found.

    What is handed over goes to the constructor of `kind` alone, not to the parts inside it.
    """
    return build_at("", kind, config, handed_over)


def build_at(path: str, kind: Any, config: Any, handed_over: Mapping[str, Any]) -> Any:
    """`build`, for a config that is at `path` in a larger one."""
    node = _resolved(kind, config, path)
    if isinstance(node, Part):
        return node.build(**handed_over)
    if handed_over:
        raise TypeError(f"{', '.join(handed_over)}: nothing can be handed over to {kind}")
    return node.build()


def fill_defaults(kind: Any, config: Any) -> dict[str, Any]:
    """`config` with `type` and every default written out, at every level.

    Left out are the arguments that the builder hands over and defaults that JSON has nothing for.
    Local paths (`LocalPath`) that exist are made absolute, and `~` is written out. Raises
    `ConfigError` if `config` has problems; `check` finds none in the result, which builds the same
    thing.
    """
    node = _resolved(kind, config, "")
    filled = node.part.filled() if isinstance(node, LazyPart) else node.filled()
    return filled  # type: ignore[no-any-return]


def _resolved(kind: Any, config: Any, path: str) -> Node:
    problems: list[Problem] = []
    node = resolve(kind, config, path, problems)
    if problems:
        raise ConfigError(problems)
    return node
