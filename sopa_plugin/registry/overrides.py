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
from sopa_plugin.registry.params import check, known_defaults
from sopa_plugin.registry.problems import ConfigError, Problem, found, join

Default = Callable[[], Any]

logger = logging.getLogger(__name__)
_NUMBER = re.compile(r"\s*-?\d+(\.\d+)?([eE][-+]?\d+)?\s*")


def apply_overrides(kind: Any, config: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of `config` with `overrides` applied; `config` itself stays as it is.

    The value is JSON if it parses, else a string. What the config left out begins as its default;
    list items are numbered from 0. A new `type` (or the string that stands for it) drops the
    arguments of the old one, which is logged. Changes to a part come after changes of its type,
    otherwise the order is as given. Whether the result is a config of `kind`, `check` says.

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
            default = functools.cache(functools.partial(known_defaults, kind, changed))
            changed = _put(changed, default, keys, value, "")
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


def _put(old: Any, default: Default, keys: Sequence[str], value: Any, path: str) -> Any:
    """`old` with `value` put at `keys` below it; `default` is what the config as it is means."""
    if not keys:
        named = value.get("type") if isinstance(value, Mapping) else value
        if not isinstance(named, str) or not isinstance(old, Mapping) or not _type(old, default):
            return value
        kept = _retyped(old, default, named, path)  # says what is dropped
        return kept if isinstance(value, str) else value
    key, rest, where = keys[0], keys[1:], join(path, keys[0])

    def below() -> Any:
        match default():
            case dict(items):
                return items.get(key)
            case list(items):
                return {str(index): item for index, item in enumerate(items)}.get(key)
        return None

    if isinstance(old, list):
        if not key.isdecimal() or int(key) >= len(old):
            expected = f"the number of one of the {len(old)} items, from 0"
            hint = "or give the list whole"
            raise ConfigError([Problem(where, "no such item", expected, hint=hint)])
        index = int(key)
        return [*old[:index], _put(old[index], below, rest, value, where), *old[index + 1 :]]
    if not isinstance(old, str | Mapping | None):
        what = f"{path or 'the config'} has no keys"
        raise ConfigError([Problem(where, what, f"{path}=... to replace it", found(old))])
    if key == "type" and not rest:
        return _retyped(old, default, value, path)
    table = {"type": old} if isinstance(old, str) else dict(old or {})
    key = next((each for each in table if str(each) == key), key)
    begun = below() if key not in table and rest and rest != ["type"] else table.get(key)
    return table | {key: _put(begun, below, rest, value, where)}


def _type(part: Any, default: Default) -> str | None:
    """The `type` of a part, or of its default; None of what is chosen by no name."""
    name = part.get("type") if isinstance(part, Mapping) else part
    if name is None and isinstance(default(), Mapping):
        name = default().get("type")
    return name if isinstance(name, str) else None


def _retyped(old: Any, default: Default, name: Any, path: str) -> dict[str, Any]:
    """The config `old` of a part with another `type`, without the arguments of the old one."""
    before = _type(old, default)
    params = dict(old) if isinstance(old, Mapping) else {}
    params.pop("type", None)
    if before is None or name == before:
        return {"type": name} | (default() if old is None and before else params)
    if params:
        dropped = [f"{key}={json.dumps(value, default=str)}" for key, value in params.items()]
        where = path or "the config"
        message = "%s is now %s: the arguments of '%s' are dropped: %s"
        logger.warning(message, where, shortened(name), before, ", ".join(dropped))
    return {"type": name}
