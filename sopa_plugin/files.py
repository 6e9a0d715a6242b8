"""Files that are read and written whole: JSON read with one error, anything written aside first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sopa_plugin.errors import UserError


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


def read_json(path: Path, expected: str) -> Any:
    """What a JSON file holds; `expected` says in the `UserError` what should have been there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last of nesting without end
        reason = error.strerror if isinstance(error, OSError) else f"not JSON: {error}"
        raise UserError(f"{path}: cannot be read ({reason}); expected {expected}") from error
