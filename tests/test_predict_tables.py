"""The command `predict` on CSV, TSV, JSON lines and Parquet: the same rows, with their answers."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from sopa_plugin import explain, predict
from sopa_plugin.api import load_predictor
from sopa_plugin.data.stream import ROWS, open_documents
from sopa_plugin.errors import UserError
from sopa_plugin.training import run_experiment

ROOT = Path(__file__).parents[1]
TEXTS = ["good good", "so,\r\n\"bad\" 'bad'", "", "bad\tgood 😀"]
LABELS = ["positive", "negative", "negative", "negative"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a CSV whose texts are in a column `message`, compiled."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "vectors.txt").write_text("good 1 0\nbad 0 1\n")
    rows = "message,kind\n" + "good good,positive\nbad bad,negative\n" * 6
    for split in ("train", "dev", "test"):
        (folder / f"{split}.csv").write_text(rows)
    run_experiment(
        {
            "dataset": {
                "type": "text",
                "path": str(folder),
                "text_column": "message",
                "label_column": "kind",
            },
            "model": {
                "embedder": {"type": "static", "vectors": str(folder / "vectors.txt")},
                "encoder": {"type": "sopa", "patterns": {"2": 2}},
            },
            "trainer": {"num_epochs": 15, "optimizer": {"type": "adam", "lr": 0.05}},
        },
        folder / "run",
    )
    return folder / "run"


@pytest.fixture
def answers(run: Path, tmp_path: Path) -> Callable[..., Path]:
    """The file of answers to one that holds `content`."""

    def main(name: str, content: bytes, *options: str) -> Path:
        (tmp_path / name).write_bytes(content)
        output = tmp_path / f"answers-{name}"
        predict.main([str(run), "-i", str(tmp_path / name), "-O", str(output), "-f", *options])
        return output

    return main


def table(rows: list[list[str]], **options: Any) -> bytes:
    written = io.StringIO()
    csv.writer(written, **options).writerows(rows)
    return written.getvalue().encode()


def cells(path: Path, **options: Any) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, **options))


def check(labels: list[str], shares: list[list[float]], texts: list[str], run: Path) -> None:
    """Whether these are the answers that the model gives to the texts alone."""
    from sopa_plugin import predict_texts

    for label, row, found in zip(labels, shares, predict_texts(run, texts), strict=True):
        assert label == found["label"]
        assert row == pytest.approx(list(found["probabilities"].values()))


NOTES = ["007", 'say ""x"', "a\rb", "1e5"]
ROWS_OF_CELLS = [
    [note, text, f"{i}"] for i, (note, text) in enumerate(zip(NOTES, TEXTS, strict=True))
]


@pytest.mark.parametrize("delimiter", [",", ";"], ids=["comma", "semicolon"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_rows_of_a_csv(answers: Callable[..., Path], run: Path, delimiter: str, end: str) -> None:
    header = ["note", "message", "note"]  # a name may come twice
    rows = ROWS_OF_CELLS
    content = table([header, *rows], delimiter=delimiter, quoting=csv.QUOTE_ALL)
    content = content.replace(b'"\r\n"', b'"' + end.encode() + b'"')
    content = content.removesuffix(b"\r\n") + end.encode()
    output = answers("new.csv", content)
    first, *found = cells(output, delimiter=delimiter, strict=True)
    assert first == [*header, "label", "probability_negative", "probability_positive"]
    assert [row[:3] for row in found] == rows
    check([row[3] for row in found], [[*map(float, row[4:])] for row in found], TEXTS, run)
    assert output.read_bytes().splitlines(keepends=True)[0].endswith(f"positive{end}".encode())


def test_rows_of_a_tsv_have_no_quoting(answers: Callable[..., Path]) -> None:
    for name in ("new.tsv", "new.csv"):
        output = answers(name, b'id\tmessage\n01\tgood good "\n2\tbad, "" bad\n')
        lines = output.read_text().splitlines()
        assert lines[0].startswith("id\tmessage\tlabel\tprobability_")
        assert [line.split("\t")[:2] for line in lines[1:]] == [
            ["01", 'good good "'],
            ["2", 'bad, "" bad'],
        ]


def test_objects_of_json_lines(answers: Callable[..., Path], run: Path) -> None:
    records = [{"id": [i, {"x": None}], "message": text} for i, text in enumerate(TEXTS)]
    content = "".join(json.dumps(record) + "\n\n" for record in records).encode()
    found = [*map(json.loads, answers("new.jsonl", content).read_text().splitlines())]
    assert [{key: each[key] for key in ("id", "message")} for each in found] == records
    shares = [[*each["probabilities"].values()] for each in found]
    check([each["label"] for each in found], shares, TEXTS, run)


def test_columns_of_parquet_keep_their_types(
    answers: Callable[..., Path], run: Path, tmp_path: Path
) -> None:
    data = pyarrow.table(
        {
            "id": pyarrow.array([1, 2, None, 4], pyarrow.int8()),
            "message": pyarrow.array([*TEXTS[:2], None, TEXTS[3]]).dictionary_encode(),
            "nested": [{"x": [1]}, None, {"x": []}, {"x": [2]}],
            "day": pyarrow.array([0, 1, 2, 3], pyarrow.date32()),
        },
        metadata={"kept": "yes"},
    )
    parquet.write_table(data, tmp_path / "data", row_group_size=3)
    data = parquet.read_table(tmp_path / "data")
    found = parquet.read_table(answers("new.parquet", (tmp_path / "data").read_bytes()))
    assert found.select(data.schema.names).equals(data, check_metadata=True)
    names = ["label", "probability_negative", "probability_positive"]
    labels, *shares = (found[name].to_pylist() for name in names)
    check(labels, [*map(list, zip(*shares, strict=True))], TEXTS, run)


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_a_column_that_is_called_as_an_answer_stays(
    answers: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    gold = {"message": ["good", "bad"], "label": ["007", "8"]}
    if form == "parquet":
        parquet.write_table(pyarrow.table(gold), tmp_path / "data")
        content = (tmp_path / "data").read_bytes()
        found = parquet.read_table(answers("new.parquet", content)).to_pydict()
    elif form == "jsonl":
        content = b'{"message": "good", "label": "007"}\n{"message": "bad", "label": "8"}\n'
        lines = answers("new.jsonl", content).read_text().splitlines()
        found = {key: [json.loads(line)[key] for line in lines] for key in json.loads(lines[0])}
    else:
        mark = "," if form == "csv" else "\t"
        content = "message,label\ngood,007\nbad,8\n".replace(",", mark).encode()
        header, *rows = cells(answers(f"new.{form}", content), delimiter=mark)
        found = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    assert {key: found[key] for key in gold} == gold
    assert found["predicted_label"] == ["positive", "negative"]
    assert caplog.text.count("'predicted_label'") == 1


def test_a_row_without_a_text_has_its_answer_which_is_said_once(
    answers: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    found = cells(answers("new.csv", b"id,message\n1,good\n2,\n3, \n4,bad\n"))
    assert [row[0] for row in found] == ["id", "1", "2", "3", "4"]
    assert found[2][3:] == found[3][3:] == ["0.5", "0.5"]
    assert "new.csv:3: no text" in caplog.text
    assert caplog.text.count("no text") == 1


def test_encoding_and_byte_order_mark(answers: Callable[..., Path]) -> None:
    marked = answers("new.csv", b"\xef\xbb\xbfmessage,who\ngood,\xc3\xa9\n").read_bytes()
    assert marked.startswith(b"\xef\xbb\xbfmessage,who,label,")
    assert marked.count(b"\xef\xbb\xbf") == 1
    content = "message,who\ngood,é\nbad,ü\n"
    for encoding in ("latin-1", "utf-16"):
        output = answers("new.csv", content.encode(encoding), "--encoding", encoding)
        assert output.read_text(encoding).splitlines()[2].startswith("bad,ü,negative,")
    line = answers("new.jsonl", '{"message": "é good"}'.encode("cp1252"), "--encoding", "cp1252")
    assert json.loads(line.read_text("utf-8"))["message"] == "é good"
    line = answers("new.txt", "é good".encode("cp1252"), "--encoding", "cp1252")
    assert json.loads(line.read_text("utf-8"))["text"] == "é good"
    with pytest.raises(UserError, match=r"new\.csv:2: byte 0xe9 is not utf-8; set --encoding to"):
        answers("new.csv", content.encode("latin-1"))


def test_a_compressed_table(answers: Callable[..., Path]) -> None:
    for name, content in (("new.csv.gz", b"message\ngood\n"), ("n.jsonl.gz", b'{"message": ""}')):
        found = gzip.decompress(answers(name, gzip.compress(content)).read_bytes())
        assert b"positive" in found
    with pytest.raises(UserError, match=r"n\.jsonl\.gz: cannot be read"):
        answers("n.jsonl.gz", gzip.compress(content)[:-9])


@pytest.mark.parametrize("name", ["new.csv", "new.txt", "new.csv.xz"])
@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zip", "zstd"])
def test_what_is_compressed_otherwise_says_so(
    answers: Callable[..., Path], name: str, kind: str
) -> None:
    content = b"message\n" + b"good\n" * 100
    packed = {
        "gzip": gzip.compress(content),
        "bzip2": bz2.compress(content),
        "xz": lzma.compress(content),
        "zstd": pyarrow.compress(content, "zstd", asbytes=True),
    }
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("new.csv", content)
    with pytest.raises(UserError, match=rf"{name}: compressed by {kind}; unpack it first"):
        answers(name, packed.get(kind, file.getvalue()))


def test_a_table_without_a_header_row() -> None:
    def read(content: bytes) -> tuple[list[str], bytes]:
        names, source = ["label", "text"], io.BytesIO(content)
        with open_documents(source, "x.csv", column_names=names) as documents:
            texts = [text for texts, _ in documents.blocks() for text in texts]
            return texts, b"".join(documents.answered(lambda some: np.ones((len(some), 1)), ["a"]))

    assert read(b"0,good\n1,bad\n") == (["good", "bad"], b"0,good,a,1.0\n1,bad,a,1.0\n")
    assert read(b"text\nbad\n") == (["bad"], b"text,label,probability_a\nbad,a,1.0\n")


def test_many_rows_are_read_some_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "many.csv"
    file.write_text("text\n" + "".join(f"{i}\n" for i in range(2 * ROWS + 1)))
    with file.open("rb") as source, open_documents(source, str(file)) as documents:
        sizes = [len(texts) for texts, _ in documents.blocks()]
    assert sizes == [ROWS, ROWS, 1]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("n.csv", b"", [], "n.csv: empty; expected a header row"),
        (
            "n.csv",
            b"a,b\n1,2\n",
            [],
            "n.csv:1: expected one column 'message'.* 'a', 'b'. Give --te",
        ),
        ("n.csv", b"message\n1\n", ["--text-column", "x"], "n.csv:1: expected one column 'x'"),
        ("n.csv", b"message,message\n1,2\n", [], "n.csv:1: expected one column 'message'"),
        ("n.csv", b'message,b\na,b\n"c\n', [], "n.csv:3: not a row of cells"),
        ("n.csv", b"message,b\na,b\nc\n", [], "n.csv:3: expected 2 cells"),
        ("n.tsv", b"message\tb\na\tb\tc\n", [], "n.tsv:2: expected 2 cells"),
        ("n.jsonl", b'{"message": "a"}\n{"text": "b"}\n', [], "n.jsonl:2: expected one column"),
        ("n.json", b"[\n", [], "n.json:1: not JSON"),
        ("n.jsonl", b"[]\n", [], "n.jsonl:1: not JSON .no object"),
        ("n.parquet", b"PAR1", [], "n.parquet: cannot be read as Parquet"),
        ("n.txt", b"a\n", ["--text-column", "x"], "--text-column is for tables"),
        ("n", b'{"text": "a"}\n', [], "n:1: expected one column 'message'"),
        ("n.csv", b"message\na\n", ["--encoding", "utf-99"], "--encoding: expected one like"),
    ],
)
def test_what_cannot_be_read_so_is_refused(
    answers: Callable[..., Path],
    tmp_path: Path,
    name: str,
    content: bytes,
    options: list[str],
    message: str,
) -> None:
    with pytest.raises(UserError, match=message):
        answers(name, content, *options)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_numbers_in_parquet_are_no_texts(answers: Callable[..., Path], tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"message": [1]}), tmp_path / "data")
    with pytest.raises(UserError, match=r"new\.parquet: 'message' is not text, but int64"):
        answers("new.parquet", (tmp_path / "data").read_bytes())


def test_answers_are_in_the_format_of_the_input(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "new.csv"
    file.write_text("message\ngood\n")
    with pytest.raises(UserError, match=r"answers\.jsonl: the answers are written as csv"):
        predict.main([str(run), "-i", str(file), "-O", str(tmp_path / "answers.jsonl")])
    predict.main([str(run), "-i", str(file), "-O", str(tmp_path / "answers")])
    assert (tmp_path / "answers").read_text().startswith("message,label,probability_negative,")
    predict.main([str(run), "-i", str(file), "-O", str(tmp_path / "raw"), "--format", "text"])
    assert json.loads((tmp_path / "raw").read_text().splitlines()[0])["text"] == "message"


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_a_table_on_the_standard_input(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    form: str,
) -> None:
    content = b'{"message": "good good"}\n' if form == "jsonl" else b"message\ngood good\n"
    for options in ([], ["-i", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        predict.main([str(run), "--format", form, *options])
        answers = capsysbinary.readouterr().out
        assert answers.startswith(content.rstrip(b"}\n").partition(b"\n")[0])
        assert b"positive" in answers.splitlines()[-1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text\na\n")))
    with pytest.raises(UserError, match=r"^input:1: "):
        predict.main([str(run), "--format", form])


def test_a_file_called_as_the_standard_input_is_not_it(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input").write_text("message\nbad\nbad\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"message\ngood\n")))
    predict.main([str(run), "--format", "csv"])
    assert capsysbinary.readouterr().out.splitlines()[1].startswith(b"good,")


def test_parquet_goes_through_pipes(run: Path, tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"message": ["good good"]}), tmp_path / "data")
    done = subprocess.run(
        [sys.executable, "-m", "sopa_plugin.predict", str(run), "--format", "parquet"],
        input=(tmp_path / "data").read_bytes(),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert parquet.read_table(io.BytesIO(done.stdout))["label"].to_pylist() == ["positive"]


def test_explain_reads_the_same(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new.csv"
    file.write_text('id,message\n1,"good\ngood"\n2,bad\n')
    explain.main([str(run), "document", "-i", str(file), "--format", "json"])
    found = json.loads(capsys.readouterr().out)["documents"]
    assert [each["tokens"] for each in found] == [["good", "good"], ["bad"]]
    with pytest.raises(UserError, match=r"new\.csv:1: expected one column 'text'; the columns are"):
        explain.main([str(run), "document", "-i", str(file), "--text-column", "text"])
    explain.main([str(run), "patterns", "--lines", str(file), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["documents"] == 2


@pytest.mark.skipif(sys.platform == "win32", reason="has no such terminal")
def test_a_terminal_is_shown_what_it_would_obey(run: Path) -> None:
    """As pictures; a pipe and a file have the bytes."""
    content = "message,id\r\ngood \x1b[2J\x9b31m \u202egood,\x07\r\n".encode()
    model = load_predictor(run)

    def written(output: BinaryIO) -> None:
        with open_documents(io.BytesIO(content), "in.csv", text_column="message") as documents:
            predict.predict_stream(model, documents, output)

    written(kept := io.BytesIO())
    assert kept.getvalue().splitlines()[1].startswith(content.splitlines()[1])
    terminal, end = os.openpty()
    with os.fdopen(end, "wb") as output:
        written(output)
        shown = os.read(terminal, 4096).decode()
    os.close(terminal)
    header, row = shown.splitlines()
    assert header.startswith("message,id,label,")
    assert row.startswith("good ␛[2J\ufffd31m \ufffdgood,␇,")
