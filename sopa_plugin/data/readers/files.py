"""Files as they are in the wild, read line by line with the place of every fault.

A line ends at `\\n` and nowhere else (`str.splitlines` also cuts at U+2028, U+0085 and form feeds);
a carriage return before it and a byte-order mark at the start of a file are dropped.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sopa_plugin.errors import UserError


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line without its end) of a plain or gzip file."""
    for number, line in _physical_lines(path, encoding):
        yield number, line.removesuffix("\n").removesuffix("\r")


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The whole text of a file, lines joined by `\\n`."""
    return "\n".join(line for _, line in read_lines(path, encoding))


def read_table(
    path: Path, delimiter: str, encoding: str = "utf-8", column_names: Sequence[str] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (line where the row starts, cells by column name); every cell stays text.

    Comma-separated files may quote cells, with commas, newlines and doubled quotes inside.
    Tab-separated files are read without quoting, so that a bare `"` is a character like any other.
    Arguments:
        delimiter: `","` or `"\\t"`.
        column_names: the columns of a file without a header row; by default the first row is it.
    """
    numbered = _numbered_rows(path, delimiter, encoding)
    header = column_names
    if header is None:
        _, header = next(numbered, (0, None))
        if header is None:
            raise UserError(f"{path}: empty; expected a header row with the column names.")
        header = [name.strip() for name in header]
    duplicates = sorted({name for name in header if header.count(name) > 1})
    if duplicates:
        raise UserError(f"{path}:1: two columns have the same name: {', '.join(duplicates)}.")
    for line, row in numbered:
        if len(row) != len(header):
            hint = " (tab-separated files are read without quoting)" if delimiter == "\t" else ""
            raise UserError(
                f"{path}:{line}: expected {len(header)} cells ({', '.join(header)}), "
                f"found {len(row)}{hint}."
            )
        yield line, dict(zip(header, row, strict=True))


def read_json_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, object) of a file with one JSON object a line, blank lines skipped."""
    for number, line in read_lines(path, encoding):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UserError(
                f"{path}:{number}: expected one JSON object a line, found {_shorten(line)} "
                f"({error})."
            ) from None
        if not isinstance(value, dict):
            raise UserError(
                f"{path}:{number}: expected one JSON object a line, found {_shorten(line)}."
            )
        yield number, value


def column(row: Mapping[str, Any], name: str, where: str, option: str) -> Any:
    """The cell of a column, or an error that names the columns there are and the option to set."""
    try:
        return row[name]
    except KeyError:
        raise UserError(
            f"{where}: no column {name!r}; the columns are {', '.join(map(repr, row))}. "
            f"Set `{option}` to one of them."
        ) from None


def _numbered_rows(path: Path, delimiter: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line where the row starts, cells), skipping empty lines."""
    if delimiter == "\t":
        for number, line in read_lines(path, encoding):
            if line:
                yield number, line.split("\t")
    else:
        yield from _quoted_rows(path, delimiter, encoding)


def _quoted_rows(path: Path, delimiter: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(2**31 - 1)  # the module's own limit, 128 KB, is less than a long document
    lines = (line for _, line in _physical_lines(path, encoding))
    rows = csv.reader(_unix_ends(lines), delimiter=delimiter, strict=True)
    start = 1
    try:
        for row in rows:
            if row:
                yield start, row
            start = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{start}: not a comma-separated row: {error} "
            "(is a quote left open, or a quote inside a quoted cell not doubled?)."
        ) from None


def _unix_ends(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line[:-2] + "\n" if line.endswith("\r\n") else line


def _physical_lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yields (number, line with its end); bytes that are not in the encoding are an error."""
    number = 0
    try:
        codecs.lookup(encoding)
        with _open(path, encoding) as file:
            for number, line in enumerate(file, 1):
                if not line.isascii():
                    _check_bytes(line, path, number, encoding)
                yield number, line.removeprefix("\ufeff") if number == 1 else line
    except LookupError:
        raise UserError(
            f"encoding: {encoding!r} is not known; expected one like 'utf-8' or 'latin-1'."
        ) from None
    except UnicodeError as error:  # encodings of several bytes a character, such as utf-16
        raise UserError(f"{path}:{number + 1}: not {encoding} ({error}).") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({_reason(error)}).") from None


def _open(path: Path, encoding: str) -> TextIO:
    # surrogateescape lets a bad byte through as a marker, so that its line can be named
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding=encoding, errors="surrogateescape", newline="\n")
    return open(path, encoding=encoding, errors="surrogateescape", newline="\n")


def _check_bytes(line: str, path: Path, number: int, encoding: str) -> None:
    escaped = next((char for char in line if "\udc80" <= char <= "\udcff"), None)
    if escaped is not None:
        raise UserError(
            f"{path}:{number}: byte 0x{ord(escaped) - 0xDC00:02x} is not {encoding}; "
            "set `encoding` to what the file is in, for example 'latin-1' or 'cp1252'."
        )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _shorten(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")
