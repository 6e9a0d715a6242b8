"""Files of data: their lines and rows, and which of a folder are train, dev and test."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import logging
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, AnyStr, TextIO

from sopa_plugin.errors import UserError, brief, first_line, listed, shortened
from sopa_plugin.files import unique_keys

logger = logging.getLogger(__name__)


class DataError(UserError):
    """What is wrong with data that a reader was set for otherwise.

    Arguments:
        fault: what is wrong, and where.
        remedy: what to do for who writes the reader's config; others can do something else.
    """

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(fault, remedy)
        self.fault, self.remedy = fault, remedy

    def __str__(self) -> str:
        return brief(f"{self.fault} {self.remedy}")


@contextmanager
def remedied(remedy: str) -> Iterator[None]:
    """Has a `DataError` say what the user of a command can do, who writes no config."""
    try:
        yield
    except DataError as error:
        raise UserError(f"{error.fault.rstrip('.;')}; {remedy}") from error


HEAD = 2**20
"""Characters (or bytes) in which a file whose lines end at `\\n` has one."""


def line_end(head: AnyStr) -> AnyStr:
    """What ends the lines of a file that begins so."""
    old, new = ("\r", "\n") if isinstance(head, str) else (b"\r", b"\n")
    return old if old in head and new not in head else new


def read_lines(
    path: Path, encoding: str = "utf-8", keep_ends: bool = False
) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line, with or without its end) of a plain or gzip file."""
    number = 0
    try:
        if not _is_gzip(path):
            with path.open("rb") as raw:
                check_uncompressed(raw.read(10), str(path))
        with _open(path, encoding, newline="") as file:
            head = file.read(HEAD)
        _check_width(head, path, encoding)
        if _is_utf_8(head, encoding):
            _warn_of_utf_8(path, encoding)
        end = line_end(head)
        with _open(path, encoding, newline=end) as file:
            for number, line in enumerate(file, 1):
                if not line.isascii():
                    _check_bytes(line, path, number, encoding)
                if not keep_ends:
                    line = line.removesuffix(end).removesuffix("\r")
                yield number, line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError as error:  # encodings of several bytes a character, such as utf-16
        raise UserError(f"{path}:{number + 1}: not {encoding} ({error}).") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({first_line(error)}).") from None


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The whole text of a file, lines joined by `\\n`."""
    return "\n".join(line for _, line in read_lines(path, encoding))


def read_json_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, object) of a file with one JSON object a line, blank lines skipped."""
    for number, line in read_lines(path, encoding):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=unique_keys)
            if not isinstance(value, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{path}:{number}: expected one JSON object a line, found {shortened(line)} "
                f"({error})."
            ) from None
        if "\\u" in line:
            check_encodable(json.dumps(value, ensure_ascii=False), f"{path}:{number}")
        yield number, value


def read_records(
    path: Path,
    encoding: str = "utf-8",
    column_names: Sequence[str] | None = None,
    wanted: Sequence[str] = (),
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line where it starts, cells or values by name) of a file of CSV, TSV or JSON lines.

    Cells stay text. Tab-separated files are read without quoting, so that a bare `"` is a character
    like any other; others may quote cells, with delimiters, line ends and doubled quotes inside.

    Arguments:
        column_names: the columns of a file without a header row; by default the first row is it.
        wanted: names, each of which comes once among the columns, if at all; what parts the columns
            of `.csv` files is found out by them.
    """
    form = format_of(path.name)
    if form == "jsonl":
        yield from read_json_lines(path, encoding)
        return
    delimiter = "\t" if form == "tsv" else find_delimiter(path, encoding, column_names, wanted)
    header = list(column_names or ()) or read_header(path, delimiter, encoding)
    for name in wanted:
        if header.count(name) > 1:
            raise UserError(f"{path}: expected one column {name!r}, found {listed(header)}.")
    for line, row in islice(
        read_cells(path, delimiter, encoding, header), 0 if column_names else 1, None
    ):
        yield line, dict(zip(header, row, strict=True))


def read_cells(
    path: Path, delimiter: str, encoding: str, header: Sequence[str]
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line where the row starts, cells as they are there) of rows as wide as `header`."""
    for line, row in _numbered_cells(path, delimiter, encoding):
        if len(row) != len(header):
            hint = " (tab-separated files are read without quoting)" if delimiter == "\t" else ""
            raise UserError(
                f"{path}:{line}: expected {len(header)} cells ({listed(header)}), "
                f"found {len(row)}{hint}."
            )
        yield line, row


def read_header(path: Path, delimiter: str, encoding: str = "utf-8") -> list[str]:
    """The names in the first row."""
    for _, header in _numbered_cells(path, delimiter, encoding):
        return [name.strip() for name in header]
    raise UserError(f"{path}: empty; expected a header row with the column names.")


