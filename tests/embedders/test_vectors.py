from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_plugin.embedders.vectors import VectorFile
from sopa_plugin.errors import UserError

PLAIN = b"the 1 2.5\nof -1 0\n"
SHARED = Path(__file__).resolve().parents[3] / "shared"


def write(folder: Path, content: bytes, name: str = "vectors.txt") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def read(path: str, *words: str, **options: str) -> dict[str, list[float]]:
    """The vectors of the words that the file has."""
    vectors, found = VectorFile(path, **options).read({word: n for n, word in enumerate(words)})
    return {words[row]: vectors[row].tolist() for row in found}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(PLAIN, id="GloVe"),
        pytest.param(b"2 2\n" + PLAIN, id="word2vec's header"),
        pytest.param(PLAIN.replace(b"\n", b" \n"), id="word2vec's blank at the end"),
        pytest.param(PLAIN.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN, id="byte order mark"),
        pytest.param(PLAIN.strip(), id="no final newline"),
        pytest.param(PLAIN.replace(b" ", b"\t"), id="tabs"),
        pytest.param(PLAIN.replace(b" ", b"  "), id="double blanks"),
        pytest.param(PLAIN + b"\n\n", id="empty lines"),
        pytest.param(PLAIN + b"the 7 7\nof 7 7\n", id="duplicates: the first counts"),
        pytest.param(b". . . 0 9\nthe old 9 9\n" + PLAIN, id="words with blanks"),
        pytest.param(b"catch 22 0.5 0.5\n" + PLAIN.replace(b"2.5", b"2.5"), id="number in a word"),
        pytest.param(b" 3 4\n" + PLAIN, id="empty word"),
        pytest.param(b"bad\xff\xfe 3 4\n" + PLAIN, id="a word in another encoding"),
        pytest.param(b"a\xe2\x80\xa8b 3 4\nc\xc2\x85d 3 4\n" + PLAIN, id="unicode line breaks"),
        pytest.param(gzip.compress(PLAIN), id="gzip whatever its name"),
    ],
)
def test_reads_files_as_they_are(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    assert VectorFile(path).dim == 2
    assert read(path, "of", "the", "absent") == {"of": [-1, 0], "the": [1, 2.5]}
    assert {"the", "of"} <= set(VectorFile(path).words())


def test_words_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, b"b 1 2\n. . . 1 2\na 1 2\nb 1 2\n\xc3\xa9\xc2\xa0e 1 2\n")
    assert list(VectorFile(path).words()) == ["b", ". . .", "a", "b", "\u00e9\u00a0e"]


def test_a_no_break_space_is_part_of_a_word(tmp_path: Path) -> None:
    path = write(tmp_path, "a\u00a0b 1 2\na 3 4\n".encode())
    assert read(path, "a\u00a0b", "a", "b") == {"a\u00a0b": [1, 2], "a": [3, 4]}


