"""Documents of a file or stream, block by block, and answers written beside what they are from.

Memory does not grow with the source: what has been read is answered before more is.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import logging
import re
import shutil
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain, islice, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from orjson import OPT_SERIALIZE_NUMPY, dumps

from sopa_plugin.data.sources import (
    HEAD,
    check_encodable,
    check_uncompressed,
    find_delimiter,
    format_of,
    line_end,
    read_cells,
    read_header,
    read_lines,
)
from sopa_plugin.errors import UserError, failing, listed, require, shortened
from sopa_plugin.files import is_same_file, unique_keys

BLOCK = 2**18  # bytes read at once: some thousand sentences
ROWS = 1000  # of a table, read at once
CONVERT = "convert it first, as with iconv -f latin1 -t utf-8"
"""What to do with text that is not UTF-8."""
_AS_TEXT = "--format text (explain: --input-format) would read a document a line"
_BOM = b"\xef\xbb\xbf"
_SHARES = b', "probabilities": '
Predict = Callable[[list[str]], NDArray[Any]]
"""Texts to probabilities of the classes, `[texts, labels]`."""
logger = logging.getLogger(__name__)


class DocumentStream(ABC):
    """Documents, each with the row that it is in.

    A text that is empty or missing is a document with no token, which is said of the first in a
    table or JSON lines. An answer that a row has a column for stands under `predicted_` and its
    name, so that the row keeps what it has.

    Attributes:
        name: of the source, for messages.
        form: as which answers are written.
    """

    form: str

    def __init__(self, name: str) -> None:
        self.name = name
        self._names: dict[str, str] = {}
        self._lacks_text = False

    @abstractmethod
    def blocks(self) -> Iterator[tuple[list[str], Any]]:
        """Some texts and their rows, again and again; `UserError` names a row that is none."""

    @abstractmethod
    def answered(
        self, predict: Predict, labels: Sequence[str], workers: int = 1
    ) -> Iterator[bytes]:
        """The rows as they were, each with its label and the probabilities after what it has.

        `predict` is called by so many `workers`, threads, at the same time; by one, what has been
        read is answered before more is.
        """

    def _answers(
        self, predict: Predict, labels: Sequence[Any], workers: int
    ) -> Iterator[tuple[Any, list[Any], NDArray[Any]]]:
        """Rows of a block with their labels and probabilities."""
        for rows, found in _in_order(predict, self.blocks(), workers):
            yield rows, [labels[each] for each in found.argmax(1).tolist()], found

    def _text(self, text: str | None, where: str) -> str:
        if not text or text.isspace():
            if not self._lacks_text:
                logger.warning("%s: no text; such rows have the answer for no token", where)
            self._lacks_text = True
        return text or ""

    def _free(self, name: str, taken: Collection[str]) -> str:
        before = self._names.get(name, name)  # as in the rows before
        free = free_name(before, taken)
        if free != before:
            self._names[name] = free
            logger.warning("%s: has its own %r; the answer is %r", self.name, name, free)
        return free

    def _columns(self, taken: Collection[str], labels: Sequence[str]) -> list[str]:
        """The columns of answers in a table."""
        return [self._free(each, taken) for each in answer_columns(labels)]


class Lines(DocumentStream):
    """Lines of plain text, or of JSON objects, as they come; blank ones among JSON are none.

    Answers are lines of JSON in UTF-8: `text`, or a line's own object as it was written, with
    `label` and `probabilities {label: p}`; numbers as orjson spells them, 1e-5 where Python has
    1e-05, and read back as they were.

    Arguments:
        source: UTF-8.
        text_column: the key of the text in objects.
        is_json: what a line holds; None: JSON if the first is an object.
    """

    form = "jsonl"

    def __init__(
        self, source: BinaryIO, name: str, text_column: str = "text", is_json: bool | None = None
    ) -> None:
        super().__init__(name)
        self.source, self.text_column, self.is_json = source, text_column, is_json

    def blocks(self) -> Iterator[tuple[list[str], list[tuple[bytes, bytes]]]]:
        """Rows: what stands before the label, and what between it and the probabilities.

        What comes before a faulty line is yielded before it is an error.
        """
        number = 0
        for lines in split_lines(self.source):
            if not number:
                check_uncompressed(lines[0], self.name)
            texts: list[str] = []
            rows: list[tuple[bytes, bytes]] = []
            try:
                for line in lines:
                    number += 1
                    try:
                        text = line.removesuffix(b"\r").decode()
                    except UnicodeDecodeError as error:
                        found = f"not UTF-8 (byte {line[error.start]:#04x}); {CONVERT}"
                        raise UserError(
                            f"{self.name}:{number}: {found}, or give --encoding"
                        ) from error
                    if self.is_json is None:
                        self.is_json = _is_object(text)
                    if not self.is_json:
                        texts.append(text)
                        rows.append((b'{"text": %b, "label": ' % dumps(text), _SHARES))
                    elif text.strip():
                        record = self._record(text, where := f"{self.name}:{number}")
                        texts.append(self._text(record[self.text_column], where))
                        label = f', "{self._free("label", record)}": '
                        shares = f', "{self._free("probabilities", record)}": '
                        before = text.rstrip()[:-1].rstrip()
                        rows.append(((before + label).encode(), shares.encode()))
            except UserError:
                yield texts, rows
                raise
            yield texts, rows

    def answered(
        self, predict: Predict, labels: Sequence[str], workers: int = 1
    ) -> Iterator[bytes]:
        names = [dumps(label) for label in labels]
        for rows, best, found in self._answers(predict, names, workers):
            # numbers of a whole block at once, and nothing else for each line
            plain = np.ascontiguousarray(found.T, np.float64).reshape(-1)
            numbers = dumps(plain, option=OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
            columns: list[Iterable[bytes]] = [*zip(*rows, strict=True)]
            columns.insert(1, best)
            for i, name in enumerate(names):
                columns.append(repeat(b"%b%b: " % (b", " if i else b"{", name), len(rows)))
                columns.append(numbers[i * len(rows) : (i + 1) * len(rows)])
            columns.append(repeat(b"}}\n", len(rows)))
            written = b"".join(chain.from_iterable(zip(*columns, strict=True)))
            yield _OBEYED.sub(lambda code: b"\\u%04x" % ord(code[0].decode()), written)

    def _record(self, text: str, where: str) -> dict[str, Any]:
        try:
            record = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_no_number)
            if not isinstance(record, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{where}: not JSON ({error}); expected an object a line; {_AS_TEXT}"
            ) from error
        _check_column(self.text_column, list(record), where)
        found = record[self.text_column]
        if found is not None and not isinstance(found, str):
            raise UserError(f"{where}: {self.text_column!r} is not text: {shortened(found)}")
        if "\\u" in text:  # only an escape can spell half of a surrogate pair
            check_encodable(found or "", where)
        return record


_OBEYED = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""What JSON need not escape and a terminal would obey: DEL, C1 and what turns text round."""


