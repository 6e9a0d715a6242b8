"""Files of word vectors as text: read in a stream, keeping only the rows that are wanted."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm  # type: ignore[import-untyped]

from sopa_plugin.errors import HUB_HELP, UserError, failing

HUB = "hf://"
_DAMAGE = (EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error)
_HEAD = 100  # rows that vote on the dimension; a few may have words with blanks
_CASED_WORDS = 100_000  # of a file that is not cased
_BAR_ROWS = 4096  # rows between two looks at the progress


class VectorFile:
    """Word vectors in GloVe's or word2vec's text format, plain or compressed with gzip or zip.

    A row is a word and its numbers, separated by blanks; a word may hold blanks itself, since the
    numbers are counted from the right. A first row `COUNT DIM` (word2vec) is skipped. Of several
    rows for one word the first counts.

    Arguments:
        path: A local file, or `hf://OWNER/NAME/FILE` for a file of a model on the Hugging Face Hub.
        member: The file within a zip archive that holds several.

    Raises:
        UserError: There is no such file, or it is not of this format (naming file and line).
    """

    def __init__(self, path: str, member: str | None = None) -> None:
        self._name = path
        self._path = _from_hub(path) if path.startswith(HUB) else os.path.expanduser(path)
        if not os.path.isfile(self._path):
            what = "is a folder" if os.path.isdir(self._path) else "no such file"
            raise UserError(
                f"{path}: {what}; expected a file of word vectors as text "
                f"(relative paths are taken from {os.getcwd()})"
            )
        self._member = member
        self._has_header, self.dim = self._inspect()

    def words(self) -> Iterator[str]:
        """The words in the order of the file; repeated where the file repeats them."""
        for _, word, _ in self._rows():
            yield word.decode("utf-8", "replace")

    def is_cased(self) -> bool:
        """Whether the most frequent words, which come first in most files, have capitals."""
        return any(word != word.lower() for word in islice(self.words(), _CASED_WORDS))

    def read(
        self, rows: Mapping[str, int], normalize: Callable[[str], str] | None = None
    ) -> tuple[NDArray[np.float32], list[int]]:
        """The vectors of the words in `rows`.

        Arguments:
            rows: For each word its row in the answer.
            normalize: A word with no row of its own in the file takes the first row whose word is
                equal to it once normalised (`Paris` stands for `paris` in lower-cased text).

        Returns:
            The vectors `[largest row + 1, dim]`, zero for words that the file lacks, and the rows
            that were found.

        Raises:
            UserError: A wanted row has something else than finite numbers; any row has more or
                fewer than the others; or the file is damaged.
        """
        vectors = np.zeros((max(rows.values(), default=-1) + 1, self.dim), dtype=np.float32)
        exact = {word.encode(): row for word, row in rows.items()}
        near = dict(exact) if normalize is not None else {}
        found: set[int] = set()
        for line, word, numbers in self._rows():
            row = exact.pop(word, None)
            if row is None and normalize is not None and word not in near:
                near_word = normalize(word.decode("utf-8", "replace")).encode()
                row = near.get(near_word)
                row = None if row in found else row
            if row is not None:
                vectors[row] = self._parse(line, numbers)
                found.add(row)
        return vectors, sorted(found)

    def _rows(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Line number, word and numbers of each row."""
        for line, text in self._lines(show=True):
            if line == 1 and self._has_header:
                continue
            text = text.rstrip()
            if text.count(b" ") == self.dim:
                word, _, numbers = text.partition(b" ")
            else:
                word, numbers = self._split(line, text)
            if word:
                yield line, word, numbers

    def _split(self, line: int, text: bytes) -> tuple[bytes, bytes]:
        """Word and numbers of a row that has blanks in its word, several in a row, or tabs."""
        fields = text.split()
        if not fields or (len(fields) == self.dim and text[:1].isspace()):
            return b"", b""  # an empty line or an empty word
        word, numbers = fields[: -self.dim], fields[-self.dim :]
        if not word:
            self._fail(line, f"expected a word and {self.dim} numbers, found {len(fields) - 1}")
        dotted = any(b"." in number for number in numbers)
        if all(_is_number(field, dotted) for field in word[1:]) and len(word) > 1:
            self._fail(line, f"expected {self.dim} numbers as elsewhere, found {len(fields) - 1}")
        return b" ".join(word), b" ".join(numbers)

    def _parse(self, line: int, numbers: bytes) -> NDArray[np.float32]:
        try:
            with np.errstate(over="ignore"):  # the check below says more
                vector = np.array(numbers.split(), dtype=np.float32)
        except ValueError:
            fields = numbers.split()
            wrong = next((each for each in fields if not _is_number(each, dotted=False)), numbers)
            self._fail(line, f"expected {self.dim} numbers, found {_show(wrong)} among them")
        if len(vector) != self.dim:
            self._fail(line, f"expected {self.dim} numbers, found {len(vector)}")
        if not np.isfinite(vector).all():
            self._fail(line, "expected finite numbers, found nan or inf (or one too large)")
        return vector

    def _inspect(self) -> tuple[bool, int]:
        """Whether the file has a header row, and the dimension of its vectors."""
        head = [text for _, text in islice(self._lines(show=False), _HEAD + 1)]
        if not head:
            self._fail(1, "the file is empty; expected rows of a word and its numbers")
        first = head[0].split()
        if head[0][:1].isdigit() and len(first) == 2 and all(each.isdigit() for each in first):
            dim, has_header = int(first[1]), True
        else:
            counts = Counter(len(text.split()) - 1 for text in head if text.strip())
            # of equally frequent counts the smallest: words with blanks only ever add fields
            dim, has_header = max(counts, key=lambda n: (counts[n], -n), default=0), False
        row = head[has_header].split() if len(head) > has_header else []
        if dim < 1 or len(row) < dim or not all(_is_number(each, False) for each in row[-dim:]):
            self._fail(1 + has_header, _diagnose(head[has_header:] or head))
        return has_header, dim

    def _lines(self, show: bool) -> Iterator[tuple[int, bytes]]:
        """Line number (from 1) and text of each line, with a progress bar in bytes if `show`."""
        line = 0
        size = os.path.getsize(self._path)
        # disable=None: no bar where the output is not a terminal
        bar = tqdm(
            desc=f"Reading {os.path.basename(self._path)}",
            total=size,
            unit="B",
            unit_scale=True,
            disable=None if show else True,
            delay=1,
            leave=False,
        )
        try:
            with bar, ExitStack() as stack:
                file = stack.enter_context(open(self._path, "rb"))
                for line, text in enumerate(self._open(file, stack), start=1):
                    if line % _BAR_ROWS == 0:
                        bar.update(file.tell() - bar.n)
                    yield line, text.removeprefix(b"\xef\xbb\xbf") if line == 1 else text
        except _DAMAGE as error:
            self._fail(line + 1, f"damaged or cut short ({error}); fetch the file again")

    def _open(self, file: BinaryIO, stack: ExitStack) -> Iterable[bytes]:
        """The text in `file`; its first bytes tell whether it is compressed, not its name."""
        magic = file.read(4)
        file.seek(0)
        if magic == b"PK\x03\x04":
            archive = stack.enter_context(zipfile.ZipFile(file))
            return stack.enter_context(archive.open(self._choose_member(archive)))
        if self._member is not None:
            raise UserError(f"{self._name}: not a zip archive, so it has no member {self._member}")
        if magic.startswith(b"\x1f\x8b"):
            return stack.enter_context(gzip.open(file))
        return file

    def _choose_member(self, archive: zipfile.ZipFile) -> str:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        names = [name for name in names if not name.startswith("__MACOSX/")]
        if self._member in names:
            return self._member
        if self._member is None and len(names) == 1:
            return names[0]
        raise UserError(
            f"{self._name}: expected `member` to name one of the files in this archive, "
            f"{', '.join(names) or '(none)'}; found {self._member or 'no `member`'}"
        )

    def _fail(self, line: int, message: str) -> NoReturn:
        where = f"{self._name}({self._member})" if self._member else self._name
        raise UserError(f"{where}:{line}: {message}")


