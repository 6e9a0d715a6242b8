"""Whether one model is better than another, or luckier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
_AT_ONCE = 2**22  # numbers drawn, which bounds the memory


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
    """Compares two models on the same test examples with the same seeds.

    Both seeds and test examples are resampled with replacement (the "pigeonhole" bootstrap of
    Owen, 2007), so that neither a lucky seed nor a lucky test set makes a difference; seeds are
    spread by sqrt(S / (S - 1)) first, as resampling S of them varies too little by that. Of three
    seeds that differ much it cannot learn more than they show: if all agree by chance, p is small.

    Arguments:
        first, second: which seeds have which examples right, `[seeds, examples]`, both alike.
        resamples: how often to resample.
        seed: of the resampling.
    """
    differences = first.astype(int) - second.astype(int)
    seeds, examples = differences.shape
    # Examples on which the seeds differ alike are one kind: to resample is to draw their numbers.
    kinds, numbers = np.unique(differences, axis=1, return_counts=True)
    random = np.random.default_rng(seed)
    resampled = np.empty(resamples)
    for some in np.array_split(resampled, -(-resamples * len(numbers) // _AT_ONCE)):
        drawn = random.multinomial(examples, numbers / examples, size=len(some))
        # shape: [resamples, seeds]
        by_seed = drawn @ kinds.T / examples
        mean = by_seed.mean(axis=1, keepdims=True)
        spread = mean + (by_seed - mean) * np.sqrt(seeds / max(seeds - 1, 1))
        drawn_seeds = random.integers(seeds, size=spread.shape)
        some[:] = np.take_along_axis(spread, drawn_seeds, axis=1).mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    tail = min((resampled <= 0).sum(), (resampled >= 0).sum())
    p = min(1.0, 2 * (int(tail) + 1) / (resamples + 1))
    return Comparison(float(differences.mean()), float(low), float(high), p)
