"""Code that numba compiles to run without the GIL, and the threads that it runs in."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
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


class ThreadPool:
    """Workers beside the calling thread, begun when they are first needed.

    Any number of threads may call `run` at the same time; a task must not call it.
    """

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._executor = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="sopa")

    def run(self, task: Callable[[int, int], object], bounds: Sequence[int]) -> None:
        """Calls `task(start, end)` for each two neighbouring bounds, all at the same time.

        Raises what a task raises, after all have ended.
        """
        spans = list(pairwise(bounds))
        futures = [self._executor.submit(task, *span) for span in spans[1:]]
        try:
            if spans:
                task(*spans[0])
        finally:
            wait(futures)
        for future in futures:
            future.result()


def num_threads(work: int, least: int) -> int:
    """How many threads to use, if each then has at least `least` units of work.

    At most torch's number, where it is imported, else `OMP_NUM_THREADS`, else one for each CPU.
    """
    torch = sys.modules.get("torch")
    given = os.environ.get("OMP_NUM_THREADS", "")
    most = int(given) if given.isdecimal() else os.cpu_count() or 1
    if torch is not None:
        most = torch.get_num_threads()
    return max(1, min(most, work // least))
