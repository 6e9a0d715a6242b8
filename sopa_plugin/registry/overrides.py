"""`-o a.b=value`: changes to a config from the command line."""

from __future__ import annotations

import copy
import functools
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sopa_plugin.errors import shortened
from sopa_plugin.files import DEEPEST, parse_json
from sopa_plugin.registry.names import Part, lookup
from sopa_plugin.registry.params import Walk, check
from sopa_plugin.registry.problems import ConfigError, Problem, found

Before = Callable[[], Walk]
"""Of the config as it is before an override."""

logger = logging.getLogger(__name__)
_NUMBER = re.compile(r"\s*-?\d+(\.\d+)?([eE][-+]?\d+)?\s*")


def apply_overrides(kind: Any, config: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of `config` with `overrides` applied; `config` itself stays as it is.

    The value is JSON if it parses, else a string. What the config left out begins as its default;
    list items are numbered from 0. A new `type` (or the string that stands for it) drops the
    arguments of the old one but those that the new one requires, which is logged. Changes to a
    part come after changes of its type, otherwise the order is as given. Whether the result is a
    config of `kind`, `check` says.

    Arguments:
        kind: the class or type hint of the whole config.
        config: a config, as `load_config` gives it.
        overrides: `a.b=value`.

    Raises `ConfigError` for what is no override or has no place in the config, together with every
    problem that the config has without those overrides; `TypeError` for a single override.
    """
    if isinstance(overrides, str):
        raise TypeError(f"overrides: expected a list, found one string; give [{overrides!r}]")
    problems: list[Problem] = []
    changed = copy.deepcopy(config)
    read = [each for each in (_read(text, problems) for text in overrides) if each is not None]
    # the type of a part is one with the part itself
    for keys, value in sorted(read, key=lambda each: len(each[0]) - (each[0][-1] == "type")):
        try:
            before = functools.cache(functools.partial(Walk, kind, changed))
            changed = _put(changed, before, keys, value, [])
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError([*problems, *check(kind, changed)])
    return changed  # type: ignore[no-any-return]


def _read(text: str, problems: list[Problem]) -> tuple[list[str], Any] | None:
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys) or len(keys) > DEEPEST:
        expected = "a.b=value, as trainer.optimizer.lr=0.1"
        problems.append(Problem(f"-o {text}", "not an override", expected))
        return None
    try:
        return keys, parse_json(value)
    except ValueError as error:
        if not value.lstrip().startswith(tuple('{["')) and not _NUMBER.fullmatch(value):
            return keys, value
        expected = """{"key": "text", "other": [1, true, null]}, or the text itself as "text" """
        what = f"{shortened(value)} is not JSON: {error}"
        problems.append(Problem(path.strip(), what, expected.strip()))
        return None


def _put(old: Any, before: Before, keys: Sequence[str], value: Any, path: Sequence[str]) -> Any:
    """`old`, which `before` has at `path`, with `value` put at `keys` below it."""
    if not keys:
        named = value.get("type") if isinstance(value, Mapping) else value
        there = isinstance(old, Mapping) and isinstance(named, str) and _type(old, before, path)
        whole = not isinstance(value, str)
        kept = _retyped(old, before, named, path, whole) if there else value  # says what is dropped
        return value if whole else kept
    key, rest, where = keys[0], keys[1:], [*path, keys[0]]
    if isinstance(old, list):
        if not key.isdecimal() or int(key) >= len(old):
            expected = f"the number of one of the {len(old)} items, from 0"
            hint = "or give the list whole"
            raise ConfigError([Problem(".".join(where), "no such item", expected, hint=hint)])
        index = int(key)
        return [*old[:index], _put(old[index], before, rest, value, where), *old[index + 1 :]]
    if not isinstance(old, str | Mapping | None):
        name = ".".join(path)
        what, instead = f"{name or 'the config'} has no keys", f"{name}=... to replace it"
        raise ConfigError([Problem(".".join(where), what, instead, found(old))])
    if key == "type" and not rest:
        return _retyped(old, before, value, path)
    table = {"type": old} if isinstance(old, str) else dict(old or {})
    key = next((each for each in table if str(each) == key), key)
    begun = table.get(key)
    if key not in table and rest and rest != ["type"]:
        begun = _meant(before, where)
    return table | {key: _put(begun, before, rest, value, where)}


def _meant(before: Before, path: Sequence[str]) -> Any:
    """What the config means at a path, with all defaults."""
    meant = before().node.filled
    for key in path:
        if isinstance(meant, list):
            meant = {str(index): item for index, item in enumerate(meant)}
        meant = meant.get(key) if isinstance(meant, dict) else None
    return meant


def _type(part: Any, before: Before, path: Sequence[str]) -> str | None:
    """The `type` of a part, or of its default; None of what is chosen by no name."""
    name = part.get("type") if isinstance(part, Mapping) else part
    if name is None and isinstance(meant := _meant(before, path), Mapping):
        name = meant.get("type")
    return name if isinstance(name, str) else None


def _retyped(
    old: Any, before: Before, name: Any, path: Sequence[str], whole: bool = False
) -> dict[str, Any]:
    """The config `old` of a part with another `type`, and of its arguments what that one requires.

    Nothing is kept where the part is replaced by a `whole` one.
    """
    former, where = _type(old, before, path), ".".join(path)
    params = dict(old) if isinstance(old, Mapping) else {}
    params.pop("type", None)
    if former is None or name == former:
        return {"type": name} | (_meant(before, path) if old is None and former else params)
    part = before().parts.get(where)
    new = lookup(part.kind, name, where) if part and isinstance(name, str) else None
    takes = new.configurable if isinstance(new, Part) and not whole else {}
    kept = {key: each for key, each in params.items() if key in takes and takes[key].required}
    if dropped := {key: each for key, each in params.items() if key not in kept}:
        logger.warning(
            "%s is now %s: the arguments of '%s' are dropped: %s%s",
            *(where or "the config", shortened(name), former, _written(dropped)),
            f"; kept, since it needs them: {_written(kept)}" if kept else "",
        )
    return {"type": name} | kept


def _written(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value, default=str)}" for key, value in params.items())
