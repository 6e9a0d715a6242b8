"""What is measured of a classifier, which epoch was the best, and what is said of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Metrics = dict[str, Any]
ValidationMetric = Literal["-loss", "+accuracy", "+macro_f1"]
"""A metric of the dev set; the sign says whether smaller (-) or larger (+) is better."""


def classification_metrics(
    log_probabilities: NDArray[np.floating], labels: NDArray[np.integer] | Sequence[int]
) -> Metrics:
    """`accuracy`, `macro_f1`, `loss` (mean negative log-likelihood) and the number of `examples`.

    Arguments:
        log_probabilities: `[examples, classes]`.
        labels: true class numbers, `[examples]`.
    """
    labels = np.asarray(labels)
    predictions = log_probabilities.argmax(axis=1)
    loss = -log_probabilities[np.arange(len(labels)), labels]
    return {
        "accuracy": float((predictions == labels).mean()),
        "macro_f1": macro_f1(predictions, labels),
        "loss": float(loss.mean(dtype=np.float64)),
        "examples": len(labels),
    }


def split_metrics(
    split: str,
    log_probabilities: NDArray[np.floating],
    labels: NDArray[np.integer] | Sequence[int],
) -> Metrics:
    """`classification_metrics` under AllenNLP's flat names (`test_accuracy`)."""
    metrics = classification_metrics(log_probabilities, labels)
    return {f"{split}_{name}": value for name, value in metrics.items()}


def macro_f1(predictions: NDArray[np.integer], labels: NDArray[np.integer]) -> float:
    """Mean F1 of the classes that are true or predicted of any example, as scikit-learn has it."""
    scores = []
    for label in np.union1d(predictions, labels):
        true, predicted = labels == label, predictions == label
        # F1 = 2 TP / (2 TP + FP + FN)
        scores.append(2 * (true & predicted).sum() / (true.sum() + predicted.sum()))
    return float(np.mean(scores))


@dataclass
class MetricTracker:
    """Follows one metric of the dev set; training stops after `patience` epochs without a new best.

    Attributes:
        metric: what is followed.
        patience: epochs without a new best after which to stop; None never stops.
        best: the best value.
        best_epoch: the epoch, counted from 0, that it is of.
        epochs_without_improvement: since then.
    """

    metric: ValidationMetric
    patience: int | None = None
    best: float | None = None
    best_epoch: int | None = None
    epochs_without_improvement: int = 0

    @property
    def name(self) -> str:
        """The metric without its sign."""
        return self.metric[1:]

    @property
    def larger_is_better(self) -> bool:
        """What the sign says."""
        return self.metric[0] == "+"

    def add(self, value: float, epoch: int) -> bool:
        """Takes an epoch's value; whether it is better than all before (equal is not)."""
        better = self.best is None or (
            value > self.best if self.larger_is_better else value < self.best
        )
        if better:
            self.best, self.best_epoch, self.epochs_without_improvement = value, epoch, 0
        else:
            self.epochs_without_improvement += 1
        return better

    @property
    def should_stop(self) -> bool:
        """Whether patience is at its end."""
        return self.patience is not None and self.epochs_without_improvement >= self.patience


def training_summary(
    history: Sequence[Mapping[str, Any]], best_epoch: int, seconds: float
) -> Metrics:
    """What a trainer knows of a whole training, by AllenNLP's names (see `Trainer.train`).

    Arguments:
        history: metrics of every epoch, `training_*` and `validation_*`.
        best_epoch: its number, counted from 0.
        seconds: that the training took.
    """
    best = {
        f"best_{key}": value
        for key, value in history[best_epoch].items()
        if key.startswith("validation_")
    }
    return {
        "best_epoch": best_epoch,
        "training_epochs": len(history),
        "training_duration": str(timedelta(seconds=seconds)),
        **history[-1],
        **best,
    }
