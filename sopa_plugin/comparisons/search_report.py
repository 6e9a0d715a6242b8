"""What a search leaves behind: a table, a picture and the best config."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sopa_plugin.errors import require
from sopa_plugin.files import write_file

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

COLUMNS = 4  # of the picture


def write_search_report(study: Study, parameters: Sequence[str], metric: str, folder: Path) -> None:
    """Writes `best.json`, `trials.md`, `trials.json` and `search.png` into `folder`.

    Arguments:
        study: with at least one finished trial.
        parameters: the names of what was varied.
        metric: by which trials are compared, as `validation_metric` names it.
        folder: where to.
    """
    trials = sorted(
        study.trials,
        key=lambda trial: (trial.value is None, _badness(trial, metric), trial.number),
    )
    best = study.best_trial.user_attrs["config"]
    write_file(folder / "best.json", json.dumps(best, indent=2) + "\n")
    write_file(folder / "trials.md", _table(trials, parameters, metric))
    write_file(folder / "trials.json", json.dumps([_plain(each) for each in trials], indent=1))
    _draw(study, parameters, metric, folder / "search.png")


def _badness(trial: FrozenTrial, metric: str) -> float:
    value = trial.value or 0.0
    return -value if metric[0] == "+" else value


def _table(trials: Sequence[FrozenTrial], parameters: Sequence[str], metric: str) -> str:
    """All trials, the best first."""
    head = ["trial", f"dev {metric[1:]}", "dev accuracy", "test accuracy", "epochs", "seconds"]
    rows = [[*head, *parameters], ["---"] * (len(head) + len(parameters))]
    for trial in trials:
        seen = trial.user_attrs
        figures = [
            _number(trial.value) if trial.value is not None else trial.state.name.lower(),
            _number(seen.get("best_validation_accuracy")),
            _number(seen.get("test_accuracy")),
            str(seen.get("training_epochs", "")),
            f"{seen['seconds']:.0f}" if "seconds" in seen else "",
        ]
        values = [str(trial.params.get(name, "")) for name in parameters]
        rows.append([str(trial.number), *figures, *values])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _plain(trial: FrozenTrial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "value": trial.value,
        "parameters": trial.params,
        **trial.user_attrs,
    }


def _draw(study: Study, parameters: Sequence[str], metric: str, file: Path) -> None:
    """One panel with the best so far, and one for each parameter."""
    figures = require("matplotlib.figure", "a picture")
    done = [trial for trial in study.trials if trial.value is not None]
    choose = max if metric[0] == "+" else min
    values = [float(trial.value or 0) for trial in done]
    best = [choose(values[: i + 1]) for i in range(len(values))]
    rows = -(-(len(parameters) + 1) // COLUMNS)
    columns = min(len(parameters) + 1, COLUMNS)
    figure = figures.Figure(figsize=(3.2 * columns, 2.8 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    panels = list(grid.flat)
    panels[0].plot([trial.number for trial in done], values, "o", alpha=0.6)
    panels[0].step([trial.number for trial in done], best, where="post")
    panels[0].set_xlabel("trial")
    for panel, name in zip(panels[1:], parameters, strict=False):
        tried = [trial for trial in done if name in trial.params]
        panel.plot(*_points(tried, name), "o", alpha=0.6)
        panel.set_xlabel(name)
        panel.tick_params(axis="x", labelrotation=30, labelsize="x-small")
    for panel in panels[len(parameters) + 1 :]:
        panel.set_axis_off()
    for row in grid:
        row[0].set_ylabel(f"dev {metric[1:]}")
    figure.savefig(file, dpi=150)


def _points(trials: Sequence[FrozenTrial], name: str) -> tuple[list[Any], list[float | None]]:
    """Values of a parameter, choices by name and in order, against those of the metric."""
    choices = getattr(trials[0].distributions[name], "choices", None) if trials else None
    if choices is not None:
        order = {str(each): i for i, each in enumerate(choices)}
        trials = sorted(trials, key=lambda trial: order[str(trial.params[name])])
        return [str(trial.params[name]) for trial in trials], [trial.value for trial in trials]
    return [trial.params[name] for trial in trials], [trial.value for trial in trials]
