"""Functions that numba compiles on first use and keeps on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from numba import njit, typeof

# Reentrant and held across fork, so that no child inherits it from a thread that it does not have.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


class Compiled:
    """Decorator: compiles `function` when it is first called, without the GIL held when it runs.

    Numba keeps compiled code beside this package, or where that cannot be written in the user's
    cache folder (`NUMBA_CACHE_DIR` names another); where nothing can be written, every process
    compiles anew. Only one signature of each function is ever used, so processes that compile at
    the same time write the same files.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._ready = False
        try:
            self._compiled = njit(nogil=True, cache=True)(function)
        except RuntimeError:  # no folder for the cache
            self._compiled = njit(nogil=True)(function)

    def __call__(self, *args: Any) -> Any:
        if not self._ready:
            self._compile(tuple(typeof(arg) for arg in args))
        return self._compiled(*args)

    def _compile(self, types: tuple[Any, ...]) -> None:
        with _lock:
            try:
                self._compiled.compile(types)
            except OSError:  # the cache could not be written after all
                self._compiled = njit(nogil=True)(self._function)
                self._compiled.compile(types)
            self._ready = True
