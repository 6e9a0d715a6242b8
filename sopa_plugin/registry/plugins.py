"""Packages of other people: imported so that their parts register, and remembered.

Two ways in: an installed package names a module under the entry point group `sopa_plugin.plugins`;
any other is named on the command line (`--include-package`).
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from sopa_plugin.registry.problems import ConfigError

GROUP = "sopa_plugin.plugins"

logger = logging.getLogger(__name__)
_imported: list[str] = []


def import_plugins(packages: Sequence[str] = ()) -> None:
    """Imports every installed plugin, then `packages`, each with all its submodules.

    Packages are looked for in the current folder too. An installed plugin that fails is passed
    over with a warning, so that one broken package does not stop every command; one of `packages`
    that fails raises `ConfigError`.
    """
    for point in entry_points(group=GROUP):
        try:
            _import_with_submodules(point.module)
            point.load()
        except Exception as error:
            logger.warning("plugin '%s' (%s) is left out: %s", point.name, point.value, error)
        else:
            _remember(point.module)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for package in packages:
        _import_with_submodules(package)
        _remember(package)


def imported_plugins() -> list[str]:
    """The plugins imported so far: what a saved model records, and `import_plugins` takes."""
    return list(_imported)


def looked_in() -> str:
    """The packages whose parts are known, for messages."""
    return ", ".join(["sopa_plugin", *_imported])


def _remember(package: str) -> None:
    if package not in _imported:
        _imported.append(package)


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
