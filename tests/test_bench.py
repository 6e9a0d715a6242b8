"""`python -m sopa_plugin.bench`, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin.bench import main
from sopa_plugin.benchmarks import SECTIONS, run_benchmarks
from sopa_plugin.benchmarks.growth import Problem, variations
from sopa_plugin.errors import UserError

TITLES = {
    "Training step, sentences of like length together",
    "Training step, sentences in random order",
    "Kernel, forward",
    "Prediction from raw text",
    "Reading a model",
    "Epoch",
    "Memory of a training step",
    *(f"Growth with {name}" for name in ("patterns", "states", "tokens", "documents", "threads")),
}


def bench(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    environment = {key: each for key, each in os.environ.items() if not key.startswith("SOPA_")}
    root = str(Path(__file__).resolve().parents[1])
    return subprocess.run(
        [sys.executable, "-m", "sopa_plugin.bench", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        check=False,
    )


def test_a_small_run_fills_every_table(tmp_path: Path) -> None:
    done = bench(
        *(name for name in SECTIONS if name != "scale"),  # which starts five more processes
        *("--rounds", "2", "--batches", "1", "--sentences", "40", "--json"),
        *("--plot", "pictures/growth.png"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    tables = {table["title"]: table["rows"] for table in report["tables"]}
    assert tables.keys() >= TITLES
    for title, rows in tables.items():
        assert rows, title
        for row in rows:
            for value in row.values():
                if isinstance(value, dict) and "median" in value:
                    assert 0 < value["low"] <= value["median"] <= value["high"], (title, row)
    for name in (
        "Training step",
        "kernel",
        "raw text",
        "epoch",
        "phrases",
        "tensor",
        "4,000 tokens",
    ):
        if name == "raw text" and find_spec("fasttext") is None:
            continue
        assert any(name in target["what"] for target in report["targets"]), name
    if find_spec("matplotlib") is not None:
        assert (tmp_path / "pictures/growth.png").read_bytes().startswith(b"\x89PNG")


def test_a_section_alone_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SOPA_SST", raising=False)
    monkeypatch.chdir(tmp_path)
    main(["kernel", "--rounds", "1", "--batches", "1", "--sentences", "20"])
    printed = capsys.readouterr().out
    assert "### Kernel, forward" in printed
    assert "### Targets" in printed
    assert "Training" not in printed
    assert "generated sentences of SST's shape (20)" in printed
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_its_section_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    monkeypatch.delenv("SOPA_SST", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    # no picture is asked for: section growth is not
    report = run_benchmarks(["gpu"], sentences=10, plot=tmp_path / "x.foo")
    assert report.tables == []
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "gpu: no CUDA device: skipped"
    ]


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no section 'kernels': expected some of training, "):
        main(["kernels"])
    with pytest.raises(SystemExit):
        main(["--rounds", "0"])
    assert "--rounds: expected a whole number from 1, found '0'" in capsys.readouterr().err


def test_threads_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.delenv("SOPA_SST", raising=False)
    before = torch.get_num_threads()
    run_benchmarks(["memory"], rounds=1, batches=1, sentences=10, threads=before + 1)
    assert torch.get_num_threads() == before


def test_the_problems_vary_in_one_thing_each() -> None:
    def others(problem: Problem, name: str) -> dict[str, Any]:
        return {key: each for key, each in vars(problem).items() if key != name}

    found = variations(cores=4)
    assert [problem.threads for problem in found["threads"]] == [1, 2, 4]
    assert {400, 4000} <= {problem.tokens for problem in found["tokens"]}
    assert {problem.documents for problem in found["tokens"]} == {32}
    for name, problems in found.items():
        assert len({str(others(problem, name)) for problem in problems}) == 1
    assert set(SECTIONS) >= {"training", "kernel", "prediction", "growth", "gpu"}