def _is_number(field: bytes, dotted: bool) -> bool:
    """Whether `field` is a number; one with a decimal point (or exponent) if `dotted`."""
    try:
        float(field)
    except ValueError:
        return False
    return not dotted or not field.isdigit()


def _diagnose(head: list[bytes]) -> str:
    """What a file that has no vectors is likely to be."""
    start = head[0].lstrip().lower()
    guess = ""
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        guess = "; this is a web page: the download went wrong, fetch the file again"
    elif start.startswith(b"version https://git-lfs"):
        guess = "; this is a pointer of git-lfs: run `git lfs pull`"
    elif any(b"\0" in text for text in head):
        guess = "; this is a binary file: convert it to word2vec's text format first"
    elif len(head) == 1 and len(start.split()) == 1:
        guess = "; this looks like a link to the file: fetch the file itself"
    return f"expected a word and its numbers, found {_show(head[0])}{guess}"


def _show(text: bytes) -> str:
    text = text.strip()
    return repr(text[:60].decode("utf-8", "replace") + ("..." if len(text) > 60 else ""))


def _from_hub(path: str) -> str:
    parts = path.removeprefix(HUB).split("/", 2)
    if len(parts) < 3:
        raise UserError(f"{path}: expected {HUB}OWNER/NAME/FILE")
    from huggingface_hub import hf_hub_download

    with failing(path, "no such file in reach", f"{HUB_HELP}, or give a local file"):
        return hf_hub_download("/".join(parts[:2]), parts[2])
