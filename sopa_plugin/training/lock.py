"""The lock of a folder that a process works in."""

from __future__ import annotations

import json
import os
import platform
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from sopa_plugin.errors import UserError
from sopa_plugin.files import read_json, write_file

LOCK = ".lock"
HOLDER = ".lock.json"


class FolderLock:
    """Keeps other processes, of other machines too, from working in a folder.

    The lock is a file in the folder, moves with it, and is given back by the system when its
    process ends, however that is. Another file says whose it is.

    Attributes:
        folder: where it is now; whoever moves the folder sets this.

    Raises `UserError`, which says who holds the lock, if another does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = FileLock(folder / LOCK)
        self._acquire()
        while not (folder / LOCK).exists():  # whoever held it has just deleted it
            self._lock.release()
            self._acquire()
        self._holder = {
            "pid": os.getpid(),
            "host": platform.node(),
            "since": datetime.now().isoformat(sep=" "),
        }
        write_file(folder / HOLDER, json.dumps(self._holder))

    def _acquire(self) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"{self.folder}: {_holder(self.folder)} is at work in this folder; wait for it, "
                "stop it, or choose another folder with -s"
            ) from None

    @property
    def is_in_place(self) -> bool:
        """Whether the folder still is the one that was locked."""
        try:
            return bool(read_json(self.folder / HOLDER, "") == self._holder)
        except UserError:
            return False

    def release(self) -> None:
        """Gives the lock back."""
        if self.is_in_place:
            (self.folder / HOLDER).unlink()
            (self.folder / LOCK).unlink()
        self._lock.release()


def _holder(folder: Path) -> str:
    try:
        holder = read_json(folder / HOLDER, "")
        since = str(holder["since"]).partition(".")[0]
        return f"process {holder['pid']} on {holder['host']} (since {since})"
    except (UserError, KeyError, TypeError):
        return "another process"
