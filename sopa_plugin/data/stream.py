"""A stream of lines, each a document: plain text, or a JSON object with a key `text`."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

from sopa_plugin.data.readers.sources import HEAD, check_encodable, line_end
from sopa_plugin.errors import UserError

Format = Literal["auto", "text", "json"]

BLOCK = 2**16  # bytes read at once: some hundred sentences
CONVERT = "convert it first, as with iconv -f latin1 -t utf-8"
"""What to do with text that is not UTF-8."""

_BOM = b"\xef\xbb\xbf"


def read_documents(source: BinaryIO, format: Format = "auto") -> Iterator[list[dict[str, Any]]]:
    """The documents that are there to be read, again and again: records with a `text` at least.

    A blank line of text is a document with no token, a blank line among JSON is an error.

    Arguments:
        source: UTF-8 lines.
        format: what a line holds; `auto` is `json` if the first line is such an object.

    Raises `UserError`, once what comes before has been yielded, naming the line that is not UTF-8,
    not such an object, or has half of a surrogate pair in it.
    """
    number = 0
    for lines in read_lines(source):
        records: list[dict[str, Any]] = []
        try:
            for line in lines:
                number += 1
                text = decode_line(line, f"input line {number}")
                if format == "auto":
                    format = "json" if _is_object(text) else "text"
                records.append(_record(text, number) if format == "json" else {"text": text})
        except UserError:
            yield records
            raise
        yield records


def read_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """The lines that are there to be read, without their ends, again and again.

    They end as those of files do (`sopa_plugin.data.readers.lines`); a byte order mark before the
    first is left out.
    """
    rest = io.BytesIO()  # of a line whose end is yet to come
    first = True
    end = b""  # not known yet
    read = getattr(source, "read1", source.read)
    while block := read(BLOCK):
        rest.write(block)
        if not end and (b"\n" in block or rest.tell() >= HEAD):
            end = line_end(rest.getvalue())
        if not end or end not in block:
            continue
        *lines, begun = rest.getvalue().split(end)
        rest = io.BytesIO()
        rest.write(begun)
        if first:
            lines[0], first = lines[0].removeprefix(_BOM), False
        yield lines
    if last := rest.getvalue():
        end = end or line_end(last)
        last = last.removeprefix(_BOM) if first else last
        yield last.removesuffix(end).split(end)


def decode_line(line: bytes, where: str) -> str:
    """A line of `read_lines` as text, without the `\\r` of a line that ended in `\\r\\n`.

    Raises:
        UserError: it is not UTF-8; `where` says which line it is.
    """
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 (byte {line[error.start]:#04x}); {CONVERT}") from error


def _is_object(text: str) -> bool:
    try:
        return "text" in _parse(text, 0)
    except UserError:
        return False


def _record(text: str, number: int) -> dict[str, Any]:
    record = _parse(text, number)
    # only an escape can spell half of a surrogate pair; what is nested is to be written again
    if "\\u" in text or "[" in text or text.count("{") > 1:
        try:
            written = json.dumps(record, ensure_ascii=False)
        except RecursionError as error:
            raise UserError(f"input line {number}: nested too deeply") from error
        check_encodable(written, f"input line {number}")
    return record


def _finite(written: str) -> float:
    number = float(written)
    if not math.isfinite(number):
        raise ValueError(f"{written[:40]} is no number that JSON can hold")
    return number


def _parse(text: str, number: int) -> dict[str, Any]:
    if not text.strip():
        raise UserError(
            f'input line {number}: blank, in JSON lines; take it out, or give {{"text": ""}} for a '
            "document with no token"
        )
    try:
        record = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f'input line {number}: not JSON ({error}); expected an object, {{"text": "..."}}, or '
            "give --format text"
        ) from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise UserError(
            f'input line {number}: expected an object with a string as "text"; found {text[:80]}'
        )
    return record
