"""Packages that only some parts need, asked for where they are used."""

from __future__ import annotations

import importlib
from types import ModuleType

from sopa_plugin.errors import UserError


def require(module: str, what: str, extra: str = "experiments") -> ModuleType:
    """The module, imported; raises `UserError` naming the extra of this package that brings it.

    Arguments:
        module: as in `import`.
        what: wants it; the beginning of the message.
        extra: of sopa_plugin.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"sklearn": "scikit-learn"}.get(
            module.partition(".")[0], module.partition(".")[0]
        )
        raise UserError(
            f"{what} needs {package}: pip install 'sopa_plugin[{extra}]' ({error})"
        ) from error
