"""Running all that an experiment needs, on the cores there are."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sopa_plugin.comparisons.description import Cell, Description
from sopa_plugin.comparisons.single_run import Result
from sopa_plugin.comparisons.space import draw, put
from sopa_plugin.comparisons.store import Store
from sopa_plugin.comparisons.workers import worker_pool
from sopa_plugin.errors import TrainingFailed, UserError

logger = logging.getLogger(__name__)
RESULTS = "results"


@dataclass
class CellState:
    """How far a cell has come.

    Attributes:
        cell: which.
        trials: configs of its search (one, where nothing is tuned).
        results: what is known of each; a message where a run failed.
        finals: configs of the best trial with each seed, once it is known.
        final_results: the same of those.
        failure: why the cell cannot be finished, if so.
    """

    cell: Cell
    trials: list[dict[str, Any]]
    results: dict[int, Result | str] = field(default_factory=dict)
    finals: list[dict[str, Any]] = field(default_factory=list)
    final_results: dict[int, Result | str] = field(default_factory=dict)
    failure: str | None = None

    @property
    def finished(self) -> list[Result] | None:
        """The results of all seeds, in their order, once every one is there."""
        found = [self.final_results.get(i) for i in range(len(self.finals))]
        results = [each for each in found if isinstance(each, Result)]
        return results if found and len(results) == len(found) else None


@dataclass(frozen=True)
class Task:
    """One run of a cell: its number among the trials or the finals."""

    state: CellState
    number: int
    final: bool

    @property
    def config(self) -> dict[str, Any]:
        """What to run."""
        return (self.state.finals if self.final else self.state.trials)[self.number]

    @property
    def name(self) -> str:
        """For messages."""
        kind = f"seed {self.config['seed']}" if self.final else f"trial {self.number + 1}"
        return f"{self.state.cell.name} {kind}"

    def take(self, result: Result | str) -> None:
        """Notes the result."""
        results = self.state.final_results if self.final else self.state.results
        results[self.number] = result
        if self.final and isinstance(result, str):
            self.state.failure = f"{self.name}: {result}"


class Runner:
    """Runs what is missing of an experiment, in processes with one torch thread each.

    Arguments:
        description: the experiment.
        folder: where results are, and may be shared with other experiments.
        packages: plugins that the worker processes import.
    """

    def __init__(
        self, description: Description, folder: Path, packages: Sequence[str] = ()
    ) -> None:
        self.description = description
        self.store = Store(folder / RESULTS)
        self.packages = list(packages)
        self.states = [CellState(cell, self._trials(cell)) for cell in description.cells()]
        self.done = 0
        for task in self._tasks():
            self._look_up(task)

    @property
    def total(self) -> int:
        """How many runs the experiment has."""
        seeds = len(self.description.seeds)
        return sum(len(each.trials) + seeds for each in self.states)

    def run(self, workers: int) -> Iterator[CellState]:
        """Runs what is missing in so many processes (0: in this one); yields finished cells.

        Raises `UserError` where a run ends for other reasons than its settings; and, when all else
        is done, where all trials of a cell have failed, or a run with the best config.
        """
        waiting = deque(self._tasks())
        if waiting:
            logger.info("%d of %d runs are done; %d workers", self.done, self.total, workers)
            yield from self._run(waiting, workers)
        failures = [each.failure for each in self.states if each.failure is not None]
        if failures:
            raise UserError("\n".join(failures))

    def _run(self, waiting: deque[Task], workers: int) -> Iterator[CellState]:
        with worker_pool(workers, self.packages) as pool:
            running: dict[Future[Result], Task] = {}
            while waiting or running:
                while waiting and len(running) < max(workers, 1):
                    task = waiting.popleft()
                    label = task.state.cell.name
                    running[pool.submit(_work, self.store.folder, label, task.config)] = task
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(future)
                    self._take(task, future)
                    following = [each for each in self._next(task) if not self._look_up(each)]
                    # a begun cell is finished before another is begun
                    waiting.extendleft(reversed(following))
                    if task.state.finished:
                        yield task.state

    def _trials(self, cell: Cell) -> list[dict[str, Any]]:
        config = self.description.config(cell, self.description.seeds[0])
        parameters, tuning = self.description.models[cell.model].parameters, self.description.tuning
        if not parameters or not tuning.num_trials:
            return [config]
        return [
            put(config, parameters, draw(parameters, tuning.seed, trial))
            for trial in range(tuning.num_trials)
        ]

    def _tasks(self) -> Iterator[Task]:
        """Every run that is known to be needed and has no result."""
        for state in self.states:
            for number in range(len(state.trials)):
                if number not in state.results:
                    yield Task(state, number, final=False)
            for number in range(len(state.finals)):
                if number not in state.final_results:
                    yield Task(state, number, final=True)

    def _look_up(self, task: Task) -> bool:
        """Takes a result that is there, and those that follow from it; whether it is."""
        result = self.store.find(task.state.cell.name, task.config)
        if result is None:
            return False
        task.take(result)
        self.done += 1
        for each in self._next(task):
            self._look_up(each)
        return True

    def _next(self, task: Task) -> Iterator[Task]:
        """What the end of a task makes possible: the best config with every seed."""
        state = task.state
        if task.final or len(state.results) < len(state.trials):
            return
        metric = self.description.tuning.metric
        results = {
            number: each for number, each in state.results.items() if isinstance(each, Result)
        }
        if not results:
            state.failure = f"{state.cell.name}: every trial failed: {state.results[0]}"
            return
        # the first of equals, whatever the order in which they came
        best = max(sorted(results), key=lambda number: results[number].dev(metric))
        state.finals = [self._with_seed(state, best, seed) for seed in self.description.seeds]
        for number in range(len(state.finals)):
            yield Task(state, number, final=True)

    def _with_seed(self, state: CellState, trial: int, seed: int) -> dict[str, Any]:
        config = {**state.trials[trial], "seed": seed}
        if state.cell.size is not None:
            config["dataset"] = {**config["dataset"], "subsample_seed": seed}
        return config

    def _take(self, task: Task, future: Future[Result]) -> None:
        self.done += 1
        try:
            result = future.result()
        except TrainingFailed as error:
            task.take(str(error))
            logger.warning("[%d/%d] %s failed: %s", self.done, self.total, task.name, error)
            return
        except UserError as error:
            raise UserError(f"{task.name}: {error}") from error
        task.take(result)
        logger.info("[%d/%d] %s: %s", self.done, self.total, task.name, _summary(result))


def _summary(result: Result) -> str:
    metrics = result.metrics
    parts = [
        f"dev loss {metrics['best_validation_loss']:.4f}",
        f"accuracy {metrics['best_validation_accuracy']:.4f}",
    ]
    if "test_accuracy" in metrics:
        parts.append(f"test accuracy {metrics['test_accuracy']:.4f}")
    return f"{', '.join(parts)}, {metrics['training_epochs']} epochs, {result.seconds:.0f} s"


def _work(store: Path, label: str, config: dict[str, Any]) -> Result:
    return Store(store).get(label, config)
