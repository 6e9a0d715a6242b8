from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_plugin.data.sources import (
    encoding_problem,
    read_json_lines,
    read_lines,
    read_records,
)
from sopa_plugin.errors import UserError


def save(folder: Path, content: bytes, name: str = "data.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "separator", ["\u2028", "\u0085", "\x0c", "\x0b", "\x1c", "\r", "\u00a0"], ids=ascii
)
def test_a_line_ends_at_a_newline_only(tmp_path: Path, separator: str) -> None:
    path = save(tmp_path, f"one{separator}two\nthree".encode())
    assert list(read_lines(path)) == [(1, f"one{separator}two"), (2, "three")]


def test_carriage_returns_and_byte_order_mark_are_dropped(tmp_path: Path) -> None:
    path = save(tmp_path, b"\xef\xbb\xbfone\r\ntwo\r\n\r\nfour")
    assert list(read_lines(path)) == [(1, "one"), (2, "two"), (3, ""), (4, "four")]


def test_lines_of_an_old_mac_end_at_carriage_returns(tmp_path: Path) -> None:
    path = save(tmp_path, "\ufeffone\rtwo\u2028\r\rfour\r".encode())
    assert list(read_lines(path)) == [(1, "one"), (2, "two\u2028"), (3, ""), (4, "four")]
    path = save(tmp_path, b'text,label\r"a, b",x\rc,y\r')
    assert [row["text"] for _, row in read_records(path)] == ["a, b", "c"]
    # one inside a row of a file with other line ends is a fault that has a place
    path = save(tmp_path, b"text,label\na\rb,x\n")
    with pytest.raises(UserError, match=r"data\.txt:2: not a row of cells"):
        list(read_records(path))


@pytest.mark.parametrize(
    "name", ["utf-9", "", "a\0b", "rot13", "base64", "undefined", "idna", "\ud800"]
)
def test_names_of_encodings_that_are_none(name: str) -> None:
    assert "expected one like 'utf-8'" in str(encoding_problem(name))
    assert encoding_problem("cp1252") is encoding_problem("utf-16") is None


@pytest.mark.parametrize("text", ["text,label\n", "你好,标签\n", "é,ü\n"])
def test_wide_encodings_are_recognised(tmp_path: Path, text: str) -> None:
    for written, found in [("utf-16", "utf-16"), ("utf-32", "utf-(16|32)")]:
        for read_as in ("utf-8", "latin-1") if text.isascii() else ("utf-8",):
            path = save(tmp_path, text.encode(written))
            with pytest.raises(
                UserError, match=f"not {read_as}, but .*dataset.encoding to '{found}'"
            ):
                list(read_lines(path, read_as))
    for written in ("utf-16-le", "utf-16-be") if text.isascii() else ():
        with pytest.raises(UserError, match=f"not utf-8, but {written}; set dataset.encoding"):
            list(read_lines(save(tmp_path, text.encode(written))))


def test_a_line_of_14_kb_stays_whole(tmp_path: Path) -> None:
    line = "word " * 2_900
    assert list(read_lines(save(tmp_path, line.encode()))) == [(1, line)]


def test_bytes_of_another_encoding_are_an_error_with_their_line(tmp_path: Path) -> None:
    path = save(tmp_path, "fine\ncafé\n".encode("latin-1"))
    with pytest.raises(
        UserError, match=r"data\.txt:2: byte 0xe9 is not utf-8; set dataset.encoding"
    ):
        list(read_lines(path))
    assert list(read_lines(path, "latin-1")) == [(1, "fine"), (2, "café")]


def test_utf_8_read_as_something_else_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ascii, latin = (save(tmp_path, text, str(len(text))) for text in (b"fine", b"caf\xe9 au lait"))
    utf_8 = save(tmp_path, "café".encode())
    for _ in range(2):
        for path in (ascii, latin, utf_8):
            list(read_lines(path, "cp1252"))
        list(read_lines(utf_8, "utf-8-sig"))
    (message,) = caplog.messages
    assert "data.txt: read as cp1252, but by all signs it is utf-8" in message


def test_other_encodings(tmp_path: Path) -> None:
    path = save(tmp_path, "ein\nzwei ü".encode("utf-16"))
    assert list(read_lines(path, "utf-16")) == [(1, "ein"), (2, "zwei ü")]


def test_gzip(tmp_path: Path) -> None:
    path = save(tmp_path, gzip.compress(b"eins\nzwei"), "data.txt.gz")
    assert list(read_lines(path)) == [(1, "eins"), (2, "zwei")]
    for broken in (b"not gzip", path.read_bytes()[:-4]):
        with pytest.raises(UserError, match=r"data\.txt\.gz: cannot be read"):
            list(read_lines(save(tmp_path, broken, "data.txt.gz")))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing: cannot be read \(No such file"):
        list(read_lines(tmp_path / "nothing"))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_comma_separated_cells_stay_text(tmp_path: Path) -> None:
    content = (
        'text,label\r\n"one, ""two""\r\nthree",0\r\nNA,1\r\nnull,0\r\n\r\n1.50,1\r\nsay "so",0\r\n'
    )
    path = save(tmp_path, content.encode(), "data.csv")
    assert list(read_records(path)) == [
        (2, {"text": 'one, "two"\r\nthree', "label": "0"}),
        (4, {"text": "NA", "label": "1"}),
        (5, {"text": "null", "label": "0"}),
        (7, {"text": "1.50", "label": "1"}),
        (8, {"text": 'say "so"', "label": "0"}),
    ]


def test_a_cell_longer_than_the_csv_module_likes(tmp_path: Path) -> None:
    text = "word " * 40_000
    path = save(tmp_path, f'text,label\n"{text}",1\n'.encode(), "data.csv")
    assert list(read_records(path)) == [(2, {"text": text, "label": "1"})]


def test_bare_quotes_in_tab_separated_text(tmp_path: Path) -> None:
    path = save(tmp_path, b'text\tlabel\n"so\t1\n6" screen\t0\n', "data.tsv")
    assert [row["text"] for _, row in read_records(path)] == ['"so', '6" screen']


def test_tables_without_a_header(tmp_path: Path) -> None:
    path = save(tmp_path, b"3,good\n1,bad\n")
    rows = list(read_records(path, column_names=["label", "text"]))
    assert rows == [(1, {"label": "3", "text": "good"}), (2, {"label": "1", "text": "bad"})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty; expected a header row"),
        (b"text,label\na,1\nb,c,1\n", r":3: expected 2 cells \('text', 'label'\), found 3"),
        (b'text,label\na,1\n"b,1\nc,1\n', ":3: not a row of cells parted by ','"),
    ],
)
def test_faulty_tables(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(read_records(save(tmp_path, content)))


def test_json_lines(tmp_path: Path) -> None:
    path = save(tmp_path, '{"text": "a\u2028b"}\r\n\n{"text": "NA"}'.encode())
    assert list(read_json_lines(path)) == [(1, {"text": "a\u2028b"}), (3, {"text": "NA"})]
    for content in (b'{"a": 1}\n{"a": \n', b'{"a": 1}\n[1]\n'):
        with pytest.raises(UserError, match=":2: expected one JSON object a line"):
            list(read_json_lines(save(tmp_path, content)))


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))))
def test_lines_come_back_as_written(tmp_path_factory: pytest.TempPathFactory, lines: list) -> None:
    path = save(tmp_path_factory.mktemp("lines"), "".join(f"{line}\r\n" for line in lines).encode())
    first = [
        line.removeprefix("\ufeff") if number == 0 else line for number, line in enumerate(lines)
    ]
    assert [line for _, line in read_lines(path)] == first