def find_delimiter(
    path: Path, encoding: str, column_names: Sequence[str] | None, wanted: Iterable[str]
) -> str:
    """Comma, semicolon or tab: what parts the first rows into as many cells as there are names.

    Where the names are in the first row, what finds most of the `wanted` ones there, or else the
    most columns. (`csv.Sniffer` takes the commonest mark of prose.)
    """
    scores = {}
    for delimiter in ",;\t":
        rows: list[list[str]] = []
        with suppress(UserError):  # of quotes that are none by this delimiter
            for _, cells in islice(_numbered_cells(path, delimiter, encoding), 20):
                rows.append(cells)
        if column_names:
            scores[delimiter] = sum(len(cells) == len(column_names) for cells in rows), 0
        else:
            header = [name.strip() for name in rows[0]] if rows else []
            scores[delimiter] = len(set(wanted) & set(header)), len(header)
    return max(scores, key=scores.__getitem__)


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
        "a".encode(name).decode(name, "surrogateescape")  # by which bad bytes are found
        return None
    except (LookupError, ValueError):
        return f"expected one like 'utf-8' or 'latin-1', found {shortened(name)}"


def _numbered_cells(path: Path, delimiter: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line where the row starts, cells), skipping empty lines."""
    if delimiter == "\t":
        for number, line in read_lines(path, encoding):
            if "\r" in line:
                raise UserError(f"{path}:{number}: a carriage return inside a row.")
            if line:
                yield number, line.split("\t")
        return
    csv.field_size_limit(2**31 - 1)  # the module's own limit, 128 KB, is less than a long document
    rows = csv.reader(
        (line for _, line in read_lines(path, encoding, keep_ends=True)),
        delimiter=delimiter,
        strict=True,
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


def check_uncompressed(head: bytes, name: str) -> None:
    """Raises `UserError` where a file that begins with `head` and is read as text is compressed."""
    if found := _COMPRESSED.match(head):
        raise UserError(
            f"{name}: compressed by {found.lastgroup}; unpack it first, since only files that end "
            "in .gz are unpacked as they are read, by gzip."
        )


_COMPRESSED = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<bzip2>BZh[1-9]1AY&SY)|(?P<xz>\xfd7zXZ\0)|(?P<zip>PK\x03\x04)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd)"
)
"""The first bytes of what is compressed."""


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _open(path: Path, encoding: str, newline: str) -> TextIO:
    # surrogateescape lets a bad byte through as a marker, so that its line can be named
    opener: Any = gzip.open if _is_gzip(path) else open
    file: TextIO = opener(path, "rt", encoding=encoding, errors="surrogateescape", newline=newline)
    return file


def _check_width(head: str, path: Path, encoding: str) -> None:
    """Whether a file that is read byte by byte has two or four bytes a character."""
    zeros = head.count("\0") / max(len(head), 1)
    marked = head[:2] in ("\udcff\udcfe", "\udcfe\udcff", "ÿþ", "þÿ")
    if zeros > 0.3 or (marked and head[0] > "\udc80"):
        found = "utf-32" if zeros > 0.6 else "utf-16"
        if not marked:
            found += "-be" if head[0] == "\0" else "-le"
        fault = f"{path}: not {encoding}, but {found};"
        raise DataError(fault, f"set dataset.encoding to {found!r}.")


def _is_utf_8(head: str, encoding: str) -> bool:
    """Whether a file that was read as something else, and begins so, is that by all signs."""
    if head.isascii() or codecs.lookup(encoding).name.startswith("utf-8"):
        return False
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")().decode(head.encode(encoding, "surrogateescape"))
        return True
    return False


@cache  # a file is opened several times
def _warn_of_utf_8(path: Path, encoding: str) -> None:
    logger.warning(
        "%s: read as %s, but by all signs it is utf-8: what is not ASCII comes out wrong "
        "(dataset.encoding, or --encoding of predict)", path, encoding,
    )  # fmt: skip


def _check_bytes(line: str, path: Path, number: int, encoding: str) -> None:
    escaped = next((char for char in line if "\udc80" <= char <= "\udcff"), None)
    if escaped is not None:
        raise DataError(
            f"{path}:{number}: byte 0x{ord(escaped) - 0xDC00:02x} is not {encoding};",
            "set dataset.encoding to what the file is in, for example 'latin-1' or 'cp1252'.",
        )


FORMATS = ("text", "csv", "tsv", "jsonl", "parquet")


def suffix_of(name: str) -> str:
    """The last suffix of a file's name, in small letters, before `.gz` if that is the last."""
    return Path(name.lower().removesuffix(".gz")).suffix


def format_of(name: str) -> str | None:
    """The format that the suffix of a file's name says."""
    suffix = suffix_of(name).removeprefix(".")
    found = {"txt": "text", "json": "jsonl"}.get(suffix, suffix)
    return found if found in FORMATS else None


SPLITS = ("train", "dev", "test")
_SPLIT_WORD = re.compile(
    r"(?<![a-z])(train(?:ing)?|dev(?:elopment)?|val(?:id|idation)?|test)(?![a-z])", re.IGNORECASE
)
_SHARD = re.compile(r"-\d+-of-(\d+)(?=\.parquet$)", re.IGNORECASE)
# what `datasets` writes beside the data
_NOTES = {"dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"}
Wanted = Callable[[Path], bool]
Files = dict[str, list[Path]]


