"""What is measured of a classifier on a set of documents, and said of its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray


def classification_metrics(
    log_probabilities: NDArray[np.floating], labels: NDArray[np.integer]
) -> dict[str, float | int]:
    """`accuracy`, `macro_f1`, `loss` (mean negative log-likelihood) and the number of `examples`.

    Arguments:
        log_probabilities: `[examples, classes]`.
        labels: true class numbers, `[examples]`.
    """
    predictions = log_probabilities.argmax(axis=1)
    loss = -log_probabilities[np.arange(len(labels)), labels]
    return {
        "accuracy": float((predictions == labels).mean()),
        "macro_f1": macro_f1(predictions, labels),
        "loss": float(loss.mean(dtype=np.float64)),
        "examples": len(labels),
    }


def macro_f1(predictions: NDArray[np.integer], labels: NDArray[np.integer]) -> float:
    """Mean F1 of the classes that are true or predicted of any example, as scikit-learn has it."""
    scores = []
    for label in np.union1d(predictions, labels):
        true, predicted = labels == label, predictions == label
        # F1 = 2 TP / (2 TP + FP + FN)
        scores.append(2 * (true & predicted).sum() / (true.sum() + predicted.sum()))
    return float(np.mean(scores))


def training_summary(
    history: Sequence[Mapping[str, Any]], best_epoch: int, seconds: float
) -> dict[str, Any]:
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
