"""From a type hint and a value of a config to a checked node, or to problems."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from enum import Enum
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from sopa_plugin.registry import hints
from sopa_plugin.registry.choose import Choice, choose
from sopa_plugin.registry.lazy import Lazy
from sopa_plugin.registry.nodes import Items, LazyPart, Leaf, Node, Part, PathLeaf, Table, is_json
from sopa_plugin.registry.problems import Problem, did_you_mean, found, join, nearest
from sopa_plugin.registry.registrable import Registrable
from sopa_plugin.registry.signatures import Argument, arguments

_NUMBERS: dict[Any, type] = {int: Integral, float: Real}
_WRONG_VALUE = "wrong value"  # of the right type
_UNUSED = Leaf(None)  # stands where a problem was found: nothing is built then


def resolve(hint: Any, value: Any, path: str, problems: list[Problem]) -> Node:
    """The node for `value` under `hint`; what does not fit is added to `problems`."""
    if hints.is_local_path(hint) and isinstance(value, str):
        return PathLeaf(value)
    node = _resolve(hints.plain_hint(hint), value, path, problems)
    number = node.value if isinstance(node, Leaf) and isinstance(node.value, Real) else None
    if number is not None and any(number not in bound for bound in hints.bounds(hint)):
        return _mismatch(hint, value, path, problems, _WRONG_VALUE)
    return node


def _resolve(hint: Any, value: Any, path: str, problems: list[Problem]) -> Node:
    kind = get_origin(hint) or hint
    if hint in hints.ANYTHING:
        return Leaf(value)
    if kind in hints.UNIONS:
        return _union(hint, value, path, problems)
    if hints.lazy_kind(hint) is not None:
        return _lazy(hints.lazy_kind(hint), value, path, problems)
    if kind in hints.LISTS or kind in hints.SETS or kind is tuple:
        return _items(hint, value, path, problems)
    if kind in hints.MAPPINGS:
        return _table(hint, value, path, problems)
    if hints.is_part(kind):
        return _part(kind, value, path, problems)
    return _scalar(hint, value, path, problems)


def _scalar(hint: Any, value: Any, path: str, problems: list[Problem]) -> Node:
    if get_origin(hint) is Literal:
        if any(value == each and type(value) is type(each) for each in get_args(hint)):
            return Leaf(value)
        return _mismatch(hint, value, path, problems, _WRONG_VALUE)
    if isinstance(hint, type) and issubclass(hint, Enum):
        for each in hint:
            if value is each or (value == each.value and type(value) is type(each.value)):
                return Leaf(each)
    elif hint in _NUMBERS:
        # a bool is an int to Python, not to a config
        if isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool):
            with suppress(OverflowError):  # an integer that no float can hold
                return Leaf(hint(value))
    elif hint is Path and isinstance(value, str):
        return Leaf(Path(value))
    elif _is_instance(value, get_origin(hint) or hint):
        return Leaf(value)
    return _mismatch(hint, value, path, problems)


def _is_instance(value: Any, kind: Any) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # not a class that has instances (a protocol, a Callable[...])
        return False


def _mismatch(
    hint: Any, value: Any, path: str, problems: list[Problem], what: str = "wrong type"
) -> Node:
    members = [hints.plain_hint(each) for each in hints.members(hint)]
    literals = [get_args(each) for each in members if get_origin(each) is Literal]
    advice = ""
    if isinstance(value, str):
        names = [each for each in itertools.chain(*literals) if isinstance(each, str)]
        advice = did_you_mean(value, names) or _how_to_write(hint, value)
    elif value is None:
        advice = "leave the key out for its default, or give a value"
    problems.append(Problem(path, what, hints.describe(hint), found(value), advice, mismatch=True))
    return _UNUSED


def _how_to_write(hint: Any, text: str) -> str:
    """Advice for a value that is written as text, or as Python would have it; else nothing."""
    plain = any(hints.plain_hint(each) in (int, float, bool) for each in hints.members(hint))
    if plain and _resolve_text(hint, text) is not None:
        return "remove the quotes"
    try:
        written = json.dumps(ast.literal_eval(text), allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ""
    return f"write {written}" if _resolve_text(hint, written) is not None else ""


def _resolve_text(hint: Any, text: str) -> Node | None:
    """The node for a number or truth value that is written as a string; None if it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    problems: list[Problem] = []
    node = None if isinstance(value, str) else resolve(hint, value, "", problems)
    return None if problems else node