def test_an_exact_row_comes_before_a_folded_one(tmp_path: Path) -> None:
    path = write(tmp_path, b"The 9 9\nParis 1 2\nPARIS 3 4\nthe 5 6\nTHE 9 9\n")
    vectors, found = VectorFile(path).read({"the": 0, "paris": 1, "rome": 2}, str.lower)
    assert vectors.tolist() == [[5, 6], [1, 2], [0, 0]]
    assert found == [0, 1]
    vectors, found = VectorFile(path).read({"the": 0, "paris": 1})
    assert found == [0]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", 1, "empty"),
        (b"<!DOCTYPE html>\n<html><body>Not found 404</body>\n", 1, "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", 1, "git lfs pull"),
        (b"../.git/annex/objects/Xk/8j/SHA256E-s822", 1, "link to the file"),
        (b"2 3\nword \x00\x01\x80\x3f\x00\x00\nab\x00\x00", 2, "binary"),
        (b"just\nwords\n", 1, "a word and its numbers"),
        (b"2 2\n", 2, "a word and its numbers"),
        (b"a 1 2\nb 1 2\nc 1 2 3\n", 3, "expected 2 numbers as elsewhere, found 3"),
        (b"a 1.0 2.0\nb 1.0 2.0\nc 0.5 1.0 2.0\n", 3, "expected 2 numbers as elsewhere, found 3"),
        (b"a 1 2\nb 1 2\nc 1\n", 3, "a word and 2 numbers, found 1"),
        (b"3 3\na 1 2\n", 2, "a word and its numbers"),
        (b"a 1 2\nthe 1 two\n", 2, "found 'two' among them"),
        (b"a 1 2\nthe 1 nan\n", 2, "finite"),
        (b"a 1 2\nthe 1 1e60\n", 2, "finite"),
        (gzip.compress(PLAIN * 5000, mtime=0)[:-40], None, "cut short"),
        (b"PK\x03\x04 and no more", 1, "damaged or cut short"),
    ],
)
def test_what_is_wrong_names_file_and_line(
    tmp_path: Path, content: bytes, line: int | None, message: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(UserError) as caught:
        read(path, "the")
    assert str(caught.value).startswith(f"{path}:{'' if line is None else f'{line}: '}")
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "message"), [("none.txt", "no such file"), (".", "is a folder")])
def test_a_missing_file(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        VectorFile(str(tmp_path / name))


def test_a_file_of_the_hub_that_is_not_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE"):
        VectorFile("hf://no-one/nothing/glove.txt")
    with pytest.raises(UserError, match="OWNER/NAME/FILE"):
        VectorFile("hf://glove.txt")


def test_zip_archives(tmp_path: Path) -> None:
    path = str(tmp_path / "glove.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("glove/", b"")
        archive.writestr("__MACOSX/glove.2d.txt", b"\x00")
        archive.writestr("glove/2d.txt", PLAIN)
    assert read(path, "of") == {"of": [-1, 0]}
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("glove/1d.txt", b"of 7.5\nthe 1\n")
    with pytest.raises(UserError, match=r"glove/2d\.txt, glove/1d\.txt.*no `member`"):
        VectorFile(path)
    assert read(path, "of", member="glove/1d.txt") == {"of": [7.5]}
    with pytest.raises(UserError, match="found other"):
        VectorFile(path, "other")
    with pytest.raises(UserError, match="not a zip archive"):
        VectorFile(write(tmp_path, PLAIN), "other")
    with pytest.raises(UserError, match="not a zip archive"):
        VectorFile(write(tmp_path, gzip.compress(PLAIN)), "other")


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, PLAIN)
    assert read("~/vectors.txt", "of") == {"of": [-1, 0]}
    with pytest.raises(UserError, match="~/none: no such file"):
        VectorFile("~/none")


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\f\v")),
        st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3
        ),
    )
)
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, table: dict) -> None:
    table.pop("", None)
    lines = [f"{word} {' '.join(map(repr, vector))}\n" for word, vector in table.items()]
    content = "".join(["start 0 0 0\n", *lines]).encode()
    path = write(tmp_path_factory.mktemp("hypothesis"), content)
    vectors, found = VectorFile(path).read({word: row for row, word in enumerate(table)})
    first = dict(table)
    if "start" in first:
        first["start"] = [0, 0, 0]
    expected = np.array(list(first.values()), dtype=np.float32).reshape(-1, 3)
    assert found == list(range(len(table)))
    np.testing.assert_array_equal(vectors, expected)


def test_a_header_of_another_dimension_is_named_with_a_row(tmp_path: Path) -> None:
    path = write(tmp_path, b"2 3\ngood 1 2\nbad 3 4\n")
    with pytest.raises(UserError, match="2: expected a word and its numbers, found 'good 1 2'"):
        VectorFile(path)


def test_real_glove() -> None:
    path = SHARED / "data/vectors/glove.6B.100d.tasks.txt"
    if not path.exists():
        pytest.skip("the real GloVe vectors are not here (shared/data/vectors)")
    with open(path, "rb") as file:
        _, *numbers = next(line for line in file if line.startswith(b"film ")).split()
    vectors, found = VectorFile(str(path)).read({"film": 1, "no-such-word": 0})
    assert found == [1]
    np.testing.assert_array_equal(vectors[1], np.array(numbers, dtype=np.float32))
    assert not vectors[0].any()