class Rows(DocumentStream):
    """A `.csv` or `.tsv` file, read as by the reader `text`, with answers in columns of their own.

    Arguments:
        column: of the text.
        names: of the columns, where the first row does not name that of the text.
        form: `csv` or `tsv`.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        column: str,
        encoding: str,
        names: Sequence[str] | None,
        form: str,
    ) -> None:
        super().__init__(name)
        delimiter = "\t" if form == "tsv" else find_delimiter(path, encoding, names, [column])
        header = read_header(path, delimiter, encoding)
        self.first_row = 0 if names and column not in header else 1
        self.header = header if self.first_row else list(names or ())
        _check_column(column, self.header, f"{name}:1")
        self.form, self.column = form, self.header.index(column)
        self.path, self.encoding, self.delimiter = path, encoding, delimiter

    def blocks(self) -> Iterator[tuple[list[str], list[list[str]]]]:
        rows = islice(self._rows(), self.first_row, None)
        while block := list(islice(rows, ROWS)):
            texts = [self._text(row[self.column], f"{self.name}:{line}") for line, row in block]
            yield texts, [row for _, row in block]

    def answered(
        self, predict: Predict, labels: Sequence[str], workers: int = 1
    ) -> Iterator[bytes]:
        write = self._writer()
        added = self._columns(self.header, labels)
        if self.delimiter == "\t" and any(set("\t\r\n") & set(each) for each in labels):
            raise UserError(f"{self.name}: a label has a tab or a line end; convert it to .jsonl")
        yield write([[*row, *added] for _, row in islice(self._rows(), self.first_row)])
        for rows, best, found in self._answers(predict, labels, workers):
            answers = zip(rows, best, found.tolist(), strict=True)
            yield write([[*row, label, *each] for row, label, each in answers])

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        return read_cells(self.path, self.delimiter, self.encoding, self.header)

    def _writer(self) -> Callable[[list[list[Any]]], bytes]:
        """Rows to bytes, with the file's own line ends, encoding and byte order mark."""
        _, first = next(read_lines(self.path, self.encoding, keep_ends=True))
        end = first[len(first.rstrip("\r\n")) :] or "\n"
        encoding = self.encoding
        with self.path.open("rb") as file:
            if file.read(len(_BOM)) == _BOM and codecs.lookup(encoding).name == "utf-8":
                encoding = "utf-8-sig"
        encoder = codecs.getincrementalencoder(encoding)()
        written: list[str] = []
        # csv quotes those line ends only that are its own
        sink = SimpleNamespace(write=lambda row: written.append(row.removesuffix("\r\n") + end))
        writer = csv.writer(sink, delimiter=self.delimiter, lineterminator="\r\n")

        def write(rows: list[list[Any]]) -> bytes:
            written.clear()
            if self.delimiter == "\t":  # read without quoting
                written.extend("\t".join(map(str, row)) + end for row in rows)
            else:
                writer.writerows(rows)
            return encoder.encode("".join(written))

        return write


