"""Pieces of work timed side by side."""

from __future__ import annotations

import gc
from itertools import count

import numpy as np

from sopa_plugin.benchmarks.timing import Spread, interleave


def test_every_round_runs_each_once_after_a_round_that_does_not_count() -> None:
    ran: list[str] = []
    ticks = count()
    work = {name: lambda name=name: ran.append(name) for name in "ab"}
    seconds = interleave(work, rounds=3, clock=lambda: float(next(ticks)))
    assert "".join(ran) == "ab" * 4
    assert {name: each.tolist() for name, each in seconds.items()} == {"a": [1] * 3, "b": [1] * 3}
    assert gc.isenabled()


def test_spread_is_the_median_between_quartiles() -> None:
    assert Spread.of([5, 1, 2, 3, 4]) == Spread(3, 2, 4)
    assert Spread.of(np.array([7.0])) == Spread(7, 7, 7)
