"""Reports as people and machines read them."""

from __future__ import annotations

import json

import pytest

from sopa_plugin.benchmarks.report import Ratio, Report, Seconds, Size, Table, Target
from sopa_plugin.benchmarks.timing import Spread


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
    assert str(Seconds(*seconds)) == text


def test_a_table_is_markdown() -> None:
    rows = [{"what": "a", "n": 1200, "ratio": Ratio(2.5, 2, 3)}, {"what": "b", "n": 7}]
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
    target = Target("x", Ratio(found, 1, 9), 3, aim=5, at_most=at_most)
    assert target.reached == reached
    row = target.row()
    assert row["target"] == f"at {'most' if at_most else 'least'} 3 ×, aim 5 ×"
    assert row["found"] == f"{found:g} × (1–9)"
    assert row["reached"] == ("yes" if reached else "no")


def test_a_target_may_be_something_else_than_a_ratio() -> None:
    row = Target("x", Spread(1, 1, 1), 2, at_most=True, unit="bytes").row()
    assert row["target"] == "at most 2 bytes"
    assert row["found"] == "1 bytes (1–1)"


def test_json_holds_plain_numbers() -> None:
    report = Report("a machine")
    report.tables.append(Table("T", [{"what": "a", "time": Seconds(1, 0.5, 2), "m": Size(3)}]))
    report.targets.append(Target("x", Ratio(4, 3, 5), 3))
    read = json.loads(json.dumps(report.as_json()))
    assert read["tables"][0]["rows"] == [
        {"what": "a", "time": {"median": 1, "low": 0.5, "high": 2}, "m": {"bytes": 3}}
    ]
    assert read["targets"][0]["reached"] is True
    assert "### Targets" in str(report)
