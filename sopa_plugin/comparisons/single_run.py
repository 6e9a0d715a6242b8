"""One training run of many, of which nothing stays but its figures."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.errors import UserError
from sopa_plugin.registry import fill_defaults
from sopa_plugin.training import Experiment, run_experiment
from sopa_plugin.training.metrics import Metrics
from sopa_plugin.training.run_folder import CONFIG, PREDICTIONS, read_config
from sopa_plugin.training.trainer import OnEpoch


@dataclass(frozen=True)
class Result:
    """What is known of a finished run.

    Attributes:
        config: its config.
        metrics: as in `metrics.json`.
        seconds: from reading the data to the end.
        correct: which test examples it has right, a digit each, `1` for right; in hexadecimal, for
            there may be many.
        examples: how many test examples there are; 0 if the data have no test set.
        gold: a digest of their labels, by which other test examples are told.
    """

    config: dict[str, Any]
    metrics: Metrics
    seconds: float
    correct: str
    examples: int
    gold: str

    def dev(self, metric: str) -> float:
        """The dev figure of a metric as `validation_metric` names it."""
        return float(self.metrics[f"best_validation_{metric[1:]}"])

    def right(self) -> NDArray[np.bool_]:
        """Which test examples it has right, `[examples]`."""
        packed = np.frombuffer(bytes.fromhex(self.correct), dtype=np.uint8)
        return np.unpackbits(packed, count=self.examples).astype(bool)


def run_once(config: Mapping[str, Any], folder: Path, on_epoch: OnEpoch | None = None) -> Result:
    """Trains in `folder`, going on with what an interrupted run left there, and deletes it.

    Raises `UserError` and `ConfigError` as `run_experiment` does, and whatever `on_epoch` raises.
    """
    from accelerate.state import AcceleratorState

    began = time.monotonic()
    # runs of one process may differ in what Accelerate holds for the whole process
    AcceleratorState._reset_state(reset_partial_state=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and not _can_go_on(config, folder):
        remove_run(folder)
    metrics = run_experiment(config, folder, recover=True, on_epoch=on_epoch)
    gold, predicted = _read_predictions(folder)
    right = np.array([g == p for g, p in zip(gold, predicted, strict=True)], dtype=bool)
    remove_run(folder)
    return Result(
        config=dict(config),
        metrics=metrics,
        seconds=round(time.monotonic() - began, 2),
        correct=np.packbits(right).tobytes().hex(),
        examples=len(gold),
        gold=hashlib.blake2b("\n".join(gold).encode(), digest_size=8).hexdigest(),
    )


def remove_run(folder: Path) -> None:
    """Deletes a run; what a kill may leave of it is no run to go on with."""
    (folder / CONFIG).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _can_go_on(config: Mapping[str, Any], folder: Path) -> bool:
    """Whether the folder holds a run of this very config."""
    try:
        return read_config(folder) == fill_defaults(Experiment, dict(config))
    except UserError:
        return False


def _read_predictions(folder: Path) -> tuple[list[str], list[str]]:
    """The true and the predicted class names of the test examples."""
    file = folder / PREDICTIONS.format(split="test")
    if not file.is_file():  # the data have no test set
        return [], []
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line["label"] for line in lines], [line["predicted"] for line in lines]
