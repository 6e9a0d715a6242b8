"""Packages of other people: imported so that their parts register, and remembered.

Two ways in: an installed package names a module under the entry point group `sopa_plugin.plugins`;
any other is named on the command line (`--include-package`). A saved file is data: what it names is
looked for among what these two, or the program itself, have imported, and never imported.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, distributions
from typing import Any

from sopa_plugin.registry.problems import ConfigError

GROUP = "sopa_plugin.plugins"

logger = logging.getLogger(__name__)
_imported: dict[str, None] = {}  # in their order
_imports: ContextVar[bool] = ContextVar("imports", default=True)


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
            _imported[point.module] = None
    if packages and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for package in packages:
        _import_with_submodules(package)
        _imported[package] = None


def imported_plugins() -> list[str]:
    """The plugins imported so far: what a saved model records, and `import_plugins` takes."""
    return list(_imported)


@contextmanager
def imported_only() -> Iterator[None]:
    """While a saved config is built: dotted paths in it find only what is imported already."""
    token = _imports.set(False)
    try:
        yield
    finally:
        _imports.reset(token)


def may_import() -> bool:
    """Whether a dotted path may be imported (see `imported_only`)."""
    return _imports.get()


def check_imported(packages: Any, where: str) -> None:
    """Imports every installed plugin; the `packages` that a saved file names must be imported then.

    Raises:
        ConfigError: one of them is not; `where` is the file that names it.
    """
    import_plugins()
    for package in packages if isinstance(packages, list) else [packages]:
        if not isinstance(package, str) or package not in sys.modules:
            raise ConfigError(f"{where}: made with the package '{package}', {trust(package)}")


def trust(package: object) -> str:
    """What to do about a package that a saved file names."""
    return (
        "which is not installed as a plugin, and nothing is imported because a saved file says so: "
        f"if you trust it, give --include-package {package}, or import it in Python first"
    )


def looked_in() -> str:
    """The packages whose parts are known, for messages."""
    return ", ".join(["sopa_plugin", *_imported])


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
