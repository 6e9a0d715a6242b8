"""Whether one model is better than another, or luckier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
_AT_ONCE = 2**22


@dataclass(frozen=True)
class Comparison:
    """A paired bootstrap test.

    Attributes:
        difference: of the accuracies, first minus second.
        low, high: 95 % confidence interval of it.
        p: two-sided p-value of no difference.
    """

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    first: NDArray[np.bool_], second: NDArray[np.bool_], resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Compares two models on the same test examples, which are resampled with replacement.

    An example counts by the share of a model's seeds that have it right, so that neither a lucky
    seed nor a lucky test set makes a difference.

    Arguments:
        first, second: which seeds have which examples right, `[seeds, examples]`.
        resamples: how often to resample.
        seed: of the resampling.
    """
    differences = first.mean(axis=0) - second.mean(axis=0)
    examples = len(differences)
    random = np.random.default_rng(seed)
    means: list[NDArray[np.floating]] = []
    left = resamples
    while left:
        some = min(left, max(_AT_ONCE // examples, 1))
        means.append(differences[random.integers(examples, size=(some, examples))].mean(axis=1))
        left -= some
    resampled = np.concatenate(means)
    low, high = np.quantile(resampled, [0.025, 0.975])
    tail = min((resampled <= 0).sum(), (resampled >= 0).sum())
    p = min(1.0, 2 * (int(tail) + 1) / (resamples + 1))
    return Comparison(float(differences.mean()), float(low), float(high), p)
