"""What an experiment leaves behind: tables, pictures and the best configs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sopa_plugin.comparisons.curve import draw_curves
from sopa_plugin.comparisons.description import Cell, Description
from sopa_plugin.comparisons.runner import CellState
from sopa_plugin.comparisons.statistics import RESAMPLES
from sopa_plugin.comparisons.summary import CellSummary, summarize, too_small
from sopa_plugin.comparisons.tables import (
    SIGNIFICANT,
    accuracy_table,
    parameter_table,
    significance_table,
)
from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.files import write_file
from sopa_plugin.registry import build


def write_report(
    description: Description, states: Sequence[CellState], folder: Path
) -> dict[Cell, CellSummary]:
    """Writes `table.md`, `.tex` and `.json`, `best/`, and `curve.png` and `.svg` of several sizes.

    What is not finished yet is left open. The figures depend on the results alone, so an experiment
    that was interrupted writes the same tables as one that was not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    summaries = summarize(description, states)
    write_file(folder / "table.md", _markdown(description, states, summaries))
    write_file(folder / "table.tex", accuracy_table(description, summaries).latex())
    content = [each.as_json() for each in summaries.values()]
    write_file(folder / "table.json", json.dumps(content, indent=1) + "\n")
    best = folder / "best"
    best.mkdir(exist_ok=True)
    for cell, each in summaries.items():
        write_file(best / f"{cell.name}.json", json.dumps(each.config, indent=2) + "\n")
    if len(description.sizes) > 1 and summaries:
        files = [folder / f"curve.{ending}" for ending in ("png", "svg")]
        draw_curves(description, summaries, files)
    return summaries


def _markdown(
    description: Description,
    states: Sequence[CellState],
    summaries: Mapping[Cell, CellSummary],
) -> str:
    tuning, seeds = description.tuning, description.seeds
    runs = sum(each.runs for each in summaries.values())
    hours = sum(each.seconds for each in summaries.values()) / 3600
    tuned = "no tuning"
    if tuning.num_trials:
        limits = [
            form.format(_by_cell(description, key))
            for key, form in (("num_epochs", "at most {} epochs"), ("patience", "patience {}"))
            if getattr(tuning, key) is not None
        ]
        tuned = (
            f"{tuning.num_trials} trials of random search for each "
            f"({'; '.join(limits) or 'as configured'}), the best by dev {tuning.metric}"
        )
    parts = [
        f"# {description.title}",
        f"Test accuracy in percent ± standard deviation, seeds {', '.join(map(str, seeds))} "
        f"(parameters as the paper counts them); {tuned}. "
        f"{len(summaries)} of {len(states)} cells are finished: {runs} runs, {hours:.2f} hours "
        "added up.",
        *_warnings(description, states),
        accuracy_table(description, summaries).markdown().rstrip(),
    ]
    if description.reference is not None:
        title = description.models[description.reference].title
        parts += [
            f"† differs from {title} (p < {SIGNIFICANT}).",
            f"## Differences from {title}",
            f"In points, with 95 % intervals; paired bootstrap over seeds and test examples "
            f"({RESAMPLES:,} resamples).",
            significance_table(description, summaries).markdown().rstrip(),
        ]
    parts += [
        "## Parameters",
        "As the paper counts them / trained / all, word vectors too.",
        parameter_table(description, summaries).markdown().rstrip(),
    ]
    return "\n\n".join(parts) + "\n"


def _warnings(description: Description, states: Sequence[CellState]) -> list[str]:
    """What figures must not be taken for."""
    read = {cell.data: description.config(cell, 0)["dataset"] for cell in description.cells()}
    samples = [
        description.data[name].title
        for name, dataset in read.items()
        if build(DatasetReader, dataset).is_embedded_sample
    ]
    small = {f"{description.data[each.data].title} ({each.size:,})" for each in too_small(states)}
    warnings = []
    if samples:
        warnings.append(
            f"**{', '.join(samples)}: the embedded sample; figures say nothing about real data.**"
        )
    if small:
        warnings.append(f"Left open, for want of training examples: {', '.join(sorted(small))}.")
    return warnings


def _by_cell(description: Description, key: str) -> str:
    """A limit as words: one number, or each with the data sets and sizes that it is for."""
    cells: dict[int | None, list[str]] = {}
    for data, entry in description.data.items():
        for size in description.sizes:
            limit = description.tuning.limit(key, data, size)
            name = entry.title if size is None else f"{entry.title} {size}"
            cells.setdefault(limit, []).append(name)
    if len(cells) == 1:
        return str(next(iter(cells)))
    return ", ".join(f"{limit} ({', '.join(names)})" for limit, names in cells.items())