def _union(hint: Any, value: Any, path: str, problems: list[Problem]) -> Node:
    members = list(get_args(hint))
    if value is None and type(None) in members:
        return Leaf(None)
    if any(_names_parts(each) for each in members):
        # a string is the name of a part, to be checked as one
        members = [each for each in members if hints.plain_hint(each) is not str]
    # an exact type first, so that 3 is an int of `float | int`
    members.sort(key=lambda each: hints.plain_hint(each) is not type(value))
    attempts: list[list[Problem]] = []
    for member in members:
        attempt: list[Problem] = []
        node = resolve(member, value, path, attempt)
        if not attempt:
            return node
        attempts.append(attempt)
    near = [each for each in attempts if not _is_mismatch(each, path)]
    if near:
        fewest = min(near, key=len)
        problems.extend(fewest)
        return _UNUSED
    whats = [each.what for attempt in attempts for each in attempt]
    what = _WRONG_VALUE if _WRONG_VALUE in whats else "wrong type"
    return _mismatch(hint, value, path, problems, what)


def _is_mismatch(problems: list[Problem], path: str) -> bool:
    return any(each.mismatch and each.path == path for each in problems)


def _names_parts(hint: Any) -> bool:
    kind = hints.lazy_kind(hint) or hints.plain_hint(hint)
    return isinstance(kind, type) and issubclass(kind, Registrable)


def _lazy(kind: Any, value: Any, path: str, problems: list[Problem]) -> Node:
    params = value.params if isinstance(value, Lazy) else value
    if not isinstance(params, str | Mapping):
        return _mismatch(kind, params, path, problems)
    part = resolve(kind, params, path, problems)
    return LazyPart(kind, params, part, path)


def _items(hint: Any, value: Any, path: str, problems: list[Problem]) -> Node:
    kind, args = get_origin(hint) or hint, get_args(hint)
    is_set = kind in hints.SETS
    accepted = (list, tuple, set, frozenset) if is_set else (list, tuple)
    fixed = kind is tuple and bool(args) and args[-1] is not Ellipsis
    if not isinstance(value, accepted) or (fixed and len(value) != len(args)):
        return _mismatch(hint, value, path, problems)
    each = args if fixed else (args[0] if args else Any,) * len(value)
    nodes = [
        resolve(hint, item, join(path, index), problems)
        for index, (hint, item) in enumerate(zip(each, value, strict=True))
    ]
    collection: Callable[[list[Any]], Any] = list
    if is_set:
        collection = frozenset if kind is frozenset else set
    elif kind is tuple:
        collection = tuple
    return Items(nodes, collection)


def _table(hint: Any, value: Any, path: str, problems: list[Problem]) -> Node:
    if not isinstance(value, Mapping):
        return _mismatch(hint, value, path, problems)
    key_hint, item_hint = get_args(hint) or (Any, Any)
    table: dict[Any, Node] = {}
    for key, item in value.items():
        where = join(path, key)
        node = _key(key_hint, key)
        if node is None:
            problems.append(Problem(where, "wrong key", hints.describe(key_hint), found(key)))
        elif node.build() in table:
            problems.append(Problem(where, "key given twice", found=found(key)))
        else:
            table[node.build()] = resolve(item_hint, item, where, problems)
    return Table(table)


def _key(hint: Any, key: Any) -> Node | None:
    """A key, converted to its hint: JSON has only strings for keys ("6" is 6)."""
    problems: list[Problem] = []
    node = resolve(hint, key, "", problems)
    if not problems:
        return node
    return _resolve_text(hint, key) if isinstance(key, str) else None


