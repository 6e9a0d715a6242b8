"""The command `init`: what it finds in real files, and that what it writes trains."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from sopa_plugin import cli, evaluate, init, search, train
from sopa_plugin.registry import load_config
from sopa_plugin.training import Experiment

TOPICS = {
    "billing": "The invoice is wrong, I was charged twice.",
    "delivery": "My parcel is late again; where is the courier?",
    'praise "de luxe"': "Thank you so much,\nwhat a great team! 👋",
}


def command(main: Callable[..., None], *argv: str) -> int:
    """The exit status of a command, called in this process."""
    with pytest.raises(SystemExit) as left:
        cli.run_command(lambda: main(argv))
    assert isinstance(left.value.code, int)
    return left.value.code


def messages(count: int) -> list[dict[str, Any]]:
    """Rows with a message, its category, and columns that are neither."""
    rows = []
    for i in range(count):
        label, text = list(TOPICS.items())[i % len(TOPICS)]
        rows.append(
            {"id": i, "day": f"2026-01-{i % 28 + 1:02}", "message": f"{text} No {i}.",
             "category": label, "note": ""}
        )  # fmt: skip
    return rows


def write_csv(
    path: str, rows: Sequence[dict[str, Any]], delimiter: str = ",", encoding: str = "utf-8"
) -> None:
    with Path(path).open("w", newline="", encoding=encoding) as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def renamed(rows: Sequence[dict[str, Any]], **names: str) -> list[dict[str, Any]]:
    return [{names.get(key, key): value for key, value in row.items()} for row in rows]


def dataset_of(config: str) -> dict[str, Any]:
    """What a config that was written says of the data; it is one that trains."""
    assert command(train.main, config, "--validate") == 0
    found: dict[str, Any] = load_config(config, kind=Experiment)["dataset"]
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOPA_VECTORS", raising=False)
    return tmp_path


def test_from_a_csv_to_a_trained_model(capsys: pytest.CaptureFixture[str]) -> None:
    empty = [{**row, "message": " "} for row in messages(2)]
    nothing = {"id": 9, "day": "", "message": "", "category": "", "note": ""}
    write_csv("messages.csv", [*messages(90), *empty, nothing])
    assert command(init.main, "my.jsonnet", "--data", "messages.csv") == 0
    said = capsys.readouterr().out
    assert "messages.csv: texts in column 'message', labels in 'category'" in said
    assert "90 texts, of 11 words (median); 3 more are empty" in said
    assert "3 classes: 'billing' 30, 'delivery' 30, 'praise \"de luxe\"' 30" in said
    assert "train my.jsonnet -s runs/my\n" in said
    assert dataset_of("my.jsonnet") == {
        "type": "text", "path": "messages.csv", "text_column": "message",
        "label_column": "category", "empty_text": "drop", "test_size": 0.2, "dev_size": 0.1,
    }  # fmt: skip
    assert command(train.main, "my.jsonnet", "-s", "runs/my", "-o", "trainer.num_epochs=2") == 0
    capsys.readouterr()
    assert command(evaluate.main, "runs/my") == 0
    assert '"examples": 18' in capsys.readouterr().out


def test_semicolons_and_latin_1() -> None:
    rows = renamed(messages(30), message="Nachricht", category="Art")
    rows = [{**row, "Nachricht": f"Grüße – {row['Nachricht'].rstrip('👋')}"} for row in rows]
    rows = [{**row, "Nachricht": row["Nachricht"].replace("👋", "")} for row in rows]
    write_csv("own.csv", rows, ";", "cp1252")
    assert command(init.main, "my.jsonnet", "--data", "own.csv") == 0
    found = dataset_of("my.jsonnet")
    assert (found["encoding"], found["text_column"]) == ("cp1252", "Nachricht")
    assert found["label_column"] == "Art"


def test_a_damaged_line_is_no_other_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("own.csv", messages(30))
    with Path("own.csv").open("ab") as file:
        file.write(b"31,,caf\xe9,billing,\r\n")
    assert command(init.main, "my.jsonnet", "--data", "own.csv") == 1
    assert "own.csv:42: byte 0xe9 is not utf-8" in capsys.readouterr().err
    assert not Path("my.jsonnet").exists()


@pytest.mark.parametrize("form", ["csv.gz", "tsv", "jsonl", "parquet", "folders"])
def test_formats(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "message": row["message"].replace("\n", " ")} for row in messages(30)]
    rows = [{**row, "category": row["id"] % 3} for row in rows]
    path = f"own.{form}"
    if form == "jsonl":
        lines = [json.dumps({**row, "parts": [1, {"a": "b c d e"}]}) for row in rows]
        Path(path).write_text("\n".join(lines))
    elif form == "parquet":
        table = pyarrow.Table.from_pylist([{**row, "parts": [1, 2]} for row in rows])
        parquet.write_table(table, path)
    elif form == "folders":
        for row in rows:
            file = Path(path, f"class {row['category']}", f"{row['id']}.txt")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(row["message"])
    else:
        write_csv("plain", rows, "\t" if form == "tsv" else ",")
        content = Path("plain").read_bytes()
        if form == "tsv":
            content = content.replace(b"\r", b"").replace(b'"', b"")
        Path(path).write_bytes(gzip.compress(content) if form == "csv.gz" else content)
    assert command(init.main, "my.jsonnet", "--data", path) == 0
    said = capsys.readouterr().out
    classes = ["class 0", "class 1", "class 2"] if form == "folders" else ["0", "1", "2"]
    assert "30 texts" in said
    assert f"3 classes: {', '.join(f'{each!r} 10' for each in classes)}" in said
    found = dataset_of("my.jsonnet")
    assert found.get("text_column") == (None if form == "folders" else "message")
    ending = {"csv.gz": "csv", "folders": "txt"}.get(form, form)
    assert f" -i new.{ending}" in said


def test_rare_and_many_classes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"query": f"where is thing {i}", "intent": f"i{i % 50:02}"} for i in range(1000)]
    rare = [{"query": f"a rare wish {i}", "intent": "rare"} for i in range(4)]
    write_csv("own.csv", [*rows, *rare])
    assert command(init.main, "my.jsonnet", "--data", "own.csv") == 0
    said = capsys.readouterr().out
    assert "51 classes" in said
    assert "rare, with fewer than 10 texts: 'rare' 4" in said
    dataset_of("my.jsonnet")
    assert "class_weights" not in load_config("my.jsonnet")["trainer"]
    write_csv("uneven.csv", [{**row, "intent": "usual"} for row in rows] + rare)
    assert command(init.main, "uneven.jsonnet", "--data", "uneven.csv") == 0
    assert load_config("uneven.jsonnet")["trainer"]["class_weights"] == "balanced"


def test_train_and_test_in_a_folder(folder: Path) -> None:
    (folder / "own").mkdir()
    rows = renamed(messages(30), message="text", category="label")
    write_csv("own/train.csv", rows[:20])
    write_csv("own/test.csv", [*rows[20:], {**rows[0], "label": "new"}])
    assert command(init.main, "my.jsonnet", "--data", "own") == 0
    assert dataset_of("my.jsonnet") == {
        "type": "text", "path": "own", "unseen_classes": "keep", "dev_size": 0.1,
    }  # fmt: skip


def test_a_file_without_names_of_columns() -> None:
    lines = [f'"{text} {i}",{"good" if i % 2 else "bad"}' for i in range(20) for text in ("It is",)]
    Path("own.csv").write_text("\n".join(lines))
    assert command(init.main, "my.jsonnet", "--data", "own.csv") == 0
    assert dataset_of("my.jsonnet")["column_names"] == ["text", "label"]


def test_columns_that_are_not_clear(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "team": f"t{row['id'] % 2}"} for row in messages(30)]
    write_csv("own.csv", renamed(rows, message="Was", category="Art"))
    assert command(init.main, "my.jsonnet", "--data", "own.csv") == 1
    error = capsys.readouterr().err
    assert "not clear which column has the labels ('Art' or 'team')" in error
    assert "say by --label-column which of 'id', 'day', 'Art', 'note', 'team'" in error
    assert command(init.main, "my.jsonnet", "--data", "own.csv", "--label-column", "art") == 1
    assert "no column 'art' for the labels" in capsys.readouterr().err
    assert command(init.main, "my.jsonnet", "--data", "own.csv", "--label-column", "Art") == 0
    assert dataset_of("my.jsonnet")["label_column"] == "Art"


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["my.jsonnet", "--data", "absent.csv"], "absent.csv: no such file or folder; mend the"),
        (
            ["my.jsonnet", "--data", "keys.jsonl"],
            "'label'; the columns are 'text', 'other'; mend the data",
        ),
        (["my.json", "--data", "own.csv"], "ends in .jsonnet"),
        (["my.jsonnet", "--data", "own.csv", "--label-column", "id"], "30 classes among 30 texts"),
        (["my.jsonnet", "--data", "own.csv", "--label-column", "day"], "28 classes among 30"),
        (["my.jsonnet", "--data", "texts.csv"], "'message' is its only column, so none has the"),
        (["my.jsonnet", "--data", "own.csv", "--vectors", "absent"], "absent: no such file"),
        (["sopa_sst.jsonnet", "--example", "sst"], "would import itself"),
    ],
)
def test_errors(argv: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("own.csv", messages(30))
    write_csv("texts.csv", [{"message": row["message"]} for row in messages(30)])
    lines = [{"text": f"text {n} is one of {n}", "label": n % 2} for n in range(20)]
    lines.append({"text": "no label", "other": 1})
    Path("keys.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert command(init.main, *argv) == 1
    said = capsys.readouterr().err
    assert error in said
    assert "dataset." not in said
    assert [each.name for each in Path().glob("*.json*")] == ["keys.jsonl"]


def test_names_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    names = {"message": "the\n\"text\" 'é' \\ %s 👋", "category": "l'été"}
    write_csv("it's.csv", renamed(messages(30), **names))
    assert command(init.main, "my own.jsonnet", "--data", "it's.csv") == 0
    assert "train 'my own.jsonnet' -s 'runs/my own'" in capsys.readouterr().out
    found = dataset_of("my own.jsonnet")
    assert (found["text_column"], found["label_column"]) == tuple(names.values())
    assert found["path"] == "it's.csv"


def test_a_file_is_not_replaced_unless_by_force(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.jsonnet").write_text("{}")
    assert command(init.main, "my.jsonnet", "--example", "sst") == 1
    assert "exists already" in capsys.readouterr().err
    assert Path("my.jsonnet").read_text() == "{}"
    assert command(init.main, "my.jsonnet", "--example", "sst", "--force") == 0
    assert command(train.main, "my.jsonnet", "--validate") == 0


def test_an_example_takes_no_columns_or_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(init.main, "my.jsonnet", "--example", "sst", "--vectors", "own.txt") == 2
    assert "go with --data" in capsys.readouterr().err


@pytest.mark.parametrize("name", init.EXAMPLES)
def test_examples(name: str) -> None:
    assert command(init.main, "space.jsonnet", "--example", name, "--tune") == 0
    assert command(search.main, "space.jsonnet", "--validate") == 0


def test_vectors_and_tuning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**row, "message": f"good , not bad . {row['id']}"} for row in messages(30)]
    write_csv("own.csv", rows)
    Path("my vectors.txt").write_text("good 1 0\nbad 0 1\n")
    monkeypatch.setenv("SOPA_VECTORS", "my vectors.txt")
    assert command(init.main, "my.jsonnet", "--data", "own.csv") == 0
    said = capsys.readouterr().out
    assert "33.3% of the words of the texts have a vector in my vectors.txt" in said
    dataset_of("my.jsonnet")
    config = load_config("my.jsonnet")
    assert config["tokenizer"] == {"type": "whitespace"}  # case goes by the vectors
    assert config["model"]["embedder"] == {
        "type": "static", "vectors": "my vectors.txt", "trainable": False, "whiten": 1,
    }  # fmt: skip
    for options in ([], ["--vectors", "my vectors.txt"]):
        monkeypatch.delenv("SOPA_VECTORS", raising=False)
        argv = ["space.jsonnet", "--data", "own.csv", "--tune", "--force", *options]
        assert command(init.main, *argv) == 0
        assert "search space.jsonnet\n" in capsys.readouterr().out
        assert command(search.main, "space.jsonnet", "--validate") == 0
