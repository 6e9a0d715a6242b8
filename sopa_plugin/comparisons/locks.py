"""Locks between processes: files that the system unlocks when their holder ends, even by a crash.

They hold between machines too where these share the folder and its file system locks (NFS does).
"""

from __future__ import annotations

from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout


def locked(file: Path) -> FileLock:
    """For `with`: waits until no other process holds the lock, and holds it meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(file)


def try_lock(file: Path) -> AcquireReturnProxy | None:
    """The lock, held until the end of a `with`; None where it is held elsewhere."""
    try:
        return locked(file).acquire(timeout=0)
    except Timeout:
        return None
