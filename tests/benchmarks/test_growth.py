"""How the cost of the recurrence grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from sopa_plugin.benchmarks import SECTIONS, run_benchmarks
from sopa_plugin.benchmarks.growth import Problem
from sopa_plugin.benchmarks.plot import plot_growth
from sopa_plugin.benchmarks.timing import interleave
from sopa_plugin.errors import UserError


def ratio(problems: Sequence[Problem]) -> float:
    """How many times as long the second takes as the first, in the better of a few rounds."""
    seconds = interleave({str(i): each.work() for i, each in enumerate(problems)}, rounds=5)
    first, second = (seconds[str(i)].min() / each.repeats for i, each in enumerate(problems))
    return float(second / first)


def test_time_is_not_quadratic_in_the_length_of_a_document() -> None:
    """Ten times as long: linear is 10 times as much, quadratic 100 times."""
    assert ratio([Problem(documents=32, tokens=n) for n in (400, 4000)]) < 25


@pytest.mark.parametrize("name", ["documents", "patterns"])
def test_nor_in_documents_or_patterns(name: str) -> None:
    assert ratio([Problem(**{name: n}) for n in (100, 800)]) < 24


def test_small_problems_are_repeated() -> None:
    assert Problem(documents=10).repeats > Problem(documents=100).repeats > 1
    assert Problem(documents=32, tokens=4000).repeats == 1


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
    plot_growth(
        {"tokens": (sizes, [0.1, 0.2, 0.4]), "threads": (sizes, [0.4, 0.2, 0.1])},
        tmp_path / "growth.png",
    )
    from matplotlib.image import imread

    picture = imread(tmp_path / "growth.png")
    assert picture.shape[1] > 2 * picture.shape[0] * 0.9  # two panels, side by side
    assert np.std(picture[..., :3]) > 0.02
