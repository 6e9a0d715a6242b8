"""From names and params to parts: registering, choosing, checking a config whole, building it.

One `Walk` over a config and type hints gives both every problem and, where there is none, the nodes
that build and that write the defaults out; so these three cannot disagree.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import itertools
import json
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin

from sopa_plugin.files import parse_json
from sopa_plugin.registry.hints import (
    ANYTHING,
    LISTS,
    MAPPINGS,
    SETS,
    UNIONS,
    Bound,
    ConfigOf,
    Deferred,
    Local,
    arguments,
    field_hints,
    is_part,
    is_restricted,
    is_subclass,
    members,
    notes,
    plain_hint,
    undeferred,
)
from sopa_plugin.registry.names import (
    Part,
    choices,
    choose,
    is_registrable,
    lookup,
    part_of,
    registered,
    takes_type,
)
from sopa_plugin.registry.problems import (
    ConfigError,
    Problem,
    describe,
    did_you_mean,
    found,
    join,
    nearest,
)

T = TypeVar("T")
Target = TypeVar("Target", bound=Callable[..., Any])

_WRONG_VALUE = "wrong value"  # of the right type


class Registrable:
    """Mixin of base classes whose implementations a config names by `type`.

    A base class inherits it directly (`class Seq2VecEncoder(nn.Module, Registrable)`), and its
    implementations register under it. A subclass may define
    `check_params(cls, params: dict) -> Iterable[str | tuple[str, str]]`, which yields messages or
    `(key, message)` for what type hints cannot say (one argument ruling out another). It gets
    every argument as `fill_defaults` writes it, and reads nothing. An argument that does not fit
    its hint has its default there, or is absent: a `KeyError` then ends the check of that part.

    A constructor that takes `**kwargs` (and no `*args`) and hands them on to `super().__init__`
    need not repeat the arguments of the base: a config may give them all, by the hints and
    defaults of the base. It names those that have another hint or default here; one that itself
    sets an argument of the base spells out the others instead.

    A constructor called from Python raises `ValueError` for an argument that its hint rules out by
    a `Bound` or a `Literal`; of other types it checks nothing.

    Attributes:
        default_implementation: the name used where a config gives no `type`.
        handed_over: constructor arguments that the builder supplies (dimensions, labels,
            vocabulary); a config never gives them.
        also_accepts: classes of other libraries whose subclasses a dotted `type` may name too
            (`torch.optim.RAdam`); implementations registered by name may be anything callable.
    """

    default_implementation: ClassVar[str | None] = None
    handed_over: ClassVar[frozenset[str]] = frozenset()
    also_accepts: ClassVar[tuple[type, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Registrable in cls.__bases__:
            registered.setdefault(cls, {})
        if inspect.isfunction(vars(cls).get("__init__")):
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]

    @classmethod
    def register(
        cls, name: str, constructor: str | None = None, exist_ok: bool = False
    ) -> Callable[[Target], Target]:
        """Decorator that makes a class known under `name` as an implementation of this base.

        Arguments:
            name: what a config gives as `type`.
            constructor: a classmethod to build with, instead of the class itself.
            exist_ok: replace what had this name before; else that is a `ConfigError`.

        The class of another library is registered by a call: `Optimizer.register("adam")(Adam)`.
        """
        names = registered.setdefault(cls, {})

        def decorate(target: Target) -> Target:
            before = names.get(name)
            if before is not None and before.target is not target and not exist_ok:
                raise ConfigError(
                    f"cannot register {_full_name(target)} as the {cls.__name__} '{name}': "
                    f"the name belongs to {_full_name(before.target)}; "
                    "take another, or pass exist_ok=True to replace it"
                )
            if constructor is not None and not callable(getattr(target, constructor, None)):
                raise ConfigError(f"{_full_name(target)} has no constructor '{constructor}'")
            if "__dataclass_fields__" in vars(target):  # had no constructor in `__init_subclass__`
                init: Any = getattr(target, "__init__")  # noqa: B009
                init.__annotations__ |= field_hints(target)
                target.__init__ = _checked(init)  # type: ignore[method-assign]
            names[name] = Part(cls, name, target, constructor)
            return target

        return decorate

    @classmethod
    def by_name(cls, name: str) -> type[Self]:
        """The implementation of that name, or at that dotted path; `ConfigError` if none is."""
        part = lookup(cls, name, "")
        if isinstance(part, Problem):
            raise ConfigError([part])
        return part.target  # type: ignore[return-value]

    @classmethod
    def registered_name(cls) -> str:
        """The name that this very class is registered under, "" if it is not."""
        return part_of(cls).name

    @classmethod
    def list_available(cls) -> list[str]:
        """The registered names in alphabetical order, but the default first."""
        return sorted(choices(cls), key=lambda name: (name != cls.default_implementation, name))

    @classmethod
    def from_params(cls, params: str | Mapping[str, Any], /, **handed_over: Any) -> Self:
        """Checks `params` and builds the implementation they name; a string is its `type`.

        Raises `ConfigError` with every problem of `params`.
        """
        return build(cls, params, **handed_over)  # type: ignore[no-any-return]


class Lazy(Deferred[T]):
    """A part that its owner builds, once it knows what to hand over.

    As a type hint (`optimizer: Lazy[Optimizer]`) it is checked with the rest of the config; the
    owner then calls `optimizer.construct(params=model.parameters())`. As a default it reads
    `optimizer: Lazy[Optimizer] = Lazy(Optimizer, "adam")`.

    Arguments:
        kind: the class, or base class, of the part.
        params: its config; a string is its `type`.
        path: where it is in the whole config, for messages.
    """

    def __init__(
        self, kind: type[T], params: str | Mapping[str, Any] | None = None, path: str = ""
    ) -> None:
        self.kind = kind
        given = {"type": params} if isinstance(params, str) else params or {}
        self.params: dict[str, Any] = copy.deepcopy(dict(given))
        self._path = path

    def construct(self, **handed_over: Any) -> T:
        """A new part; raises `ConfigError` if the config is wrong or a value is refused."""
        return Walk(self.kind, self.params, self._path).sound().build(**handed_over)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Lazy({getattr(self.kind, '__name__', self.kind)}, {self.params!r})"


def check(kind: Any, config: Any, path: str = "") -> list[Problem]:
    """Every problem of `config` as a `kind` (a class or type hint); builds and reads nothing.

    `path` is where `config` is in a larger config, for the messages.
    """
    return Walk(kind, config, path).problems


def build(kind: Any, config: Any, /, **handed_over: Any) -> Any:
    """Checks `config` and builds it; raises `ConfigError` with every problem found.

    What is handed over goes to the constructor of `kind` alone, not to the parts inside it.
    """
    return Walk(kind, config).sound().build(**handed_over)


def fill_defaults(kind: Any, config: Any) -> dict[str, Any]:
    """`config` with `type` and every default written out, at every level.

    Left out are the arguments that the builder hands over and defaults that JSON has nothing for.
    Local paths (`LocalPath`) that exist are made absolute, and `~` is written out. Raises
    `ConfigError` if `config` has problems; `check` finds none in the result, which builds the same
    thing.
    """
    return Walk(kind, config).sound().filled  # type: ignore[no-any-return]


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that first checks what it is given by the bounds and literals of its hints."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def checked(self: Any, /, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:  # which `init` says better
            given = {}
        takes = arguments(init)
        for key in given.keys() & takes.keys():
            hint = takes[key].hint
            for problem in Walk(hint, given[key], key).problems if is_restricted(hint) else ():
                advice = f"; {problem.hint}" if problem.hint else ""
                raise ValueError(
                    f"{problem.path}: expected {problem.expected}, found {problem.found}{advice}"
                )
        init(self, *args, **kwargs)

    return checked


def _full_name(target: object) -> str:
    return f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', target)}"


# --- the walk ---


@dataclass(frozen=True)
class _Node:
    """A part of a checked config.

    Attributes:
        build: makes the Python value; takes what is handed over to it, if it is a part.
        filled: the config, with every default written out.
    """

    build: Callable[..., Any]
    filled: Any


def _leaf(value: Any, filled: Any = None) -> _Node:
    """A plain value, already converted to its type hint."""

    def build(**handed_over: Any) -> Any:
        if handed_over:
            raise TypeError(f"{', '.join(handed_over)}: nothing can be handed over to {value!r}")
        return value

    return _Node(build, _as_json(value) if filled is None else filled)


_UNUSED = _Node(lambda: None, None)  # stands where a problem was found: nothing is built then


class Walk:
    """A walk over a config and type hints.

    Arguments:
        hint: of the whole: a class or type hint.
        value: the config.
        path: where that is in a larger config.

    Attributes:
        problems: every one.
        local_paths: what is given for a `LocalPath`, by the path to it: the file or folder, `~`
            written out, and whether the Hub may have it instead.
        parts: what builds each part, by the path to it.
        node: of the whole; builds where there are no problems, and in `filled` null stands for
            what has one.
    """

    def __init__(self, hint: Any, value: Any, path: str = "") -> None:
        self.problems: list[Problem] = []
        self.local_paths: dict[str, tuple[str, bool]] = {}
        self.parts: dict[str, Part] = {}
        self.node = self._node(hint, value, path)

    def sound(self) -> _Node:
        """The node; raises `ConfigError` with every problem."""
        if self.problems:
            raise ConfigError(self.problems)
        return self.node

    def _apart(self, hint: Any, value: Any, path: str) -> tuple[_Node, list[Problem]]:
        """A node, and the problems that are not (yet) those of the config."""
        walk = copy.copy(self)
        walk.problems = []
        return walk._node(hint, value, path), walk.problems

    def _node(self, hint: Any, value: Any, path: str) -> _Node:
        local = notes(hint, Local)
        if local and isinstance(value, str):
            name = os.path.expanduser(value)
            self.local_paths[path] = name, local[0].may_be_on_hub
            return _leaf(name, os.path.abspath(name) if os.path.exists(name) else name)
        for part in notes(hint, ConfigOf):
            self._apart(part.kind, value, path)
        node = self._typed(plain_hint(hint), value, path)
        bounds = notes(hint, Bound)
        number = node.build() if bounds else None
        if isinstance(number, Real) and any(number not in bound for bound in bounds):
            return self._mismatch(hint, value, path, _WRONG_VALUE)
        return node

    def _typed(self, hint: Any, value: Any, path: str) -> _Node:
        kind = get_origin(hint) or hint
        if hint in ANYTHING:
            return _leaf(value)
        if kind in UNIONS:
            return self._union(hint, value, path)
        if kind is Lazy:
            return self._lazy(hint, value, path)
        if kind in (*LISTS, *SETS, tuple):
            return self._items(hint, value, path)
        if kind in MAPPINGS:
            return self._table(hint, value, path)
        if is_part(kind):
            return self._part(kind, value, path)
        return self._scalar(hint, value, path)

    def _scalar(self, hint: Any, value: Any, path: str) -> _Node:
        if get_origin(hint) is Literal:
            if any(value == each and type(value) is type(each) for each in get_args(hint)):
                return _leaf(value)
            return self._mismatch(hint, value, path, _WRONG_VALUE)
        if is_subclass(hint, Enum):
            for each in hint:
                if value is each or (value == each.value and type(value) is type(each.value)):
                    return _leaf(each)
        elif hint in (int, float):
            # a bool is an int to Python, not to a config
            number: type = Integral if hint is int else Real
            if isinstance(value, number) and not isinstance(value, bool):
                with suppress(OverflowError):  # an integer that no float can hold
                    return _leaf(hint(value))
        elif hint is Path and isinstance(value, str):
            return _leaf(Path(value))
        elif _is_instance(value, get_origin(hint) or hint):
            return _leaf(value)
        return self._mismatch(hint, value, path)

    def _mismatch(self, hint: Any, value: Any, path: str, what: str = "wrong type") -> _Node:
        options = [plain_hint(each) for each in members(hint)]
        literals = [get_args(each) for each in options if get_origin(each) is Literal]
        advice = ""
        if isinstance(value, str):
            names = [each for each in itertools.chain(*literals) if isinstance(each, str)]
            advice = did_you_mean(value, names) or _how_to_write(hint, value)
        elif value is None:
            advice = "leave the key out for its default, or give a value"
        self.problems.append(
            Problem(path, what, describe(hint), found(value), advice, mismatch=True)
        )
        return _UNUSED

    def _union(self, hint: Any, value: Any, path: str) -> _Node:
        options = list(get_args(hint))
        if value is None and type(None) in options:
            return _leaf(None)
        if any(is_subclass(undeferred(each), Registrable) for each in options):
            # a string is the name of a part, to be checked as one
            options = [each for each in options if plain_hint(each) is not str]
        # an exact type first, so that 3 is an int of `float | int`
        options.sort(key=lambda each: plain_hint(each) is not type(value))
        attempts: list[list[Problem]] = []
        for option in options:
            node, problems = self._apart(option, value, path)
            if not problems:
                return node
            attempts.append(problems)
        for attempt in sorted(attempts, key=len):  # of the right shape
            if not any(each.mismatch and each.path == path for each in attempt):
                self.problems += attempt
                return _UNUSED
        whats = [each.what for attempt in attempts for each in attempt]
        what = _WRONG_VALUE if _WRONG_VALUE in whats else "wrong type"
        return self._mismatch(hint, value, path, what)

    def _lazy(self, hint: Any, value: Any, path: str) -> _Node:
        kind = undeferred(hint)
        params = value.params if isinstance(value, Lazy) else value
        if not isinstance(params, str | Mapping):
            return self._mismatch(kind, params, path)
        filled = self._node(kind, params, path).filled
        return _leaf(Lazy(kind, params, path), filled)

    def _items(self, hint: Any, value: Any, path: str) -> _Node:
        kind, args = get_origin(hint) or hint, get_args(hint)
        accepted = (list, tuple, set, frozenset) if kind in SETS else (list, tuple)
        fixed = kind is tuple and bool(args) and args[-1] is not Ellipsis
        if not isinstance(value, accepted) or (fixed and len(value) != len(args)):
            return self._mismatch(hint, value, path)
        each = args if fixed else (args[0] if args else Any,) * len(value)
        nodes = [
            self._node(hint, item, join(path, index))
            for index, (hint, item) in enumerate(zip(each, value, strict=True))
        ]
        collection = kind if kind in (tuple, frozenset) else set if kind in SETS else list
        return _Node(
            lambda: collection(node.build() for node in nodes), [node.filled for node in nodes]
        )

    def _table(self, hint: Any, value: Any, path: str) -> _Node:
        if not isinstance(value, Mapping):
            return self._mismatch(hint, value, path)
        key_hint, item_hint = get_args(hint) or (Any, Any)
        table: dict[Any, _Node] = {}
        for name, item in value.items():
            where = join(path, name)
            key = _key(key_hint, name)
            if key is None:
                self.problems.append(Problem(where, "wrong key", describe(key_hint), found(name)))
            elif key.build() in table:
                self.problems.append(Problem(where, "key given twice", found=found(name)))
            else:
                table[key.build()] = self._node(item_hint, item, where)
        return _Node(
            lambda: {key: node.build() for key, node in table.items()},
            {str(_as_json(key)): node.filled for key, node in table.items()},
        )

    def _part(self, kind: type, value: Any, path: str) -> _Node:
        if _is_instance(value, kind) or isinstance(value, getattr(kind, "also_accepts", ())):
            return _leaf(value)  # built already, by a program
        type_path = join(path, "type")
        if isinstance(value, str) and is_registrable(kind):
            value, type_path = {"type": value}, path
        if not isinstance(value, Mapping):
            return self._mismatch(kind, value, path)
        part = choose(kind, value, path, type_path)
        if isinstance(part, Problem):
            self.problems.append(part)
            return _UNUSED
        self.parts[path] = part
        is_type = {"type"} if takes_type(kind) else set()
        params = {key: item for key, item in value.items() if key not in is_type}
        return self._arguments(part, params, path)

    def _arguments(self, part: Part, params: dict[str, Any], path: str) -> _Node:
        configurable, given, unsound = part.configurable, dict[str, _Node](), set[str]()
        for key, item in params.items():
            before = len(self.problems)
            if key in configurable:
                given[key] = self._node(configurable[key].hint, item, join(path, key))
            if len(self.problems) > before:
                unsound.add(key)
        # a misspelt required key is one fault, reported where it was found
        misspelt = {nearest(str(key), configurable) for key in params.keys() - part.takes.keys()}
        for key, each in configurable.items():
            if each.required and key not in params:
                unsound.add(key)
                if key not in misspelt:
                    what, expected = "required key is missing", describe(each.hint)
                    self.problems.append(Problem(join(path, key), what, expected))
        self.problems += [
            part.refuse(key, item, path) for key, item in params.items() if key not in given
        ]
        self._across(part, given, unsound, path)
        filled = {"type": part.name} if part.name else {}
        builders = {key: node.build for key, node in given.items()}
        return _Node(functools.partial(part.build, builders, path), filled | _filled(part, given))

    def _across(self, part: Part, given: Mapping[str, _Node], unsound: set[str], path: str) -> None:
        """What the class itself says against its arguments taken together.

        Of `unsound` ones, reported already, it is shown the default or, if there is none, nothing.
        """
        hook = getattr(part.target, "check_params", None)
        if hook is None:
            return
        sound = {key: node for key, node in given.items() if key not in unsound}
        with suppress(KeyError) if unsound else nullcontext():
            for answer in hook(_filled(part, sound)):
                key, message = ("", answer) if isinstance(answer, str) else answer
                # without a key, or with an unsound one, it may be about what is not there
                if not unsound or (key and key.split(".")[0] not in unsound):
                    self.problems.append(Problem(join(path, key) if key else path, message))


def _filled(part: Part, given: Mapping[str, _Node]) -> dict[str, Any]:
    """Every argument that has a value, in the order of the constructor.

    Of those that are not given, these are the ones whose default can be written in a config.
    """
    filled: dict[str, Any] = {}
    for key, argument in part.configurable.items():
        if key in given:
            filled[key] = given[key].filled
        elif not argument.required:
            walk = Walk(argument.hint, argument.default)
            if not walk.problems and _is_json(walk.node.filled):
                filled[key] = walk.node.filled
    return filled


def _key(hint: Any, key: Any) -> _Node | None:
    """A key, converted to its hint: JSON has only strings for keys ("6" is 6)."""
    walk = Walk(hint, key)
    if not walk.problems:
        return walk.node
    return _resolve_text(hint, key) if isinstance(key, str) else None


def _how_to_write(hint: Any, text: str) -> str:
    """Advice for a value that is written as text, or as Python would have it; else nothing."""
    plain = any(plain_hint(each) in (int, float, bool) for each in members(hint))
    if plain and _resolve_text(hint, text) is not None:
        return "remove the quotes"
    try:
        written = json.dumps(ast.literal_eval(text), allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ""
    return f"write {written}" if _resolve_text(hint, written) is not None else ""


def _resolve_text(hint: Any, text: str) -> _Node | None:
    """The node for a number or truth value that is written as a string; None if it is none."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    walk = Walk(hint, value)
    return None if walk.problems or isinstance(value, str) else walk.node


def _is_instance(value: Any, kind: Any) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # not a class that has instances (a protocol, a Callable[...])
        return False


def _as_json(value: Any) -> Any:
    """`value` as JSON has it (lists, string keys); what JSON has nothing for is left as it is."""
    if isinstance(value, Enum):
        return _as_json(value.value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Lazy):
        return value.params
    if isinstance(value, Mapping):
        return {str(_as_json(key)): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_as_json(item) for item in value), key=str)
    return value


def _is_json(value: Any) -> bool:
    """Whether `value` can be written as JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
