"""A picture of how costs grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sopa_plugin.errors import UserError
from sopa_plugin.extras import require

_WHAT = "the picture of how costs grow"


def check_picture(file: Path) -> None:
    """Makes the folder of a picture that is to be drawn.

    Raises:
        UserError: it could not be saved there, or not in the format of its ending.
    """
    canvas = require("matplotlib.backend_bases", _WHAT).FigureCanvasBase
    known = canvas.get_supported_filetypes()
    if file.suffix.lower().removeprefix(".") not in known:
        raise UserError(
            f"{file}: expected a picture's name, with one of the endings {', '.join(sorted(known))}"
        )
    if file.is_dir():
        raise UserError(f"{file}: is a folder; name a file in it")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror})") from error


def plot_growth(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], file: str | Path
) -> None:
    """Draws time over size, both in logarithms, one panel for each of the curves.

    Arguments:
        curves: sizes and seconds, by the name of what has that size.
        file: a PNG, or another format that matplotlib knows by its ending.
    """
    figures = require("matplotlib.figure", _WHAT)
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
    figure.savefig(file, dpi=150)
