"""Time taken by several pieces of work, side by side."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Work = Callable[[], object]
Clock = Callable[[], float]

CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Spread:
    """A repeated measurement: its median, and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: ArrayLike) -> Self:
        """The spread of `values`."""
        low, median, high = np.percentile(np.asarray(values, dtype=float), [25, 50, 75])
        return cls(float(median), float(low), float(high))


def interleave(
    work: Mapping[str, Work], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, NDArray[np.float64]]:
    """Seconds that each piece of work takes, `[rounds]` by name.

    Every round runs each of them once, one after the other, so that whatever else the machine does
    meanwhile slows all of them alike. One round more comes first and does not count.
    """
    seconds = {name: np.zeros(rounds) for name in work}
    for each in work.values():
        each()
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            for name, each in work.items():
                began = clock()
                each()
                seconds[name][number] = clock() - began
    finally:
        gc.enable()
    return seconds


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Lets torch and the kernel use so many threads meanwhile; None leaves it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
