from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sopa_plugin.comparisons import Description, Runner, write_report
from sopa_plugin.registry import build

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "title": "Small",
    "data": [
        {
            "name": "sst",
            "title": "SST",
            "config": {"dataset": {"type": "sst", "path": str(ROOT / "fixtures" / "sst")}},
        }
    ],
    "models": [
        {
            "name": "hard",
            "title": "Hard",
            "config": {
                "model": {"type": "hard_patterns", "min_frequency": 3},
                "trainer": {"type": "sklearn"},
            },
            "parameters": {"C": {"keys": ["trainer.C"], "values": [0.1, 1.0, 10.0]}},
        },
        {
            "name": "dan",
            "title": "DAN",
            "config": {
                "model": {
                    "type": "text_classifier",
                    "embedder": {
                        "type": "static",
                        "vectors": str(ROOT / "fixtures" / "vectors.txt"),
                    },
                    "encoder": {"type": "dan"},
                },
                "trainer": {"type": "accelerate", "batch_size": 32},
            },
            "parameters": {"lr": {"keys": ["trainer.optimizer.lr"], "values": [0.001, 0.01]}},
        },
    ],
    "sizes": [60, None],
    "seeds": [1, 2],
    "tuning": {"num_trials": 2, "num_epochs": 3, "patience": 2},
    "reference": "dan",
    "published": {"title": "paper", "accuracies": {"dan": {"sst": {"60": 71.0, "all": 83.1}}}},
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """As worker processes have it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def description() -> dict[str, Any]:
    return copy.deepcopy(SMALL)


def run_experiment(description: dict[str, Any], folder: Path, cells: int | None = None) -> Runner:
    """Runs an experiment in this process, or its first cells, as if it were interrupted then."""
    compared = build(Description, description)
    runner = Runner(compared.plans(), folder)
    for number, _ in enumerate(runner.run(), start=1):
        if number == cells:
            break
    write_report(compared, runner.cells, folder / "report")
    return runner


def table(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """What must not depend on how an experiment was run."""
    cells = json.loads((folder / "report" / "table.json").read_text())
    for cell in cells:
        del cell["seconds"]
    return (folder / "report" / "table.tex").read_text(), cells


@pytest.fixture(scope="session")
def tools():
    """`run_experiment` and `table`, for tests: conftest cannot be imported."""
    return run_experiment, table


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """The folder of an experiment that ran without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    run_experiment(copy.deepcopy(SMALL), folder)
    return folder
