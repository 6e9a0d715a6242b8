"""`-o a.b=value`: changes to a config from the command line, checked against its type hints."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from sopa_plugin.registry import hints
from sopa_plugin.registry.choose import Choice, choose, takes_type
from sopa_plugin.registry.nodes import as_json
from sopa_plugin.registry.problems import ConfigError, Problem, found, join
from sopa_plugin.registry.registrable import Registrable
from sopa_plugin.registry.resolve import resolve

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Override:
    """One `a.b=value`, read."""

    keys: tuple[str, ...]
    value: Any

    @property
    def depth(self) -> int:
        """How deep the part is that it changes: its `type` is one with the part itself."""
        return len(self.keys) - (self.keys[-1] == "type")


class _Refused(Exception):
    """Carries the problem of one override out of the walk down its path."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def apply_overrides(kind: Any, config: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of `config` with `overrides` applied; `config` itself stays as it is.

    The value is JSON if it parses, else a string. A key that the config left out may be set if
    the part accepts it; list items are numbered from 0. A new `type` (or the string that stands
    for it) drops the arguments of the old one, which is logged. Changes to a part come after
    changes of its type, otherwise the order is as given.

    Arguments:
        kind: the class or type hint of the whole config.
        config: a config, as `load_config` gives it.
        overrides: `a.b=value`.

    Raises `ConfigError` for an unknown key and for what is no override, together with every
    problem that the config has without those overrides.
    """
    problems: list[Problem] = []
    config = copy.deepcopy(config)
    read = [_read(text, problems) for text in overrides]
    for override in sorted(filter(None, read), key=lambda each: each.depth):
        try:
            config = _put(kind, config, override.keys, override.value, "")
        except _Refused as refused:
            problems.append(refused.problem)
    if problems:
        resolve(kind, config, "", problems)
        raise ConfigError(problems)
    return config  # type: ignore[no-any-return]


def _read(text: str, problems: list[Problem]) -> Override | None:
    path, equals, value = text.partition("=")
    keys = tuple(path.strip().split("."))
    if not equals or not all(keys):
        problems.append(Problem(f"-o {text}", "not an override", "a.b=value, as lr=0.1"))
        return None
    try:
        return Override(keys, json.loads(value, parse_constant=_refuse_constant))
    except ValueError:
        return Override(keys, value)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _put(hint: Any, old: Any, keys: tuple[str, ...], value: Any, path: str) -> Any:
    """`old`, a config of `hint`, with `value` put at `keys` below it."""
    if not keys:
        return _replace(hint, old, value, path)
    member = _member(hint, old, keys[0])
    if isinstance(old, list) and member is not None:
        return _put_item(member, old, keys, value, path)
    if hints.is_part(get_origin(member) or member):
        return _put_argument(get_origin(member) or member, old, keys, value, path)
    if member is None or not isinstance(old, Mapping | None):
        raise _Refused(_no_keys(old, keys[0], path))
    table = dict(old or {})
    key = next((each for each in table if str(each) == keys[0]), keys[0])
    item_hint = (get_args(member) or (Any, Any))[1]
    return table | {key: _put(item_hint, table.get(key), keys[1:], value, join(path, key))}


def _no_keys(old: Any, key: str, path: str) -> Problem:
    what = f"{path or 'the config'} has no keys"
    return Problem(join(path, key), what, f"{path}=... to replace it", found(old))


def _member(hint: Any, old: Any, key: str) -> Any:
    """The member of a union (or the hint itself) that has a place for `key`; None if none has."""
    members = [hints.plain_hint(hints.lazy_kind(each) or each) for each in hints.members(hint)]
    kinds = {each: get_origin(each) or each for each in members}
    if isinstance(old, list):
        wanted = [each for each in members if kinds[each] in (*hints.LISTS, tuple, Any)]
        return wanted[0] if wanted else None
    parts = [each for each in members if hints.is_part(kinds[each])]
    accepting = [each for each in parts if _accepts(kinds[each], old, key)]
    free = [each for each in members if kinds[each] in (*hints.MAPPINGS, *hints.ANYTHING)]
    return next(iter([*accepting, *free, *parts]), None)


def _accepts(kind: type, old: Any, key: str) -> bool:
    choice = choose(kind, _params(old), "", "")
    return isinstance(choice, Choice) and (key == "type" or key in choice.configurable)


def _params(config: Any) -> dict[str, Any]:
    """The config of a part as an object: a string is its `type`."""
    if isinstance(config, str):
        return {"type": config}
    return dict(config) if isinstance(config, Mapping) else {}


def _put_argument(kind: type, old: Any, keys: tuple[str, ...], value: Any, path: str) -> Any:
    key, rest = keys[0], keys[1:]
    if not isinstance(old, Mapping | None | (str if issubclass(kind, Registrable) else None)):
        raise _Refused(_no_keys(old, key, path))
    if key == "type" and not rest and takes_type(kind):
        return _retype(kind, old, value, path)
    params = _params(old)
    choice = choose(kind, params, path, path)
    if isinstance(choice, Problem):  # of an unknown type no key is known; `check` reports it
        return params | {key: _put(Any, params.get(key), rest, value, join(path, key))}
    argument = choice.configurable.get(key)
    if argument is None:
        raise _Refused(choice.refuse(key, {} if rest else value, path))
    before = params.get(key, _default(argument.default))
    return params | {key: _put(argument.hint, before, rest, value, join(path, key))}


def _default(default: Any) -> Any:
    """A default that a key can be put into."""
    config = as_json(default)
    return config if isinstance(config, Mapping | str | list) else None


def _put_item(hint: Any, old: list[Any], keys: tuple[str, ...], value: Any, path: str) -> Any:
    where = join(path, keys[0])
    if not keys[0].isdecimal() or int(keys[0]) >= len(old):
        expected = f"the number of one of the {len(old)} items, from 0"
        raise _Refused(Problem(where, "no such item", expected, hint="or give the list whole"))
    index = int(keys[0])
    args = get_args(hint) or (Any,)
    item_hint = args[index] if get_origin(hint) is tuple and index < len(args) else args[0]
    new = _put(args[0] if item_hint is Ellipsis else item_hint, old[index], keys[1:], value, where)
    return [*old[:index], new, *old[index + 1 :]]


def _replace(hint: Any, old: Any, value: Any, path: str) -> Any:
    """`value` in place of `old`: where that is the name of a part, its `type` changes."""
    for member in hints.members(hint):
        kind = hints.plain_hint(hints.lazy_kind(member) or member)
        if isinstance(kind, type) and issubclass(kind, Registrable):
            if isinstance(value, str):
                return _retype(kind, old, value, path)
            if isinstance(value, Mapping) and isinstance(value.get("type"), str):
                _retype(kind, old, value["type"], path)  # says what is dropped
    return value


def _retype(kind: type, old: Any, name: Any, path: str) -> dict[str, Any]:
    """The config with another `type`, without the arguments of the old one."""
    params = _params(old)
    before = params.pop("type", getattr(kind, "default_implementation", None))
    if name == before:
        return {"type": name} | params
    if params:
        logger.warning(
            "%s is now '%s': the arguments of '%s' are dropped: %s",
            path or "the config",
            name,
            before,
            ", ".join(f"{key}={json.dumps(value, default=str)}" for key, value in params.items()),
        )
    return {"type": name}
