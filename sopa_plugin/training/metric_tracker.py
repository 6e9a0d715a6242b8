"""Which epoch was the best so far, and whether to go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ValidationMetric = Literal["-loss", "+accuracy", "+macro_f1"]
"""A metric of the dev set; the sign says whether smaller (-) or larger (+) is better."""


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
