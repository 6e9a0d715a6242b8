"""Locks between processes: files that the system unlocks when their holder ends, even by a crash.

They hold between machines too where these share the folder and its file system locks (NFS does).
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Waits until no other process holds the lock, and holds it meanwhile."""
    with _open(file) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def try_lock(file: Path) -> TextIO | None:
    """The lock, held until it is closed; None where another process, or this one, holds it."""
    handle = _open(file)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle


def _open(file: Path) -> TextIO:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.open("w")
