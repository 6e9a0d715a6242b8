"""The figures of an experiment, cell by cell."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.comparisons.description import Cell, Description
from sopa_plugin.comparisons.runner import CellState
from sopa_plugin.comparisons.single_run import Result
from sopa_plugin.comparisons.statistics import Comparison, paired_bootstrap
from sopa_plugin.errors import UserError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CellSummary:
    """What a cell came to.

    Attributes:
        cell: which.
        accuracies: on test, in percent, by seed.
        training_examples: how many there were.
        parameters: as `parameter_counts` names them, of the first seed's model.
        seconds: of all runs, trials too.
        runs: how many there were.
        comparison: with the reference model, first minus second in percent; None for itself or
            while either is missing, or if they were tested on different examples.
        config: the best one, with the first seed.
    """

    cell: Cell
    accuracies: list[float]
    training_examples: int
    parameters: dict[str, int]
    seconds: float
    runs: int
    comparison: Comparison | None
    config: dict[str, Any]

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds, in percent."""
        return float(np.mean(self.accuracies))

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over the seeds, in points; None of a single one."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else None

    def as_json(self) -> dict[str, Any]:
        """For `table.json`."""
        plain = asdict(self)
        return {**plain.pop("cell"), "mean": self.mean, "deviation": self.deviation, **plain}


def too_small(states: Sequence[CellState]) -> list[Cell]:
    """Finished cells whose data have fewer training examples than the cell asks for."""
    return [
        state.cell
        for state in states
        if state.finished and _training_examples(state) < (state.cell.size or 0)
    ]


def _training_examples(state: CellState) -> int:
    assert state.finished is not None
    return int(state.finished[0].metrics["training_examples"])


def summarize(description: Description, states: Sequence[CellState]) -> dict[Cell, CellSummary]:
    """Every cell that is finished, in order, but those that are `too_small`."""
    results = {state.cell: state.finished for state in states}
    small = too_small(states)
    summaries = {}
    for state in states:
        finals = results[state.cell]
        if finals is None or state.cell in small:
            continue
        rival = None
        if description.reference not in (None, state.cell.model):
            rival = results.get(Cell(state.cell.data, description.reference, state.cell.size))
        trials = [each for each in state.results.values() if isinstance(each, Result)]
        distinct = {json.dumps(each.config): each for each in [*trials, *finals]}
        summaries[state.cell] = CellSummary(
            cell=state.cell,
            accuracies=[100 * _test_accuracy(state.cell, each) for each in finals],
            training_examples=finals[0].metrics["training_examples"],
            parameters=parameter_counts(finals[0].metrics),
            seconds=sum(each.seconds for each in distinct.values()),
            runs=len(distinct),
            comparison=_compare(state.cell, finals, rival) if rival else None,
            config=finals[0].config,
        )
    return summaries


def parameter_counts(metrics: dict[str, Any]) -> dict[str, int]:
    """`paper`, `trained` and `total` parameters of a run.

    The paper counts what is trained, features where they are given, and a SoPa encoder as the
    released implementation stores it: all patterns padded to the longest.
    """
    counts = {
        key.removeprefix("parameters_"): value
        for key, value in metrics.items()
        if key.startswith("parameters_")
    }
    paper = counts.get("features", counts["trainable"])
    if "encoder_released" in counts:
        paper += counts["encoder_released"] - counts["encoder"]
    return {"paper": paper, "trained": counts["trainable"], "total": counts["total"]}


def _test_accuracy(cell: Cell, result: Result) -> float:
    if "test_accuracy" not in result.metrics:
        raise UserError(f"{cell.name}: the data have no test set, and the table shows test figures")
    return float(result.metrics["test_accuracy"])


def _compare(cell: Cell, finals: Sequence[Result], rival: Sequence[Result]) -> Comparison | None:
    if any(each.gold != finals[0].gold for each in (*finals, *rival)):
        logger.warning(
            "%s: not compared: its models were tested on different examples, so the data must have "
            "changed since some were; delete the results for %s to run them again",
            cell.name,
            cell.data,
        )
        return None
    found = paired_bootstrap(_correct(finals), _correct(rival))
    return Comparison(100 * found.difference, 100 * found.low, 100 * found.high, found.p)


def _correct(results: Sequence[Result]) -> NDArray[np.bool_]:
    """Which seeds have which test examples right, `[seeds, examples]`."""
    return np.array([np.array(each.gold) == np.array(each.predicted) for each in results])