def canonical_split(word: str) -> str:
    """`training` is train, `valid` and `validation` are dev; other words stay as they are."""
    lower = word.lower()
    for split, beginning in (("train", "train"), ("dev", "dev"), ("dev", "val")):
        if lower.startswith(beginning):
            return split
    return lower


def canonical_splits(found: Mapping[str, Any]) -> dict[str, Any]:
    """train, dev and test of what is there by other words for them."""
    named = {canonical_split(name): each for name, each in found.items()}
    return {split: named[split] for split in SPLITS if split in named}


def split_of(name: str) -> str | None:
    """`train`, `dev` or `test`, if the name has exactly one word for one of them."""
    words = _SPLIT_WORD.findall(name)
    return canonical_split(words[0]) if len(words) == 1 else None


def path_problem(path: str) -> str | None:
    """What is wrong with a path before anything is looked for, if anything."""
    try:
        os.stat(path)
    except ValueError:  # a NUL, half a surrogate pair
        return f"expected a path, found {shortened(path)}, which no file can be called"
    except OSError:  # is said when it is read
        pass
    if path and os.path.basename(os.path.abspath(path)):
        return None
    found = "the root folder" if path else "nothing"  # to the system, the current folder
    return f"expected a folder, a file or a Hub id, found {found}"


def is_stored(path: Path) -> bool:
    """Whether a path is a folder that `save_to_disk` wrote."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def is_parquet(path: Path) -> bool:
    """Whether a file is one by its name."""
    return path.suffix.lower() == ".parquet"


def entries(folder: Path) -> list[Path]:
    """What is in a folder, in order, but for what is hidden."""
    try:
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError:  # one that may not be looked into, say
        return []


def find_files(path: Path, wanted: Wanted, may_lack_split: Wanted | None = None) -> Files:
    """The files of each split of the one data set that a path means; none, if there is none.

    A data set is files whose names differ in the word for the split and the suffix only. A folder
    means the data set in it or in one of its folders; the beginning of file names
    (`sst/stsa.binary`) the one whose names begin so; a file the one that it belongs to, where it is
    chosen before others of its split.

    Arguments:
        wanted: whether a file, or folder, can be a split.
        may_lack_split: which files are a training set even if no split is in their name; those
            that the path names, in a folder only where there are no others.

    Raises:
        UserError: there are several data sets, or several files for one split.
    """
    folders = [path] if path.is_dir() else [path.parent]
    if path.is_dir():
        folders += [each for each in entries(path) if each.is_dir()]
    groups: dict[tuple[Path, str], Files] = defaultdict(lambda: defaultdict(list))
    alone: dict[tuple[Path, str], Files] = {}
    for folder in folders:
        for file in entries(folder):
            if file.name in _NOTES or not wanted(file):
                continue
            if split := split_of(file.name):
                groups[folder, _without_split(file.name)][split].append(file)
            elif may_lack_split and may_lack_split(file) and not _SPLIT_WORD.search(file.name):
                alone[folder, file.name] = {"train": [file]}
    if not groups or not path.is_dir():
        groups |= alone
    sets = [files for files in groups.values() if "train" in files] or list(groups.values())
    if path.is_file():
        sets = [files for files in sets if any(path in each for each in files.values())]
    elif not path.is_dir():
        sets = [files for files in sets if _first(files).name.startswith(path.name)]
    if len(sets) > 1:
        choices = "".join(f"\n  {_first(files)}" for files in sets)
        raise UserError(
            f"{path}: holds {len(sets)} data sets; set the path to a file of the one:{choices}"
        )
    found = sets[0] if sets else {}
    return {split: _one_set(found[split], split, path) for split in SPLITS if split in found}


def _one_set(files: list[Path], split: str, path: Path) -> list[Path]:
    """The file of a split, or its shards; the one that is named before others."""
    if path in files:
        return [path]
    shards = [_SHARD.search(file.name) for file in files]
    if len(files) > 1 and not all(shards):
        raise UserError(
            f"{files[0].parent}: both {files[0].name} and {files[1].name} could be the {split} "
            "set; keep one of them there."
        )
    if shards[0] and int(shards[0][1]) != len(files):
        raise UserError(
            f"{files[0].parent}: the {split} set is in {int(shards[0][1])} files by their names, "
            f"and {len(files)} of them are there."
        )
    return files


def _without_split(name: str) -> str:
    """What the files of one data set share: train.csv and test.tsv.gz belong together."""
    before, _, after = _SPLIT_WORD.split(_SHARD.sub("", name), maxsplit=1)
    return f"{before}\n{after.lower().removesuffix('.gz').rpartition('.')[0]}"


def _first(files: Mapping[str, list[Path]]) -> Path:
    return next(files[split][0] for split in SPLITS if split in files)
