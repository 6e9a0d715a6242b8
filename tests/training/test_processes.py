"""Two processes, started by `accelerate launch`, against one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin.training import evaluate_run, run_experiment

ROOT = Path(__file__).parents[2]
Config = Callable[..., dict[str, Any]]
SIZES = {"train": 22, "dev": 7, "test": 5}
WORDS = ["good", "bad", "film", "very", "a", "not", "story", "the"]


@pytest.fixture
def twenty_two(config: Config, tmp_path: Path) -> dict[str, Any]:
    """An experiment on 22 sentences, of which two processes take 8 each at a time."""
    data = tmp_path / "data"
    data.mkdir()
    for split, size in SIZES.items():
        lines = [
            f"{number % 2} {' '.join(WORDS[(number * k) % 8] for k in range(1, 3 + number % 5))}\n"
            for number in range(size)
        ]
        (data / f"{split}.txt").write_text("".join(lines))
    return config(
        dataset__path=str(data),
        model__encoder__dropout=0.0,
        model__head__dropout=0.0,
        trainer__batch_size=8,
        trainer__num_epochs=30,
        trainer__patience=2,
        trainer__validation_metric="+accuracy",
        trainer__checkpoint_every=1,
    )


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in two processes."""
    return subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch",
         "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
         "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
         *arguments],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "ACCELERATE_USE_CPU": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        },
    )  # fmt: skip


def test_two_processes(twenty_two: dict[str, Any], tmp_path: Path) -> None:
    # with rows whose gradients are sparse, and in some batches are none
    (tmp_path / "vectors.txt").write_text("good 1 0\nbad 0 1\nfilm 1 1\nvery 1 -1\na 0 2\n")
    twenty_two["model"]["embedder"] |= {
        "vectors": str(tmp_path / "vectors.txt"),
        "own_rows": True,
        "ngram_buckets": 50,
    }
    twenty_two["trainer"] |= {"embedder_pull": 0.5, "grad_norm": 1.0}
    program = Path(__file__).parent / "two_processes.py"
    done = launch(str(program), json.dumps(twenty_two), str(tmp_path))
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first["num_processes"] == second["num_processes"] == 2

    # every training document once an epoch, in another order each time
    epochs = list(zip(first["trained"], second["trained"], strict=True))
    for mine, others in epochs:
        assert sorted(chain(*mine, *others)) == list(range(22))
        assert [len(batch) for batch in mine] in ([8, 3], [3, 8])
        assert [len(batch) for batch in others] in ([8, 3], [3, 8])
    assert len({str(epoch) for epoch in epochs}) == len(epochs)

    # both stop at the same time, with the same figures
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    for each in (metrics, first["metrics"], second["metrics"]):
        del each["training_duration"]
    assert metrics == first["metrics"] == second["metrics"]
    assert metrics["training_epochs"] == len(epochs)
    assert metrics["training_epochs"] == metrics["best_epoch"] + 3 < 30

    # dev and test documents are all counted, each once
    for split, prefix in (("train", "training"), ("dev", "validation"), ("test", "test")):
        assert metrics[f"{prefix}_examples"] == SIZES[split]
    counts = [first["evaluated"] + second["evaluated"]]
    # after each epoch, and of the best model; train once, for the means of document vectors
    held_out = SIZES["dev"] * (len(epochs) + 1) + SIZES["test"]
    assert len(counts[0]) == held_out + SIZES["train"]

    # one process counts the same from the same weights
    for evaluated in evaluate_run(tmp_path / "run"):
        prefix = {"dev": "best_validation", "test": "test"}[evaluated["split"]]
        for name in ("accuracy", "macro_f1", "loss", "examples"):
            assert evaluated[name] == pytest.approx(metrics[f"{prefix}_{name}"], abs=1e-6)

    # one process with batches twice as large learns the same
    twenty_two["trainer"]["batch_size"] = 16
    alone = run_experiment(twenty_two, tmp_path / "alone")
    assert alone["training_epochs"] == metrics["training_epochs"]
    for name in ("training_loss", "validation_loss", "test_loss"):
        assert alone[name] == pytest.approx(metrics[name], abs=1e-4)

    # stopped in the middle of an epoch and recovered, they end where they would have
    recovered = first["recovered"]
    for name, value in metrics.items():
        assert recovered[name] == value, name


FAILING = """
import os
from sopa_plugin.encoders import Seq2VecEncoder
from sopa_plugin.encoders.dan import DanEncoder
from sopa_plugin.errors import UserError

@Seq2VecEncoder.register("for_test_failing")
class Failing(DanEncoder):
    calls = 0

    def forward(self, *args):
        Failing.calls += 1
        if Failing.calls == 7 and os.environ["RANK"] == "1":
            raise UserError("the encoder had enough")
        return super().forward(*args)
"""


def test_the_error_of_one_process_is_said(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing.py").write_text(FAILING)
    settings = config(model__encoder={"type": "for_test_failing"})
    (tmp_path / "config.json").write_text(json.dumps(settings))
    done = launch("-m", "sopa_plugin.train", "config.json", "--include-package", "failing")
    assert done.returncode != 0
    assert "error in process 1: the encoder had enough" in done.stderr
    # the launcher's is the only traceback
    assert done.stderr.count("Traceback") == done.stderr.count("in launch_command") <= 1
