"""A small experiment on the embedded sample, and runs of it in processes of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = {
    "dataset": {"type": "sst", "path": str(ROOT / "fixtures" / "sst_lines")},
    "model": {
        "type": "text_classifier",
        "embedder": {"type": "static", "vectors": str(ROOT / "fixtures" / "vectors.txt")},
        "encoder": {"type": "sopa", "patterns": {"3": 4, "2": 4}, "dropout": 0.1},
        "head": {"type": "mlp", "hidden_dim": 8, "dropout": 0.1},
    },
    "tokenizer": {"type": "whitespace", "vocabulary": "train_dev"},
    "trainer": {
        "type": "accelerate",
        "batch_size": 16,
        "num_epochs": 4,
        "optimizer": {"type": "adam", "lr": 0.01},
    },
    "seed": 3,
}


def with_changes(**changes: Any) -> dict[str, Any]:
    """`CONFIG` with `trainer__batch_size=8` and the like; None for a key of no default drops it."""
    config = copy.deepcopy(CONFIG)
    for path, value in changes.items():
        *parents, key = path.split("__")
        part = config
        for each in parents:
            part = part[each]
        part[key] = value
    return config


@pytest.fixture
def config() -> Callable[..., dict[str, Any]]:
    return with_changes
