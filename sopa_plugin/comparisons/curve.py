"""The picture of accuracy against the number of training examples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sopa_plugin.comparisons.description import Cell, Description
from sopa_plugin.comparisons.summary import CellSummary
from sopa_plugin.errors import require

MARKERS = "osD^vP*X"


def draw_curves(
    description: Description,
    summaries: Mapping[Cell, CellSummary],
    files: list[Path],
) -> None:
    """One panel a data set, one line a model; bars are the deviation over the seeds.

    Published figures are thin dashed lines of the same colour.

    Arguments:
        description: the comparison.
        summaries: the cells that are finished.
        files: where to save, each in the format of its ending.
    """
    matplotlib = require("matplotlib", "a picture")
    figures = require("matplotlib.figure", "a picture")
    # the same picture is the same file
    with matplotlib.rc_context({"svg.hashsalt": "sopa", "svg.fonttype": "none"}):
        width = 5.2 * len(description.data) + 1.5  # of the legend
        figure = figures.Figure(figsize=(width, 4.2), layout="constrained")
        panels = figure.subplots(1, len(description.data), squeeze=False)
        for panel, data in zip(panels[0], description.data, strict=True):
            _draw_panel(panel, description, summaries, data)
        panels[0][0].set_ylabel("test accuracy (%)")
        panels[0][-1].legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1))
        figure.suptitle(description.title)
        for file in files:
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=150, metadata=metadata)


def _draw_panel(
    panel: Any, description: Description, summaries: Mapping[Cell, CellSummary], data: str
) -> None:
    sizes = _sizes(description, summaries, data)
    for number, (model, entry) in enumerate(description.models.items()):
        cells = {x: summaries.get(Cell(data, model, size)) for size, x in sizes.items()}
        points = [(x, each) for x, each in cells.items() if each is not None]
        colour = f"C{number}"
        if points:
            panel.errorbar(
                [x for x, _ in points],
                [each.mean for _, each in points],
                [each.deviation or 0 for _, each in points],
                color=colour,
                marker=MARKERS[number % len(MARKERS)],
                capsize=2,
                label=entry.title,
            )
        if description.published is not None:
            accuracies = {
                x: description.published.accuracy(model, data, size) for size, x in sizes.items()
            }
            published = [(x, y) for x, y in accuracies.items() if y is not None]
            panel.plot([x for x, _ in published], [y for _, y in published], "--", c=colour, lw=0.8)
    if description.published is not None:
        panel.plot([], [], "--", c="gray", lw=0.8, label=description.published.title)
    panel.set_xscale("log")
    panel.set_xticks(list(sizes.values()), [f"{each:,}" for each in sizes.values()])
    panel.minorticks_off()
    panel.set_xlabel(f"training examples ({description.data[data].title})")
    panel.grid(alpha=0.3)


def _sizes(
    description: Description, summaries: Mapping[Cell, CellSummary], data: str
) -> dict[int | None, int]:
    """Numbers of training examples; that of all is known once a model has seen them."""
    seen = [
        each.training_examples
        for cell, each in summaries.items()
        if cell.data == data and cell.size is None
    ]
    sizes = {size: seen[0] if size is None and seen else size for size in description.sizes}
    return {size: number for size, number in sizes.items() if number is not None}
