"""Text files as they are in the wild, read line by line with the place of every fault.

A line ends at `\\n` or `\\r\\n`, in a file that has no `\\n` (an old Mac's) at `\\r`, and nowhere
else (`str.splitlines` also cuts at U+2028, U+0085 and form feeds). A byte-order mark at the start
of a file is dropped.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from sopa_plugin.errors import UserError, listed, shortened

_HEAD = 2**20  # characters in which a file with `\n` has one


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line without its end) of a plain or gzip file."""
    number = 0
    try:
        with _open(path, encoding, newline="") as file:
            head = file.read(_HEAD)
        end = "\r" if "\r" in head and "\n" not in head else "\n"
        with _open(path, encoding, newline=end) as file:
            for number, line in enumerate(file, 1):
                if not line.isascii():
                    _check_bytes(line, path, number, encoding)
                line = line.removesuffix(end).removesuffix("\r")
                yield number, line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError as error:  # encodings of several bytes a character, such as utf-16
        raise UserError(f"{path}:{number + 1}: not {encoding} ({error}).") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError(f"{path}: cannot be read ({reason}).") from None


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The whole text of a file, lines joined by `\\n`."""
    return "\n".join(line for _, line in read_lines(path, encoding))


def read_json_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, object) of a file with one JSON object a line, blank lines skipped."""
    for number, line in read_lines(path, encoding):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{path}:{number}: expected one JSON object a line, found {shortened(line)} "
                f"({error})."
            ) from None
        if "\\u" in line:
            check_encodable(json.dumps(value, ensure_ascii=False), f"{path}:{number}")
        if not isinstance(value, dict):
            raise UserError(
                f"{path}:{number}: expected one JSON object a line, found {shortened(line)}."
            )
        yield number, value


def read_rows(
    path: Path, delimiter: str, encoding: str = "utf-8", column_names: Sequence[str] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (line where the row starts, cells by column name); every cell stays text.

    Tab-separated files are read without quoting, so that a bare `"` is a character like any other;
    others may quote cells, with delimiters, line ends and doubled quotes inside.

    Arguments:
        column_names: the columns of a file without a header row; by default the first row is it.
    """
    rows = _numbered_cells(path, delimiter, encoding)
    header = list(column_names or ())
    if not header:
        header = read_header(path, delimiter, encoding)
        next(rows)
    for line, row in rows:
        if len(row) != len(header):
            hint = " (tab-separated files are read without quoting)" if delimiter == "\t" else ""
            raise UserError(
                f"{path}:{line}: expected {len(header)} cells ({listed(header)}), "
                f"found {len(row)}{hint}."
            )
        yield line, dict(zip(header, row, strict=True))


def read_header(path: Path, delimiter: str, encoding: str = "utf-8") -> list[str]:
    """The names in the first row."""
    for _, header in _numbered_cells(path, delimiter, encoding):
        return [name.strip() for name in header]
    raise UserError(f"{path}: empty; expected a header row with the column names.")


def check_encodable(text: str, where: str) -> None:
    """JSON can spell half of a surrogate pair, which is no character and cannot be stored.

    Raises `UserError` that begins with `where`, the place of the text (`file:line`).
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: the text has half of a surrogate pair ({text[error.start]!a}), "
            "which is no character; repair this line or take it out."
        ) from None


def encoding_problem(name: str) -> str | None:
    """What is wrong with an `encoding`, if anything."""
    try:
        codecs.lookup(name)
        "a".encode(name).decode(name)
        return None
    except (LookupError, ValueError):
        return f"expected one like 'utf-8' or 'latin-1', found {shortened(name)}"


def _numbered_cells(path: Path, delimiter: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line where the row starts, cells), skipping empty lines."""
    if delimiter == "\t":
        for number, line in read_lines(path, encoding):
            if line:
                yield number, line.split("\t")
        return
    csv.field_size_limit(2**31 - 1)  # the module's own limit, 128 KB, is less than a long document
    rows = csv.reader(
        (line + "\n" for _, line in read_lines(path, encoding)), delimiter=delimiter, strict=True
    )
    start = 1
    try:
        for row in rows:
            if row:
                yield start, row
            start = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{start}: not a row of cells parted by {delimiter!r}: {error} "
            "(is a quote left open, or a quote inside a quoted cell not doubled?)."
        ) from None


def _open(path: Path, encoding: str, newline: str) -> TextIO:
    # surrogateescape lets a bad byte through as a marker, so that its line can be named
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    file: TextIO = opener(path, "rt", encoding=encoding, errors="surrogateescape", newline=newline)
    return file


def _check_bytes(line: str, path: Path, number: int, encoding: str) -> None:
    escaped = next((char for char in line if "\udc80" <= char <= "\udcff"), None)
    if escaped is not None:
        advice = "set `encoding` to what the file is in, for example 'latin-1' or 'cp1252'."
        if number == 1 and line[:2] in ("\udcff\udcfe", "\udcfe\udcff"):
            advice = "it begins like UTF-16: set `encoding` to 'utf-16'."
        raise UserError(
            f"{path}:{number}: byte 0x{ord(escaped) - 0xDC00:02x} is not {encoding}; {advice}"
        )