class ParquetRows(DocumentStream):
    """A Parquet file; its columns keep their types and metadata, answers have their own."""

    form = "parquet"

    def __init__(self, path: Path, name: str, text_column: str) -> None:
        require("pyarrow", f"{name}: Parquet", extra=None)
        from pyarrow import parquet, types

        super().__init__(name)
        self.text_column = text_column
        with failing(self.name, "cannot be read as Parquet"):
            self.file = parquet.ParquetFile(path)
            self.schema = self.file.schema_arrow
        _check_column(text_column, self.schema.names, name)
        kind = self.schema.field(text_column).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if str(kind) not in ("string", "large_string", "string_view", "null"):
            raise UserError(f"{name}: {text_column!r} is not text, but {kind}")

    def blocks(self) -> Iterator[tuple[list[str], Any]]:
        """Rows: record batches."""
        start = 1
        with failing(self.name, "cannot be read as Parquet"):
            for batch in self.file.iter_batches(batch_size=ROWS):
                texts = enumerate(batch.column(self.text_column).to_pylist(), start)
                yield [self._text(each, f"{self.name}, row {row}") for row, each in texts], batch
                start += len(batch)

    def answered(
        self, predict: Predict, labels: Sequence[str], workers: int = 1
    ) -> Iterator[bytes]:
        import pyarrow
        from pyarrow import parquet

        kinds = [pyarrow.string(), *[pyarrow.float64()] * len(labels)]
        added = map(pyarrow.field, self._columns(self.schema.names, labels), kinds)
        schema = pyarrow.schema([*self.schema, *added], metadata=self.schema.metadata)
        with tempfile.TemporaryFile() as file:  # a pipe cannot tell where it is
            with parquet.ParquetWriter(file, schema) as writer:
                for batch, best, found in self._answers(predict, labels, workers):
                    answers = map(pyarrow.array, [best, *found.T.tolist()], kinds)
                    columns = [*batch.columns, *answers]
                    writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
            file.seek(0)
            while block := file.read(BLOCK):
                yield block


