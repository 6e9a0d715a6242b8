"""Work timed side by side, and reports as people and machines read them."""

from __future__ import annotations

import gc
import json
from itertools import count

import numpy as np
import pytest

from sopa_plugin.benchmarks.measuring import Report, Spread, Table, Target, interleave


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
    assert Spread.of(np.array([7.0]), "s") == Spread(7, 7, 7, "s")


def test_sizes_in_mebibytes() -> None:
    assert str(Spread.of(3 * 2**19, "B")) == "1.5 MiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ((2, 1, 30), "2 s (1–30)"),
        ((0.0123, 0.012, 0.02), "12.3 ms (12–20)"),
        ((4e-6, 3e-6, 5e-6), "4 µs (3–5)"),
        ((2.5e-9, 2e-9, 3e-9), "2.5 ns (2–3)"),
        ((1e-12, 0, 2e-12), "0.001 ns (0–0.002)"),
    ],
)
def test_times_in_a_unit_that_suits_them(seconds: tuple[float, ...], text: str) -> None:
    assert str(Spread(*seconds, "s")) == text


def test_a_table_is_markdown() -> None:
    rows = [{"what": "a", "n": 1200, "ratio": Spread(2.5, 2, 3)}, {"what": "b", "n": 7}]
    assert str(Table("Title", rows, "A note.")).splitlines() == [
        "### Title",
        "",
        "A note.",
        "",
        "| what | n | ratio |",
        "| --- | --- | --- |",
        "| a | 1,200 | 2.5 × (2–3) |",
        "| b | 7 |  |",
    ]


@pytest.mark.parametrize(
    ("found", "at_most", "reached"), [(3, False, True), (2.9, False, False), (3.1, True, False)]
)
def test_a_target_is_reached_by_the_median(found: float, at_most: bool, reached: bool) -> None:
    target = Target("x", Spread(found, 1, 9), 3, aim=5, at_most=at_most)
    assert target.reached == reached
    row = target.row()
    assert row["target"] == f"at {'most' if at_most else 'least'} 3 ×, aim 5 ×"
    assert str(row["found"]) == f"{found:g} × (1–9)"
    assert row["reached"] == ("yes" if reached else "no")


def test_a_target_may_be_something_else_than_a_ratio() -> None:
    row = Target("x", Spread(1, 1, 1, "bytes"), 2, at_most=True).row()
    assert row["target"] == "at most 2 bytes"
    assert str(row["found"]) == "1 bytes"


def test_json_holds_plain_numbers() -> None:
    report = Report("a machine")
    report.tables.append(
        Table("T", [{"what": "a", "time": Spread(1, 0.5, 2, "s"), "m": Spread.of(3, "B")}])
    )
    report.targets.append(Target("x", Spread(4, 3, 5), 3))
    read = json.loads(json.dumps(report.as_json()))
    assert read["tables"][0]["rows"] == [
        {
            "what": "a",
            "time": {"median": 1, "low": 0.5, "high": 2, "unit": "s"},
            "m": {"median": 3, "low": 3, "high": 3, "unit": "B"},
        }
    ]
    assert read["targets"][0]["reached"] is True
    assert "### Targets" in str(report)
