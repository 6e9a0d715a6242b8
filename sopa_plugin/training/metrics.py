"""What is measured of a classifier, which epoch was the best, and what is said of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Metrics = dict[str, Any]
BINS = 15  # of the probability of the predicted class, for the calibration error
_LARGEST_SHOWN = 20  # classes of a confusion matrix that a terminal can show
ValidationMetric = Literal["-loss", "+accuracy", "+macro_f1"]
"""A metric of the dev set; the sign says whether smaller (-) or larger (+) is better."""
EpochMetric = Literal["-loss", "+accuracy", "+macro_f1", "+epoch"]
"""What says which epoch is the best: a figure of dev, or that it is the last."""


def classification_metrics(
    log_probabilities: NDArray[np.floating], labels: NDArray[np.integer] | Sequence[int]
) -> Metrics:
    """`accuracy`, `macro_f1`, `loss` (mean negative log-likelihood) and the number of `examples`.

    Arguments:
        log_probabilities: `[examples, classes]`.
        labels: true class numbers, `[examples]`. Numbers beyond the classes are of labels that
            the model has not: such examples are wrong, and the loss is that of the others.
    """
    labels = np.asarray(labels)
    predictions = log_probabilities.argmax(axis=1)
    known = np.flatnonzero(labels < log_probabilities.shape[1])
    loss = -log_probabilities[known, labels[known]]
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


def detailed_metrics(
    log_probabilities: NDArray[np.floating],
    labels: NDArray[np.integer] | Sequence[int],
    names: Sequence[str],
) -> Metrics:
    """`classification_metrics`, and how good a model is class by class and at its word.

    Arguments:
        log_probabilities: `[examples, classes]`.
        labels: true class numbers, `[examples]`.
        names: of the classes.

    Returns:
        Besides: `weighted_f1`, `calibration_error` (see `calibration_error`), `per_class`
        (`precision`, `recall`, `f1` and `support` by class name) and `confusion_matrix`, a row
        for each true class, a column for each predicted one.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    labels, predictions = np.asarray(labels), log_probabilities.argmax(axis=1)
    numbers = list(range(len(names)))
    figures = precision_recall_fscore_support(labels, predictions, labels=numbers, zero_division=0)
    per_class = {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
        for name, p, r, f, n in zip(names, *figures, strict=True)
    }
    return {
        **classification_metrics(log_probabilities, labels),
        "weighted_f1": float(np.average(figures[2], weights=figures[3])),
        "calibration_error": calibration_error(log_probabilities, labels),
        "per_class": per_class,
        "confusion_matrix": confusion_matrix(labels, predictions, labels=numbers).tolist(),
    }


def calibration(
    log_probabilities: NDArray[np.floating], labels: NDArray[np.integer] | Sequence[int]
) -> NDArray[np.float64]:
    """Examples by the probability of their answers, in 15 bins of equal width, `[bins, 3]`.

    Of each bin the number of examples, the sum of their probabilities, and how many are right.
    """
    probabilities = np.exp(log_probabilities.max(axis=1))
    right = log_probabilities.argmax(axis=1) == labels
    # a bin ends with its upper edge
    bins = np.clip(np.ceil(probabilities * BINS).astype(int) - 1, 0, BINS - 1)
    weights = (np.ones(len(bins)), probabilities, right)
    return np.stack([np.bincount(bins, each, BINS) for each in weights], axis=1)


def calibration_error(
    log_probabilities: NDArray[np.floating], labels: NDArray[np.integer] | Sequence[int]
) -> float:
    """Expected calibration error: how far the probability of an answer is from its being right.

    The mean over examples of |share of right answers - mean probability| in the example's bin
    (Guo et al. 2017, "On Calibration of Modern Neural Networks", Eq. 3).
    """
    _, probabilities, right = calibration(log_probabilities, labels).T
    return float(np.abs(right - probabilities).sum() / len(labels))


def fit_temperature(
    log_probabilities: NDArray[np.floating], labels: NDArray[np.integer] | Sequence[int]
) -> float:
    """The temperature T, from 0.05 to 20, at which softmax(logits / T) has the least loss."""
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        scaled = log_probabilities / np.exp(log_temperature)
        scaled = scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)
        return float(classification_metrics(scaled, labels)["loss"])

    return float(np.exp(minimize_scalar(loss, bounds=np.log([0.05, 20]), method="bounded").x))


def metrics_text(metrics: Metrics) -> str:
    """`detailed_metrics` as a table of the classes and, of few classes, the confusion matrix."""
    import pandas

    names = list(metrics["per_class"])
    overall = ("accuracy", "macro_f1", "weighted_f1", "calibration_error")
    tables = [
        pandas.DataFrame(metrics["per_class"]).T.astype({"support": int}),
        pandas.Series({name.replace("_", " "): metrics[name] for name in overall}),
    ]
    if len(names) <= _LARGEST_SHOWN:
        confusion = pandas.DataFrame(metrics["confusion_matrix"], names, names)
        tables.append(confusion.rename_axis("true, predicted", axis="columns"))
    return "\n\n".join(table.to_string(float_format="{:.4f}".format) for table in tables)


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

    metric: EpochMetric
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

    def value(self, metrics: Mapping[str, Any]) -> float:
        """Of an epoch's metrics, the one that is followed."""
        return float(metrics["epoch" if self.name == "epoch" else f"validation_{self.name}"])

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
    history: Sequence[Mapping[str, Any]], best_epoch: int | None, seconds: float
) -> Metrics:
    """What a trainer knows of a whole training, by AllenNLP's names (see `Trainer.train`).

    Arguments:
        history: metrics of every epoch, `training_*` and `validation_*`.
        best_epoch: its number, counted from 0; None where there is no epoch.
        seconds: that the training took.
    """
    if best_epoch is None:
        return {"training_epochs": 0, "training_duration": str(timedelta(seconds=seconds))}
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