@contextmanager
def open_documents(
    source: BinaryIO,
    name: str,
    format: str | None = None,
    text_column: str = "text",
    encoding: str = "utf-8",
    column_names: Sequence[str] | None = None,
) -> Iterator[DocumentStream]:
    """The documents of a source that need not be one to go back in.

    Arguments:
        source: an open file.
        name: its own, for messages and, by its suffix, the format.
        format: one of `sources.FORMATS`; `text` is a document a line. Where nothing says it: JSON
            lines if the first is an object, else text.
        text_column: the column or key of the text.
        encoding: of all but Parquet.
        column_names: the columns of tables without a header row.

    Raises `UserError` with the place, what was expected and what to do.
    """
    form = format or format_of(name)
    path = Path(name)
    with ExitStack() as files:
        try:
            # tables are read more than once
            if form in ("csv", "tsv", "parquet") and not is_same_file(path, source):
                path = Path(files.enter_context(tempfile.TemporaryDirectory()), "input")
                with path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            if form in ("csv", "tsv"):
                yield Rows(path, name, text_column, encoding, column_names, form)
            elif form == "parquet":
                yield ParquetRows(path, name, text_column)
            else:
                lines: Any = source
                if name.lower().endswith(".gz"):
                    lines = gzip.GzipFile(fileobj=lines)
                if codecs.lookup(encoding).name != "utf-8":
                    recoder = codecs.EncodedFile(lines, "utf-8", encoding)
                    lines = SimpleNamespace(read=recoder.read)  # its other methods do not recode
                is_json = None if form is None else form == "jsonl"
                yield Lines(lines, name, text_column, is_json)
        except (EOFError, UnicodeError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{name}: cannot be read or written so ({error})") from error
        except UserError as error:
            message = str(error).replace(str(path), name)
            message = message.replace("dataset.encoding", "--encoding")
            if message == str(error):
                raise
            raise UserError(message) from error


def answer_columns(labels: Sequence[str]) -> list[str]:
    """The columns of answers: the label, then each one's probability."""
    return ["label", *map("probability_{}".format, labels)]


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of an answer beside columns that have names already."""
    while name in taken:
        name = f"predicted_{name}"
    return name


def _check_column(column: str, columns: Sequence[str], where: str) -> None:
    if columns.count(column) != 1:
        raise UserError(
            f"{where}: expected one column {shortened(column)}; the columns are {listed(columns)}. "
            f"Give --text-column with the one of the text; {_AS_TEXT}"
        )


def _in_order(
    predict: Predict, blocks: Iterable[tuple[list[str], Any]], workers: int
) -> Iterator[tuple[Any, NDArray[Any]]]:
    """The rows of blocks that have texts, and the probabilities of these."""
    if workers == 1:
        yield from ((rows, predict(texts)) for texts, rows in blocks if texts)
        return
    running = deque[tuple[Any, Future[NDArray[Any]]]]()
    fault: UserError | None = None
    with ThreadPoolExecutor(workers) as pool:
        try:
            for texts, rows in blocks:
                if texts:
                    running.append((rows, pool.submit(predict, texts)))
                if len(running) > 2 * workers:
                    rows, answer = running.popleft()
                    yield rows, answer.result()
        except UserError as error:  # comes after the answers to what is before it
            fault = error
        for rows, answer in running:
            yield rows, answer.result()
    if fault is not None:
        raise fault


def split_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """The lines that are there to be read, without their ends, again and again.

    They end as those of files do (`sopa_plugin.data.sources`); a byte order mark before the
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


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _no_number(written: str) -> float:
    raise ValueError(f"{written} is no number that JSON can hold")
