"""The commands `train`, `evaluate` and `predict`, as people use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin import cli, evaluate, predict, train
from sopa_plugin.models import load_model

ROOT = Path(__file__).parents[1]
CONFIG = """
local env = std.native('env');
{
  dataset: { type: 'sst', path: env('MY_SST', 'data') },
  tokenizer: { type: 'whitespace', vocabulary: 'train_dev', lowercase: true },
  model: {
    embedder: { type: 'static', vectors: 'vectors.txt' },
    encoder: { type: 'sopa', patterns: { '3': 4, '2': 4 } },
    head: { type: 'mlp', hidden_dim: 8 },
  },
  trainer: { batch_size: 4, num_epochs: 12, optimizer: { type: 'adam', lr: 0.05 } },
}
"""
SENTENCES = "1 a good film\n0 a bad film\n1 good\n0 bad\n" * 3


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a config, data and vectors, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonnet").write_text(CONFIG)
    (tmp_path / "vectors.txt").write_text("good 1 0 .5\nbad -1 0 .5\nfilm 0 1 0\na 0 .1 .9\n")
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "dev", "test"):
        (data / f"{split}.txt").write_text(SENTENCES)
    return tmp_path


def command(main: Callable[..., None], *argv: str) -> int:
    """The exit status of a command, called in this process."""
    with pytest.raises(SystemExit) as left:
        cli.run_command(lambda: main(argv))
    assert isinstance(left.value.code, int)
    return left.value.code


def shell(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *argv], capture_output=True, text=True, env=environment, **options
    )


def test_train_evaluate_predict(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(train.main, "mine.jsonnet") == 0
    run = project / "runs" / "mine"
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test_accuracy"] == 1
    assert "embedded sample" not in capsys.readouterr().err

    assert command(evaluate.main, str(run)) == 0
    dev, test = map(json.loads, capsys.readouterr().out.splitlines())
    assert (dev["split"], dev["accuracy"]) == ("dev", metrics["best_validation_accuracy"])
    assert (test["split"], test["examples"]) == ("test", metrics["test_examples"])

    (project / "other.txt").write_text("0 good\n1 good\n")
    assert command(evaluate.main, str(run), "other.txt", "data") == 0
    other, folder = map(json.loads, capsys.readouterr().out.splitlines())
    assert (other["data"], other["accuracy"], other["examples"]) == ("other.txt", 0.5, 2)
    assert (folder["data"], folder["accuracy"]) == ("data", 1)

    load_model(run).save_pretrained("saved")
    assert command(evaluate.main, "saved") == 1
    assert "give a file of texts and labels: to evaluate after the fo" in capsys.readouterr().err
    (project / "own.csv").write_text("text,label\ngood,negative\na good film,positive\n")
    for folder in ("saved", str(run)):  # whose own data are no tables
        assert command(evaluate.main, folder, "own.csv") == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] == 0.5

    (project / "lines").write_text("A GOOD film\nbad\n\n")
    assert command(predict.main, str(run), "-i", "lines", "-O", "answers") == 0
    answers = [json.loads(line) for line in (project / "answers").read_text().splitlines()]
    assert [each["label"] for each in answers[:2]] == ["positive", "negative"]
    assert answers[2]["probabilities"] == pytest.approx({"negative": 0.5, "positive": 0.5})

    before = (project / "answers").read_bytes()
    assert command(predict.main, str(run), "-i", "lines", "-O", "answers") == 1
    assert "the output file exists already" in capsys.readouterr().err
    for output, said in ((".", "name a file in it"), ("absent/answers", "make its folder first")):
        assert command(predict.main, str(run), "-i", "lines", "-O", output) == 1
        assert said in capsys.readouterr().err
        assert command(evaluate.main, str(run), "other.txt", "--errors", output) == 1
        assert said in capsys.readouterr().err
    assert command(predict.main, str(run), "-i", "lines", "-O", "answers", "--force") == 0
    assert (project / "answers").read_bytes() == before

    assert command(predict.main, str(run), "-i", "lines", "-O", str(project / "lines")) == 1
    assert "is the input, which would be lost" in capsys.readouterr().err
    assert (project / "lines").read_text() == "A GOOD film\nbad\n\n"

    # in processes of their own, in a pipe, without the vectors
    (project / "vectors.txt").unlink()
    done = shell("sopa_plugin.predict", str(run), input='{"text": "a good film", "id": 1}\n')
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        **answers[0], "text": "a good film", "id": 1,
        "probabilities": pytest.approx(answers[0]["probabilities"], rel=1e-4),
    }  # fmt: skip


def test_overrides_environment_and_include_package(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "data").rename(project / "elsewhere")
    monkeypatch.setenv("MY_SST", "elsewhere")
    arguments = ["-o", "trainer.num_epochs=7", "-o", "model.head=linear"]
    assert command(train.main, "mine.jsonnet", *arguments, "--print-config") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["dataset"]["path"] == str(project / "elsewhere")
    assert printed["trainer"]["num_epochs"] == 7
    assert printed["trainer"]["type"] == "accelerate"
    assert printed["model"]["head"]["type"] == "linear"
    assert not (project / "runs").exists()
    # what is printed is a config, and the same one
    (project / "printed.json").write_text(json.dumps(printed))
    assert command(train.main, "printed.json", "--print-config") == 0
    assert json.loads(capsys.readouterr().out) == printed
    assert command(train.main, "mine.jsonnet", "--include-package", "no_such_package") == 2
    assert "cannot import 'no_such_package'" in capsys.readouterr().err


def test_validate_checks_and_stops(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(train.main, "mine.jsonnet", "--validate") == 0
    assert "no problems" in capsys.readouterr().out
    wrong = ["-o", "model.encoder.dropout=lots", "-o", "trainer.patience=0"]
    assert command(train.main, "mine.jsonnet", "--validate", *wrong) == 2
    error = capsys.readouterr().err
    assert "mine.jsonnet has 2 problems" in error
    assert "model.encoder.dropout" in error
    assert "trainer.patience" in error
    (project / "space.json").write_text('{"base": {"dataset": {}}, "parameters": {"seed": [1, 2]}}')
    assert command(train.main, "space.json") == 1
    assert "for another command: sopa-plugin search space.json" in capsys.readouterr().err
    assert not (project / "runs").exists()


def write(path: str, text: str) -> Callable[[Path], None]:
    return lambda project: (project / path).write_text(text) and None


def override(*assignments: str) -> list[str]:
    return [argument for each in assignments for argument in ("-o", each)]


FAULTS = [
    pytest.param([], override("model.encoder.type=sopaa"), 2, "did you mean 'sopa'", id="type"),
    pytest.param(
        [write("mine.jsonnet", CONFIG.replace("hidden_dim", "hiden_dim"))],
        [], 2, "did you mean 'hidden_dim'", id="misspelt-key",
    ),
    pytest.param([], override("trainer.num_epochs=many"), 2, "an integer", id="wrong-type"),
    pytest.param([], override("dataset.path=nowhere"), 1, "nowhere", id="missing-data"),
    pytest.param([], override("model.embedder.vectors=no.txt"), 1, "no.txt", id="missing-vectors"),
    pytest.param([write("data/train.txt", "")], [], 1, "train.txt", id="empty-train"),
    pytest.param(
        [write("data/train.txt", "1 good\n1 a film\n")], [], 1, "two classes", id="one-class"
    ),
    pytest.param([write("data/test.txt", "1 good\n-1 bad\n")], [], 1, "test.txt:2", id="label-1"),
    pytest.param(
        [write("vectors.txt", "good 1 0 .5\nbad 1 0\nfilm 0 1 0\n")],
        [], 1, "vectors.txt:2", id="mixed-dimensions",
    ),
    pytest.param([], override("dataset.path=some/data"), 1, "HF_HUB_OFFLINE", id="no-hub"),
    pytest.param(
        [], override("trainer.optimizer.lr=-1"), 2, "Invalid learning rate", id="optimizer-refuses",
    ),
    pytest.param(
        [], override('trainer.learning_rate_scheduler={"type": "one_cycle", "max_lr": 1, '
        '"pct_start": 2}'), 2, "pct_start", id="scheduler-refuses",
    ),
    pytest.param([], override("seed=-1"), 2, "an integer of at least 0 and at most", id="seed"),
    pytest.param([], override("dataset.path="), 2, "dataset.path: expected", id="no-path"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "arguments", "status", "message"), FAULTS)
def test_a_fault_gives_one_clear_error_and_loses_nothing(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: list[Callable[[Path], None]],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    run = project / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "experiment.json").write_text('{"dataset": 0, "model": 0, "trainer": 0}')
    for change in changes:
        change(project)
    assert command(train.main, "mine.jsonnet", "--force", *arguments) == status
    error = capsys.readouterr().err
    assert message in error
    assert error.count("error:") == 1
    assert "Traceback" not in error
    assert [each.name for each in run.iterdir()] == ["experiment.json"]


def test_an_existing_folder_is_refused_before_anything_is_read(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "out").mkdir()
    (project / "out" / "thesis.tex").write_text("...")
    (project / "data" / "train.txt").unlink()
    assert command(train.main, "mine.jsonnet", "-s", "out") == 1
    assert "out: the output folder exists already" in capsys.readouterr().err
    assert command(train.main, "mine.jsonnet", "-s", "out", "--force") == 1
    assert "not the folder of a run" in capsys.readouterr().err
    assert (project / "out" / "thesis.tex").read_text() == "..."


def test_faults_of_the_other_commands(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "lines").write_text("good\n")
    (project / "other.csv").write_text("name\ngood\n")
    for main, arguments, message in (
        (evaluate.main, ["nowhere"], f"nowhere: no such folder (the current folder is {project})"),
        (predict.main, ["nowhere"], "nowhere: no such folder"),
        (predict.main, ["nowhere", "-i", "other.csv"], "nowhere: no such folder"),
        (predict.main, ["data"], "data: has no trained model in it"),
        (predict.main, ["data", "-i", "no.txt"], "no.txt: cannot be read"),
    ):
        assert command(main, *arguments) == 1
        assert message in capsys.readouterr().err


def test_what_the_system_refuses_is_one_error(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "file").write_text("a file, so no folder can be made in it")
    assert command(train.main, "mine.jsonnet", "-s", "file/run") == 1
    assert "error: file/run: Not a directory" in capsys.readouterr().err


def test_a_fault_in_a_process_of_its_own(project: Path) -> None:
    done = shell("sopa_plugin.train", "nothing.jsonnet")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: nothing.jsonnet: no such config file")


def test_shipped_config_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(train.main, str(ROOT / "configs" / "sopa_sst.jsonnet"), "--validate") == 0
