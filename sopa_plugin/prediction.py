"""Predictions for a stream of lines."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, Protocol, TextIO

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.data.characters import check_encodable
from sopa_plugin.errors import UserError

Format = Literal["auto", "text", "json"]

BLOCK = 2**16  # bytes read at once: some hundred sentences
CONVERT = "convert it first, as with iconv -f latin1 -t utf-8"
"""What to do with text that is not UTF-8."""

_BOM = b"\xef\xbb\xbf"


class Predictor(Protocol):
    """What predicts: a `Model`, or the `Matcher` of one."""

    labels: list[str]

    def log_probabilities(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`."""
        ...


def predict_stream(
    model: Predictor, source: BinaryIO, output: TextIO, format: Format = "auto"
) -> None:
    """Classifies each line of `source`; writes one line of JSON for it to `output`.

    Lines end at `\\n` alone; a blank line of text is a document with no token, which is classified
    like any other, and a blank line among JSON is an error. What has been read is answered at once,
    so memory does not grow with the input and a slow writer need not wait.

    Arguments:
        model: a trained model.
        source: UTF-8 lines: plain text, or JSON objects with a key `text`.
        output: gets `label` and `probabilities {label: p}` for each line, after the line's `text`
            or, of a JSON object, after all its keys; a key of it that is called so itself becomes
            `input_label` or `input_probabilities`.
        format: what a line holds; `auto` is `json` if the first line is such an object.

    Raises `UserError` naming the line that is not UTF-8, not such an object, or has half of a
    surrogate pair in it.
    """
    number = 0
    for lines in read_lines(source):
        records: list[dict[str, Any]] = []
        fault: UserError | None = None
        for line in lines:
            number += 1
            try:
                text = decode_line(line, f"input line {number}")
                if format == "auto":
                    format = "json" if _is_object(text) else "text"
                records.append(_record(text, number) if format == "json" else {"text": text})
            except UserError as error:
                fault = error
                break
        for answer in predict(model, records) if records else ():
            output.write(json.dumps(answer, ensure_ascii=False) + "\n")
        output.flush()
        if fault is not None:  # now that the lines before it are answered
            raise fault


def predict(model: Predictor, records: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each of the `records` (with a `text`) with its `label` and `probabilities` added."""
    log_probabilities = model.log_probabilities([record["text"] for record in records])
    for record, row in zip(records, np.exp(log_probabilities), strict=True):
        probabilities = dict(zip(model.labels, row.tolist(), strict=True))
        label = model.labels[int(row.argmax())]
        answer = {"label": label, "probabilities": probabilities}
        yield {**_renamed(record, answer), **answer}


def _renamed(record: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """The record with `input_` before keys that are taken, as often as it takes."""
    renamed: dict[str, Any] = {key: each for key, each in record.items() if key not in taken}
    for key in taken:
        if key in record:
            name = f"input_{key}"
            while name in record:
                name = f"input_{name}"
            renamed[name] = record[key]
    return renamed


def read_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """The lines that are there to be read, without their ends, again and again.

    Lines end at `\\n` alone; a byte order mark before the first is left out.
    """
    rest = io.BytesIO()  # of a line whose end is yet to come
    first = True
    read = getattr(source, "read1", source.read)
    while block := read(BLOCK):
        rest.write(block)
        if b"\n" not in block:
            continue
        *lines, begun = rest.getvalue().split(b"\n")
        rest = io.BytesIO()
        rest.write(begun)
        if first:
            lines[0], first = lines[0].removeprefix(_BOM), False
        yield lines
    if last := rest.getvalue():
        yield [last.removeprefix(_BOM) if first else last]


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
    if "\\u" in text:  # only an escape can spell half of a surrogate pair
        check_encodable(json.dumps(record, ensure_ascii=False), f"input line {number}")
    return record


def _parse(text: str, number: int) -> dict[str, Any]:
    if not text.strip():
        raise UserError(
            f'input line {number}: blank, in JSON lines; take it out, or give {{"text": ""}} for a '
            "document with no token"
        )
    try:
        record = json.loads(text)
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
