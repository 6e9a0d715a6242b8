"""Many files and many processes: folders of shards, and batches of other libraries."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from datasets import Dataset
from pyarrow import parquet

from sopa_plugin import BatchPredictor, predict_texts
from sopa_plugin.errors import UserError
from sopa_plugin.models import load_model
from sopa_plugin.predict import main as predict

ROOT = Path(__file__).parents[1]
LABELS = ["bad", "good"]
TEXTS = ["a good film", "bad , bad film", "", "unheard-of", "not good"]


@pytest.fixture(scope="module")
def run(small_model: Path) -> Path:
    return small_model


def write_shards(folder: Path) -> None:
    folder.mkdir()
    (folder / "a.csv").write_text(
        "id,text\n" + "".join(f'{n},"{t}"\n' for n, t in enumerate(TEXTS))
    )
    with gzip.open(folder / "b.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": text, "label": "own"}) + "\n" for text in TEXTS)
    parquet.write_table(pyarrow.table({"text": TEXTS}), folder / "c.parquet")
    (folder / "d.txt").write_text("".join(text + "\n" for text in TEXTS))
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.csv").touch()


def labels_in(file: Path) -> list[str]:
    if file.suffix == ".csv":
        header, *rows = file.read_text().splitlines()
        assert header == "id,text,label,probability_bad,probability_good"
        return [row.split(",")[-3] for row in rows]
    if file.suffix == ".parquet":
        found: list[str] = parquet.read_table(file)["label"].to_pylist()
        return found
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    rows = [json.loads(line) for line in content.splitlines()]
    return [row.get("predicted_label", row["label"]) for row in rows]


def shown(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.name[0] != ".")


def test_a_folder_of_shards_has_one_of_answers(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shards, answers = tmp_path / "shards", tmp_path / "new" / "answers"
    write_shards(shards)
    left_out = len([each for each in shards.iterdir() if each.name[0] != "."]) - 4
    (shards / "nested").mkdir()
    expected = [each["label"] for each in predict_texts(run, TEXTS)]
    for rank in ("1", "0"):  # each process its share
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RANK", rank)
            patch.setenv("WORLD_SIZE", "2")
            predict([str(run), "-i", str(shards), "-O", str(answers)])
        if rank == "1":
            assert shown(answers) == ["b.jsonl.gz", "d.txt.jsonl"]
    assert f"{left_out + 1} files and folders are left out" in caplog.text
    assert shown(answers) == ["a.csv", "b.jsonl.gz", "c.parquet", "d.txt.jsonl"]
    for name in shown(answers):
        assert labels_in(answers / name) == expected, name
    before = (answers / "c.parquet").stat().st_mtime_ns
    (answers / "a.csv").unlink()
    predict([str(run), "-i", str(shards), "-O", str(answers)])
    assert labels_in(answers / "a.csv") == expected
    assert (answers / "c.parquet").stat().st_mtime_ns == before  # is not made again
    predict([str(run), "-i", str(shards), "-O", str(answers), "--force"])
    assert (answers / "c.parquet").stat().st_mtime_ns > before


def test_what_is_no_folder_for_answers_is_one_error(run: Path, tmp_path: Path) -> None:
    shards, answers = tmp_path / "shards", tmp_path / "answers"
    write_shards(shards)
    for arguments in ([], ["-O", str(shards)]):
        with pytest.raises(UserError, match="name another one for the answers with -O"):
            predict([str(run), "-i", str(shards), *arguments])
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"no file in it ends in \.csv"):
        predict([str(run), "-i", str(tmp_path / "none"), "-O", str(answers)])
    (shards / "d.txt").write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"d\.txt:1: not UTF-8"):
        predict([str(run), "-i", str(shards), "-O", str(answers)])
    assert shown(answers) == ["a.csv", "b.jsonl.gz", "c.parquet"]
    with pytest.raises(UserError, match="of another model or column"):
        predict([str(run), "-i", str(shards), "-O", str(answers), "--text-column", "id"])
    (shards / "d.txt.jsonl").touch()
    with pytest.raises(UserError, match=r"d\.txt\.jsonl: its answers .*those to .*d\.txt; rename"):
        predict([str(run), "-i", str(shards), "-O", str(answers)])


@pytest.mark.parametrize(("rank", "processes"), [("x", "2"), ("0", "0"), ("2", "2"), ("-1", "2")])
def test_processes_that_cannot_be_are_one_error(
    rank: str, processes: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path / "shards")
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", processes)
    with pytest.raises(UserError, match="RANK and WORLD_SIZE: expected which process"):
        predict([str(run), "-i", str(tmp_path / "shards"), "-O", str(tmp_path / "answers")])


def test_a_model_that_cannot_be_read_leaves_nothing(run: Path, tmp_path: Path) -> None:
    shards, answers = tmp_path / "shards", tmp_path / "answers"
    write_shards(shards)
    damaged = Path(shutil.copytree(run, tmp_path / "damaged"))
    (damaged / "compiled.safetensors").write_bytes(b"")
    for folder, message in ((run / "nowhere", "no such folder"), (damaged, "changed since")):
        with pytest.raises(UserError, match=message):
            predict([str(folder), "-i", str(shards), "-O", str(answers)])
        assert not answers.exists()


def test_it_goes_on_where_it_was_killed(run: Path, tmp_path: Path) -> None:
    shards, answers, whole = tmp_path / "shards", tmp_path / "answers", tmp_path / "whole"
    shards.mkdir()
    for number in range(40):
        (shards / f"{number:02}.jsonl").write_text(
            "".join(json.dumps({"text": text, "n": n}) + "\n" for n in range(150) for text in TEXTS)
        )
    command = [sys.executable, "-m", "sopa_plugin.predict", str(run), "-i", str(shards), "-O"]
    with subprocess.Popen([*command, str(answers)], cwd=ROOT) as process:
        while process.poll() is None and not (answers / "02.jsonl").exists():
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    finished = {name: (answers / name).stat().st_mtime_ns for name in shown(answers)}
    assert 3 <= len(finished) < 40
    predict([str(run), "-i", str(shards), "-O", str(answers)])
    assert not list(answers.glob(".*.new-*"))  # what was half-written
    predict([str(run), "-i", str(shards), "-O", str(whole)])
    for name in shown(shards):
        assert (answers / name).read_bytes() == (whole / name).read_bytes()
    for name, at in finished.items():
        assert (answers / name).stat().st_mtime_ns == at


def test_batches_of_datasets_in_two_processes(run: Path, tmp_path: Path) -> None:
    expected = predict_texts(run, [*TEXTS, ""])
    given = Dataset.from_dict({"text": [*TEXTS, None], "label": range(6)})
    predictor = BatchPredictor(run)
    predictor({"text": ["good"]})  # its model is loaded here, and not handed over
    assert len(pickle.dumps(predictor)) < 2000
    found = given.map(predictor, batched=True, batch_size=2, num_proc=2)
    assert found["label"] == list(range(6))
    assert found["predicted_label"] == [each["label"] for each in expected]
    for label in LABELS:
        probabilities = [each["probabilities"][label] for each in expected]
        assert found[f"probability_{label}"] == pytest.approx(probabilities, abs=1e-6)


def test_a_batch_is_a_mapping_of_arrays(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    predictor = BatchPredictor(run.name, text_column="body")
    monkeypatch.chdir("/")
    batch: dict[str, Any] = {"body": np.array(TEXTS), "id": np.arange(5)}
    found = pickle.loads(pickle.dumps(predictor))(batch)
    assert list(found) == ["body", "id", "label", "probability_bad", "probability_good"]
    assert found["label"].tolist() == [each["label"] for each in predict_texts(run, TEXTS)]
    assert predictor({"body": np.array([], object)})["label"].shape == (0,)
    with pytest.raises(UserError, match="no such folder"):
        BatchPredictor(run / "nowhere")
    with pytest.raises(UserError, match="no column 'body'; the columns are 'text'"):
        predictor({"text": TEXTS})


def test_another_model_in_the_same_folder_pickles_otherwise(run: Path, tmp_path: Path) -> None:
    """So that datasets, which keeps what `map` gave to equal pickles, asks the new one."""
    model: Any = load_model(run)
    for save in (model.save, model.save_pretrained):  # which notes no digests
        folder = tmp_path / save.__name__
        folder.mkdir()
        save(folder)
        before = pickle.dumps(BatchPredictor(folder))
        assert pickle.dumps(BatchPredictor(folder)) == before
        model.scale_logits(2.0)
        save(folder)
        assert pickle.dumps(BatchPredictor(folder)) != before
