"""What cells came to: mean accuracies, and whether one model is better than another or luckier."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.comparisons.description import Cell, Description
from sopa_plugin.comparisons.runner import CellRuns
from sopa_plugin.comparisons.study import Result, result_of
from sopa_plugin.errors import UserError

logger = logging.getLogger(__name__)
RESAMPLES = 10_000
_AT_ONCE = 2**22  # numbers drawn, which bounds the memory


@dataclass(frozen=True)
class Difference:
    """A paired bootstrap test.

    Attributes:
        difference: of the accuracies, first minus second.
        low, high: 95 % confidence interval of it.
        p: two-sided p-value of no difference.
    """

    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class CellSummary:
    """What a cell came to.

    Attributes:
        cell: which.
        accuracies: on test, in percent, by seed.
        training_examples: how many there were.
        parameters: as `parameter_counts` names them, of the first seed's model.
        states: of patterns, the mean over the seeds; None for models that have none.
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
    states: float | None
    seconds: float
    runs: int
    comparison: Difference | None
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


def too_small(description: Description, cells: Sequence[CellRuns]) -> list[Cell]:
    """Finished cells whose data have fewer training examples than the cell asks for."""
    return [
        cell
        for cell, runs in zip(description.cells(), cells, strict=True)
        if runs.results and runs.results[0].metrics["training_examples"] < (cell.size or 0)
    ]


def summarize(description: Description, cells: Sequence[CellRuns]) -> dict[Cell, CellSummary]:
    """Every cell that is finished, in order, but those that are `too_small`."""
    runs = dict(zip(description.cells(), cells, strict=True))
    results = {cell: each.results for cell, each in runs.items()}
    summaries = {}
    small = too_small(description, cells)
    for cell, finals in results.items():
        if finals is None or cell in small:
            continue
        rival = None
        if description.reference not in (None, cell.model):
            rival = results.get(Cell(cell.data, str(description.reference), cell.size))
        if not all("test_accuracy" in each.metrics for each in finals):
            raise UserError(
                f"{cell.name}: the data have no test set, and the table shows test figures"
            )
        every = [*map(result_of, runs[cell].search.complete), *finals]
        distinct = {json.dumps(each.config, sort_keys=True): each for each in every}
        states: list[Any] = [each.metrics.get("parameters_encoder_states") for each in finals]
        summaries[cell] = CellSummary(
            cell=cell,
            accuracies=[100 * float(each.metrics["test_accuracy"]) for each in finals],
            training_examples=finals[0].metrics["training_examples"],
            parameters=parameter_counts(finals[0].metrics),
            states=None if None in states else float(np.mean(states)),
            seconds=sum(each.seconds for each in distinct.values()),
            runs=len(distinct),
            comparison=_compare(cell, finals, rival) if rival else None,
            config=finals[0].config,
        )
    return summaries


def parameter_counts(metrics: Mapping[str, Any]) -> dict[str, int]:
    """`paper`, `trained` and `total` parameters of a run.

    The paper counts what is trained, features where they are given, and a SoPa encoder as the
    released implementation stores it: all patterns padded to the longest.
    """
    trained = metrics["parameters_trainable"]
    paper = metrics.get("parameters_features", trained)
    if "parameters_encoder_released" in metrics:
        paper += metrics["parameters_encoder_released"] - metrics["parameters_encoder"]
    return {"paper": paper, "trained": trained, "total": metrics["parameters_total"]}


def _compare(cell: Cell, finals: Sequence[Result], rival: Sequence[Result]) -> Difference | None:
    if any(each.gold != finals[0].gold for each in (*finals, *rival)):
        logger.warning(
            "%s: not compared: its models were tested on different examples, so the data must have "
            "changed since some were; run those of %s again, with --redo '%s.*'",
            *(cell.name, cell.data, cell.data),
        )
        return None
    first, second = (np.array([each.right() for each in some]) for some in (finals, rival))
    found = paired_bootstrap(first, second)
    return Difference(100 * found.difference, 100 * found.low, 100 * found.high, found.p)


def paired_bootstrap(
    first: NDArray[np.bool_], second: NDArray[np.bool_], resamples: int = RESAMPLES
) -> Difference:
    """Compares two models on the same test examples with the same seeds.

    Both seeds and test examples are resampled with replacement (the "pigeonhole" bootstrap of
    Owen, 2007), so that neither a lucky seed nor a lucky test set makes a difference; seeds are
    spread by sqrt(S / (S - 1)) first, as resampling S of them varies too little by that. Of three
    seeds that differ much it cannot learn more than they show: if all agree by chance, p is small.

    Arguments:
        first, second: which seeds have which examples right, `[seeds, examples]`, both alike.
        resamples: how often to resample.
    """
    differences = first.astype(int) - second.astype(int)
    seeds, examples = differences.shape
    # Examples on which the seeds differ alike are one kind: to resample is to draw their numbers.
    kinds, numbers = np.unique(differences, axis=1, return_counts=True)
    random = np.random.default_rng(0)
    resampled = np.empty(resamples)
    for some in np.array_split(resampled, -(-resamples * len(numbers) // _AT_ONCE)):
        drawn = random.multinomial(examples, numbers / examples, size=len(some))
        # shape: [resamples, seeds]
        by_seed = drawn @ kinds.T / examples
        mean = by_seed.mean(axis=1, keepdims=True)
        spread = mean + (by_seed - mean) * np.sqrt(seeds / max(seeds - 1, 1))
        drawn_seeds = random.integers(seeds, size=spread.shape)
        some[:] = np.take_along_axis(spread, drawn_seeds, axis=1).mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    tail = min((resampled <= 0).sum(), (resampled >= 0).sum())
    p = min(1.0, 2 * (int(tail) + 1) / (resamples + 1))
    return Difference(float(differences.mean()), float(low), float(high), p)
