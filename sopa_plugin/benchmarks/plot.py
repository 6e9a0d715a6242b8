"""A picture of how costs grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sopa_plugin.extras import require


def plot_growth(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], file: str | Path
) -> None:
    """Draws time over size, both in logarithms, one panel for each of the curves.

    Arguments:
        curves: sizes and seconds, by the name of what has that size.
        file: a PNG, or another format that matplotlib knows by its ending.
    """
    figures = require("matplotlib.figure", "the picture of how costs grow")
    figure = figures.Figure(figsize=(3.2 * len(curves), 3.2), layout="constrained")
    for place, (name, (sizes, seconds)) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(1, len(curves), place)
        axes.loglog(sizes, [1000 * each for each in seconds], "o-", label="measured")
        linear = [1000 * seconds[0] * size / sizes[0] for size in sizes]
        if name == "threads":
            linear = [1000 * seconds[0] * sizes[0] / size for size in sizes]
        axes.loglog(sizes, linear, ":", color="gray", label="in proportion")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel(name)
        axes.set_ylabel("ms")
        axes.legend(frameon=False)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
