"""Processes that work side by side, each with one torch thread and, in turn, one of the GPUs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import cycle, islice
from multiprocessing.connection import wait
from multiprocessing.queues import SimpleQueue
from typing import Any

from accelerate.utils import parse_flag_from_env

from sopa_plugin.errors import UserError


@contextmanager
def worker_pool(workers: int, packages: Sequence[str] = ()) -> Iterator[Executor]:
    """A pool whose processes end with this one, or with an exception, whatever they are doing.

    Arguments:
        workers: how many; 0 works in this process, one task after the other.
        packages: plugins that they import.

    Raises `UserError` if one of them dies.
    """
    if not workers:
        yield _ThisProcess()
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by a worker before it imports torch
    context = multiprocessing.get_context("spawn")
    devices: SimpleQueue[str] = context.SimpleQueue()
    for device in islice(cycle(gpus() or [""]), workers):
        devices.put(device)
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start, initargs=(list(packages), devices)
    )
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()
        if isinstance(error, BrokenProcessPool):
            raise UserError(
                "a worker process died, perhaps for want of memory; run the same command again to "
                "go on, with fewer --workers"
            ) from error
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
    """The GPUs that this process may use or, without any, the cores."""
    if found := gpus():
        return len(found)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    if parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def _start(packages: list[str], devices: SimpleQueue[str]) -> None:
    if device := devices.get():
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # read when torch first looks for GPUs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    from sopa_plugin.errors import log_experiments_alone, set_up_logging
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
