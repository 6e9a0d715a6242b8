"""Which classes a config may name: registered ones, those at a dotted path, those of plugins.

Packages of other people are imported so that their parts register, and remembered. Two ways in: an
installed package names a module under the entry point group `sopa_plugin.plugins`; any other is
named on the command line (`--include-package`). A saved file is data: what it names is looked for
among what these two, or the program itself, have imported, and never imported.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import logging
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from typing import Any

from sopa_plugin.errors import UserError
from sopa_plugin.registry.hints import Argument, arguments, is_subclass
from sopa_plugin.registry.problems import ConfigError, Problem, did_you_mean, found, join

GROUP = "sopa_plugin.plugins"

logger = logging.getLogger(__name__)
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_plugins: dict[str, None] = {}  # in the order in which they were imported
_imports: ContextVar[bool] = ContextVar("imports", default=True)

registered: dict[type, dict[str, Part]] = {}
"""What a config can name, by base class: one that is chosen from by `type`, no part itself."""


@dataclass(frozen=True)
class Part:
    """A class (or function) that a config can name, and how it is called.

    Attributes:
        kind: the base class that it is an implementation of.
        name: what `type` says or would say; "" for a class that is not chosen by name.
        target: the class itself.
        constructor: of its classmethods, the one that builds it; None for its `__init__`.
    """

    kind: type
    name: str
    target: Callable[..., Any]
    constructor: str | None = None

    @property
    def title(self) -> str:
        return self.name or getattr(self.target, "__name__", "this part")

    @property
    def make(self) -> Callable[..., Any]:
        """What is called to build the part, and whose type hints its config is checked by."""
        return getattr(self.target, self.constructor) if self.constructor else self.target

    @functools.cached_property
    def takes(self) -> dict[str, Argument]:
        return arguments(self.make)

    @functools.cached_property
    def handed_over(self) -> frozenset[str]:
        """The names of the arguments that its builder supplies."""
        owners = (self.kind, self.target)
        return frozenset().union(*(getattr(each, "handed_over", ()) for each in owners))

    @functools.cached_property
    def configurable(self) -> dict[str, Argument]:
        """The arguments that a config may give."""
        return {key: each for key, each in self.takes.items() if key not in self.handed_over}

    def refuse(self, key: Any, value: Any, path: str) -> Problem:
        """The problem of a key that a config may not give."""
        where, known = join(path, key), sorted(self.configurable)
        if key in self.handed_over:
            advice = "it is handed over by the builder; remove it"
            return Problem(where, "not to be configured", found=found(value), hint=advice)
        expected = f"a key of {self.title}: " + (", ".join(known) or "it has none")
        advice = did_you_mean(str(key), known) or "remove it"
        return Problem(where, "unknown key", expected, found(value), advice)

    def build(
        self, given: Mapping[str, Callable[[], Any]], path: str, /, **handed_over: Any
    ) -> Any:
        """Builds the part; what is handed over and not taken by this implementation is left out.

        Raises `TypeError` if an argument is handed over that none of the implementations names, or
        if one is missing, and `ConfigError` if the constructor refuses a value (`ValueError`).
        """
        unknown = handed_over.keys() - self.takes.keys() - self.handed_over
        if unknown:
            raise TypeError(f"{self.title} takes no {', '.join(sorted(unknown))}")
        call = {key: make() for key, make in given.items()}
        call |= {key: value for key, value in handed_over.items() if key in self.takes}
        missing = [key for key, each in self.takes.items() if each.required and key not in call]
        if missing:
            raise TypeError(
                f"{path or self.title}: {', '.join(missing)} must be handed over: pass it to "
                "from_params, or annotate the part as Lazy and pass it to construct"
            )
        try:
            return self.make(**call)
        except UserError:
            raise
        except ValueError as error:
            problem = Problem(path, f"'{self.title}' cannot be built", hint=str(error))
            raise ConfigError([problem]) from error


def choices(kind: type) -> dict[str, Part]:
    """What can stand where `kind` is asked for, by name."""
    return {
        name: part
        for base in reversed(kind.__mro__)
        for name, part in registered.get(base, {}).items()
        if base is kind or is_subclass(part.target, kind)
    }


def is_registrable(kind: type) -> bool:
    """Whether a config gives a `kind` by its `type`, a name that is registered or a dotted path."""
    return not registered.keys().isdisjoint(kind.__mro__)


def part_of(kind: type) -> Part:
    """How `kind` itself is built: as it was registered, if it was; by its `__init__` first."""
    own = [each for each in choices(kind).values() if each.target is kind]
    return min(own, key=lambda each: each.constructor or "", default=Part(kind, "", kind))


def lookup(kind: type, name: str, path: str) -> Part | Problem:
    """The implementation of `kind` with that name or dotted path, or what is wrong with it."""
    known = choices(kind)
    if name in known:
        return known[name]
    if _DOTTED.fullmatch(name):
        return _import(kind, name, path)
    looked_in = ", ".join(["sopa_plugin", *_plugins])
    advice = [
        did_you_mean(name, known),
        f"(looked in {looked_in}; give its package with --include-package if it is your own)",
    ]
    what = f"no {kind.__name__} is called '{name}'"
    return Problem(path, what, _one_of(known), f'"{name}"', " ".join(filter(None, advice)))


def _one_of(known: Iterable[str]) -> str:
    return "one of " + (", ".join(sorted(known)) or "(none is registered)")


def _import(kind: type, name: str, path: str) -> Part | Problem:
    expected = f"the dotted path of a subclass of {kind.__name__}, or a registered name"
    may_import = _imports.get()
    there: Any = None
    for place in itertools.accumulate(name.split("."), "{}.{}".format):
        there = sys.modules.get(place) or getattr(there, place.rpartition(".")[2], None)
    if not may_import and there is None:
        package = name.partition(".")[0]
        return Problem(path, f"'{name}' is of the package '{package}', {_trust(package)}")
    try:
        target = pkgutil.resolve_name(name) if may_import else there
    except Exception as error:  # a module may raise anything while it is imported
        reason = f"{type(error).__name__}: {error}"
        return Problem(path, f"'{name}' cannot be imported", expected, f'"{name}"', reason)
    accepted = (kind, *getattr(kind, "also_accepts", ()))
    if target in accepted or not any(is_subclass(target, each) for each in accepted):
        what = f"'{name}' is not a subclass of {kind.__name__}"
        return Problem(path, what, expected, f'"{name}"', "name another class, or derive it")
    if inspect.isabstract(target):
        what = f"'{name}' is abstract and cannot be built"
        return Problem(path, what, expected, f'"{name}"', "name one of its subclasses")
    return Part(kind, name, target, part_of(target).constructor)


def takes_type(kind: type) -> bool:
    """Whether the key `type` chooses the class; not so where it is an argument of the class."""
    return is_registrable(kind) or "type" not in arguments(kind)


def choose(kind: Any, params: Mapping[str, Any], path: str, type_path: str) -> Part | Problem:
    """The class that builds a `kind` from `params`, or what is wrong with their `type`."""
    name: Any = None
    if "type" in params and takes_type(kind):
        name = params["type"]
        if not isinstance(name, str):
            return Problem(type_path, "wrong type", "a name (a string)", found(name))
        if not is_registrable(kind) and not _DOTTED.fullmatch(name):
            expected = f"no key 'type', or the dotted path of a subclass of {kind.__name__}"
            return Problem(type_path, f"no {kind.__name__} has a name", expected, f'"{name}"')
    elif is_registrable(kind):
        name = kind.default_implementation if kind in registered else None
        if kind in registered and name is None:
            hint = f"say which {kind.__name__} it is: {{type: ...}}"
            where, what = join(path, "type"), "required key is missing"
            return Problem(where, what, _one_of(choices(kind)), hint=hint)
    return part_of(kind) if name is None else lookup(kind, name, type_path)


# --- plugins ---


def import_plugins(packages: Sequence[str] = ()) -> None:
    """Imports every installed plugin, then `packages`, each with all its submodules.

    `packages` are looked for in the current folder too. An installed plugin that fails is passed
    over with a warning, so that one broken package does not stop every command; one of `packages`
    that fails raises `ConfigError`.
    """
    for point in _entry_points():
        try:
            _import_with_submodules(point.module)
            point.load()
        except Exception as error:
            logger.warning("plugin '%s' (%s) is left out: %s", point.name, point.value, error)
        else:
            _plugins[point.module] = None
    if packages and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for package in packages:
        _import_with_submodules(package)
        _plugins[package] = None


def imported_plugins() -> list[str]:
    """The plugins imported so far: what a saved model records, and `import_plugins` takes."""
    return list(_plugins)


@contextmanager
def imported_only() -> Iterator[None]:
    """While a saved config is built: dotted paths in it find only what is imported already."""
    token = _imports.set(False)
    try:
        yield
    finally:
        _imports.reset(token)


def check_imported(packages: Any, where: str) -> None:
    """Imports every installed plugin; the `packages` that a saved file names must be imported then.

    Raises:
        ConfigError: one of them is not; `where` is the file that names it.
    """
    import_plugins()
    for package in packages if isinstance(packages, list) else [packages]:
        if not isinstance(package, str) or package not in sys.modules:
            raise ConfigError(f"{where}: made with the package '{package}', {_trust(package)}")


def _trust(package: object) -> str:
    """What to do about a package that a saved file names."""
    return (
        "which is not installed as a plugin, and nothing is imported because a saved file says so: "
        f"if you trust it, give --include-package {package}, or import it in Python first"
    )


def _entry_points() -> Iterator[EntryPoint]:
    """Those of installed packages; what merely lies in the current folder is not installed."""
    # which `python -m` puts first
    here = sys.path[:1] == [""] or sys.path[:1] == [os.getcwd()]
    seen = set()
    for installed in distributions(path=sys.path[1:] if here else sys.path):
        points = installed.entry_points.select(group=GROUP)
        # the metadata of all that is installed would take most of the time of loading a model
        if points and installed.metadata["Name"] not in seen:
            seen.add(installed.metadata["Name"])
            yield from points


def _import_with_submodules(name: str) -> None:
    importlib.invalidate_caches()  # the folder may be newer than the import system's listing
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigError(
            f"cannot import '{name}': {type(error).__name__}: {error}; a plugin is an installed "
            "package or one in the current folder, by its dotted name"
        ) from error
    for child in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if child.name != "__main__":
            _import_with_submodules(f"{name}.{child.name}")
