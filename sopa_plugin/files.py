"""Files that are read and written whole: JSON read with one error, anything written aside first."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sopa_plugin.errors import UserError

_ASIDE = re.compile(r"\..+\.new-\d+")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """For `with`: a path beside `path` to write a file at, which in the end takes its place.

    If that is not reached, what was at `path` stays and the new file goes. Several processes may
    write the same file at once: one of theirs stays, whole.
    """
    aside = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        yield aside
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all; text in UTF-8."""
    with written_aside(path) as aside:
        aside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def is_left_aside(path: Path) -> bool:
    """Whether `written_aside` gave a file its name."""
    return _ASIDE.fullmatch(path.name) is not None and path.is_file()


def remove_left_aside(folder: Path) -> None:
    """Deletes the files in a folder that processes killed on this machine were writing."""
    for each in folder.iterdir():
        if is_left_aside(each) and not _is_alive(int(each.name.rpartition("-")[2])):
            each.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # where a signal of no meaning would end it
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # but another user's
    return True


def read_json(path: Path, expected: str) -> Any:
    """What a JSON file holds; `expected` says in the `UserError` what should have been there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last of nesting without end
        reason = error.strerror if isinstance(error, OSError) else f"not JSON: {error}"
        raise UserError(f"{path}: cannot be read ({reason}); expected {expected}") from error