def _part(kind: type, value: Any, path: str, problems: list[Problem]) -> Node:
    if _is_instance(value, kind) or isinstance(value, getattr(kind, "also_accepts", ())):
        return Leaf(value)  # built already, by a program
    type_path = join(path, "type")
    if isinstance(value, str) and issubclass(kind, Registrable):
        value, type_path = {"type": value}, path
    if not isinstance(value, Mapping):
        return _mismatch(kind, value, path, problems)
    choice = choose(kind, value, path, type_path)
    if isinstance(choice, Problem):
        problems.append(choice)
        return _UNUSED
    params = {
        key: item for key, item in value.items() if key != "type" or not _reads_type(kind, choice)
    }
    return _arguments(choice, params, path, problems)


def _reads_type(kind: type, choice: Choice) -> bool:
    return bool(choice.type_name) or "type" not in choice.takes


def _arguments(choice: Choice, params: dict[str, Any], path: str, problems: list[Problem]) -> Node:
    given: dict[str, Node] = {}
    unsound: set[str] = set()
    for key, item in params.items():
        argument = choice.configurable.get(key)
        if argument is not None:
            before = len(problems)
            given[key] = _argument(argument, item, join(path, key), problems)
            if len(problems) > before:
                unsound.add(key)
    unsound.update(_missing(choice, params, path, problems))
    problems += [
        choice.refuse(key, item, path)
        for key, item in params.items()
        if key not in choice.configurable
    ]
    part = Part(
        choice.type_name,
        choice.registration,
        choice.takes,
        choice.handed_over,
        given,
        _defaults(choice, params),
        path,
    )
    problems.extend(_across(choice, part, unsound))
    return part


def _argument(argument: Argument, value: Any, path: str, problems: list[Problem]) -> Node:
    if value is None and argument.default is None:
        return Leaf(None)  # `x: int = None` takes null
    return resolve(argument.hint, value, path, problems)


def _missing(
    choice: Choice, params: dict[str, Any], path: str, problems: list[Problem]
) -> list[str]:
    missing = [
        each for key, each in choice.configurable.items() if each.required and key not in params
    ]
    # a misspelt required key is one fault, reported where it was found
    misspelt = {nearest(str(key), choice.configurable) for key in params.keys() - choice.takes}
    problems += [
        Problem(join(path, each.name), "required key is missing", hints.describe(each.hint))
        for each in missing
        if each.name not in misspelt
    ]
    return [each.name for each in missing]


def _defaults(choice: Choice, params: dict[str, Any]) -> dict[str, Any]:
    """What can be written in a config for the arguments that it leaves out."""
    filled: dict[str, Any] = {}
    for key, argument in choice.configurable.items():
        if key not in params and not argument.required:
            problems: list[Problem] = []
            node = _argument(argument, argument.default, "", problems)
            config = None if problems else node.filled()
            if not problems and is_json(config):
                filled[key] = config
    return filled


def _across(choice: Choice, part: Part, unsound: Collection[str]) -> list[Problem]:
    """What the class itself says against its arguments taken together.

    Of `unsound` ones, reported already, it is shown the default or, if there is none, nothing.
    """
    hook = getattr(choice.registration.target, "check_params", None)
    if hook is None:
        return []
    given = {key: node for key, node in part.given.items() if key not in unsound}
    sound = replace(part, given=given, defaults=_defaults(choice, given))
    problems = []
    with suppress(KeyError) if unsound else nullcontext():
        for answer in hook(sound.arguments()):
            key, message = ("", answer) if isinstance(answer, str) else answer
            where = join(part.path, key) if key else part.path
            # without a key, or with an unsound one, it may be about what is not there
            if not unsound or (key and key.split(".")[0] not in unsound):
                problems.append(Problem(where, message))
    return problems


def refused(make: Callable[..., Any], given: Mapping[str, Any]) -> list[Problem]:
    """What bounds and `Literal`s in the type hints of `make` say against arguments of a call."""
    problems: list[Problem] = []
    takes = arguments(make)
    for key, value in given.items():
        if key in takes and hints.is_restricted(takes[key].hint):
            _argument(takes[key], value, key, problems)
    return problems
