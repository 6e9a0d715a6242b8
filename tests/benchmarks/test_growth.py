"""How the cost of the recurrence grows."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from sopa_plugin.benchmarks import SECTIONS, run_benchmarks
from sopa_plugin.benchmarks.growth import (
    Problem,
    draw_growth,
    run_on_many,
    sizes_of_tensors,
    steps_on_long,
)
from sopa_plugin.benchmarks.measuring import CLOCKS, Bench, Report
from sopa_plugin.benchmarks.workload import make_workload
from sopa_plugin.errors import UserError


def made(problem: Problem) -> float:
    """Bytes of all tensors that one forward and backward pass makes."""
    return sum(sizes_of_tensors(problem.work())) / problem.repeats


@pytest.mark.parametrize(
    ("few", "many"),
    [
        (Problem(documents=32, tokens=400), Problem(documents=32, tokens=4000)),
        (Problem(documents=100), Problem(documents=1000)),
        (Problem(patterns=40), Problem(patterns=400)),
    ],
)
def test_memory_grows_in_proportion(few: Problem, many: Problem) -> None:
    """Ten times as much of one thing: quadratic would be 100 times as many bytes."""
    assert 2 < made(many) / made(few) < 10.5


def test_small_problems_are_repeated() -> None:
    assert Problem(documents=10).repeats > Problem(documents=100).repeats > 1
    assert Problem(documents=32, tokens=4000).repeats == 1


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.delenv("SOPA_SST", raising=False)
    return Bench(make_workload(60), 1, 1, CLOCKS["cpu"], None, Report(""))


needs_peaks = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="no peak of memory in /proc"
)


@needs_peaks
def test_long_documents_make_no_more_than_short_ones(bench: Bench) -> None:
    def made(length: int) -> int:
        return sum(sizes_of_tensors(lambda: steps_on_long(bench, length, 200_000)))

    assert made(10_000) < 1.2 * made(100)


@needs_peaks
def test_a_run_on_many_says_what_a_token_costs(bench: Bench) -> None:
    try:
        row = run_on_many(bench, 2)
    finally:
        logging.disable(logging.NOTSET)
    assert row["what"] == "run, 120 documents"
    assert row["time a token"].median > 0
    assert 0 <= row["peak memory a token"].median < 100_000


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.foo", r"x\.foo: expected a picture's name, with one of the endings .*png, .*svg"),
        ("x", "expected a picture's name"),
        (".", "expected a picture's name"),
        ("folder.png", r"folder\.png: is a folder"),
        ("file/x.png", "cannot be written"),
    ],
)
def test_a_picture_that_cannot_be_saved_is_refused_before_measuring(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setitem(SECTIONS, "growth", lambda bench: pytest.fail("measured"))
    with pytest.raises(UserError, match=message):
        run_benchmarks(["growth"], sentences=10, plot=tmp_path / name)


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    sizes = [1, 2, 4]
    draw_growth(
        {"tokens": (sizes, [0.1, 0.2, 0.4]), "threads": (sizes, [0.4, 0.2, 0.1])},
        tmp_path / "growth.png",
    )
    from matplotlib.image import imread

    picture = imread(tmp_path / "growth.png")
    assert picture.shape[1] > 2 * picture.shape[0] * 0.9  # two panels, side by side
    assert np.std(picture[..., :3]) > 0.02
