"""Processes that work side by side, each with one torch thread."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any


@contextmanager
def worker_pool(workers: int, packages: Sequence[str] = ()) -> Iterator[Executor]:
    """A pool whose processes end with this one, or with an exception, whatever they are doing.

    Arguments:
        workers: how many; 0 works in this process, one task after the other.
        packages: plugins that they import.
    """
    if not workers:
        yield _ThisProcess()
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by a worker before it imports torch
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(list(packages),),
    )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    pool.shutdown()


class _ThisProcess(Executor):
    """Does a task when it is submitted."""

    def submit(self, task: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(task(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def default_workers() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(packages: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    from sopa_plugin.command_line import log_experiments_alone, set_up_logging
    from sopa_plugin.registry import import_plugins

    torch.set_num_threads(1)
    set_up_logging()
    log_experiments_alone()
    import_plugins(packages)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
