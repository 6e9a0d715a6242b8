"""Running all that a comparison needs, in this process or in several."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import joblib

from sopa_plugin.comparisons.space import Search
from sopa_plugin.comparisons.study import Outcome, Result, Storage, Study, result_of
from sopa_plugin.errors import UserError
from sopa_plugin.files import read_json, write_file
from sopa_plugin.registry import import_plugins

logger = logging.getLogger(__name__)
PAUSE = 0.5  # seconds between two looks at trials that run in other processes


@dataclass(frozen=True)
class Plan:
    """What is to be run for a cell of a comparison.

    Attributes:
        name: for messages.
        search: of the best config; without parameters, the config itself.
        seeds: the best config is run with each; trials have the first one. None: only searched.
        draws_subset: whether the seed also draws a subset of the training examples.
    """

    name: str
    search: Search
    seeds: Sequence[int] = ()
    draws_subset: bool = False

    def with_seed(self, config: dict[str, Any], seed: int) -> Search:
        """The search that has nothing to vary: the config with a seed."""
        config = {**config, "seed": seed}
        if self.draws_subset:
            config["dataset"] = {**config["dataset"], "subsample_seed": seed}
        return Search(config, {}, num_trials=1, metric=self.search.metric)


class CellRuns:
    """What is known of a cell: its search, and then its best config with the other seeds.

    Each of these is a study with a single trial, so that processes share them as they share trials.
    """

    def __init__(self, plan: Plan, storage: Storage) -> None:
        self.plan, self.storage = plan, storage
        single = not plan.search.parameters
        self.search = Study(plan.search, self._name(0) if single else plan.name, storage)
        self._finals: list[Study] = []

    def _name(self, seed: int) -> str:
        return f"{self.plan.name} seed {self.plan.seeds[seed]}"

    @property
    def finals(self) -> list[Study]:
        """The runs with all seeds but the first, which is the best trial's; none until it is known.

        Optuna's study of the search has them among its attributes.
        """
        if not self._finals and self.search.is_done and self.search.complete:
            best = self.search.complete[0]
            config = best.user_attrs["config"]
            self._finals = [
                Study(self.plan.with_seed(config, seed), self._name(number), self.storage)
                for number, seed in enumerate(self.plan.seeds)
                if number
            ]
            recorded = {each.name: each.search.digest for each in self._finals}
            if recorded and self.search.optuna.user_attrs.get("finals") != recorded:
                self.search.optuna.set_user_attr("finals", recorded)
        return self._finals

    @property
    def studies(self) -> list[Study]:
        """All that can be run by now."""
        return [self.search, *self.finals]

    @property
    def total(self) -> int:
        """How many runs it has."""
        return self.plan.search.num_trials + len(self.plan.seeds[1:])

    @property
    def done(self) -> int:
        """How many of them have ended."""
        return sum(len(each.ended) for each in self.studies)

    @property
    def results(self) -> list[Result] | None:
        """Those of all seeds, in their order, once every one is there."""
        complete = [each.complete for each in self.studies]
        if not self.search.is_done or not all(complete):
            return None
        return [result_of(each[0]) for each in complete]

    @property
    def failure(self) -> str | None:
        """Why it cannot be finished, if so."""
        if self.search.is_done and not self.search.complete:
            name = f"{self.plan.name}: " if self.plan.name else ""
            return f"{name}no trial came to an end: {self.search.failure or 'all were pruned'}"
        failures = [each for each in self.finals if each.failure is not None]
        return f"{failures[0].name}: {failures[0].failure}" if failures else None


@dataclass(eq=False)
class Runner:
    """Runs what is missing of some cells, together with whatever other processes do.

    Arguments:
        plans: of the cells.
        folder: where runs are made and results are kept; other comparisons may share it.
        url: of an Optuna storage that keeps the results instead.
        packages: plugins that worker processes import.

    Attributes:
        cells: what is known of each.
    """

    plans: Sequence[Plan]
    folder: Path
    url: str | None = None
    packages: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.storage = Storage(self.folder, self.url)
        self.cells = [CellRuns(each, self.storage) for each in self.plans]

    def __reduce__(self) -> tuple[Any, ...]:
        return Runner, (self.plans, self.folder, self.url, self.packages)

    def redo(self, pattern: str) -> None:
        """Forgets all that is known of the cells of a name, as in `sst.*`, to run them again.

        Raises `UserError` if there is none.
        """
        found = [i for i, plan in enumerate(self.plans) if fnmatchcase(plan.name, pattern)]
        if not found:
            names = ", ".join(each.name for each in self.plans)
            raise UserError(f"--redo {pattern}: no such cell; expected one of {names}")
        for number in found:
            for study in self.cells[number].studies:
                self.storage.forget(study.search)
            self.cells[number] = CellRuns(self.plans[number], self.storage)

    @property
    def done(self) -> int:
        """How many runs have ended."""
        return sum(each.done for each in self.cells)

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(each.total for each in self.cells)

    def run(self, workers: int = 0) -> Iterator[CellRuns]:
        """Runs what is missing; yields each cell that is finished now.

        Arguments:
            workers: processes that work at the same time, with one torch thread each; 1 is this
                process with one thread, 0 this process as it is.

        Raises `UserError` where a run ends for other reasons than its settings; and, when all else
        is done, where all trials of a cell have failed, or a run with the best config.
        """
        missing, finished = self.total - self.done, self._finished()
        if missing and workers:
            logger.info("%d of %d runs are done; %d workers", self.done, self.total, workers)
        for outcome in self._outcomes(workers, missing):
            if outcome is not None:
                level, text = outcome
                logger.log(level, "[%d/%d] %s", self.done, self.total, text)
            for number in self._finished() - finished:
                finished.add(number)
                yield self.cells[number]
        failures = [each.failure for each in self.cells if each.failure is not None]
        if failures:
            raise UserError("\n".join(failures))

    def _finished(self) -> set[int]:
        return {number for number, each in enumerate(self.cells) if each.results is not None}

    def _outcomes(self, workers: int, missing: int) -> Iterator[Outcome | None]:
        if workers > 1:
            yield from self._in_processes(workers, missing)
        elif missing:
            import torch

            threads = torch.get_num_threads()
            torch.set_num_threads(workers or threads)
            try:
                yield from (run_next(self.cells) for _ in range(missing))
            finally:
                torch.set_num_threads(threads)

    def _in_processes(self, workers: int, missing: int) -> Iterator[Outcome | None]:
        task = joblib.delayed(_run_next_in_worker)(self, gpus())
        try:
            with joblib.parallel_config("loky", inner_max_num_threads=1):
                parallel = joblib.Parallel(
                    workers, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
                )
                yield from parallel(itertools.repeat(task, missing))
        except BrokenProcessPool as error:
            raise UserError(
                "a worker process died, perhaps for want of memory; run the same command again to "
                "go on, with fewer --workers"
            ) from error


def run_next(cells: Sequence[CellRuns]) -> Outcome | None:
    """Makes the first run that is missing and can be made; None once all are made.

    Waits where some are made in other processes: others may follow from them, or be left by them.
    """
    for look in itertools.count():
        for cell in cells:  # a begun cell is finished before another is begun
            for study in cell.studies:
                outcome = study.run_next()
                if outcome is not None:
                    return outcome
        if not any(study.is_running for cell in cells for study in cell.studies):
            break
        if look == 0:
            logger.info("waiting for trials that run in other processes")
        time.sleep(PAUSE)
    return None


def run_search(
    search: Search,
    folder: Path,
    url: str | None = None,
    workers: int = 0,
    packages: Sequence[str] = (),
) -> Study:
    """Runs the trials of a search that are missing: a comparison of a single cell, without seeds.

    Arguments: see `Runner`.

    Raises `UserError` if the folder holds another search, and if no trial came to an end.
    """
    file = folder / "search.json"
    before = read_json(file, "what this search is") if file.is_file() else search.settings
    keys = sorted(before.keys() | search.settings.keys())
    changed = [each for each in keys if before.get(each) != search.settings.get(each)]
    if changed:
        raise UserError(
            f"{folder}: the search in this folder is another one; it differs in "
            f"{', '.join(changed)}. Go on with the same, or choose another folder with -s"
        )
    runner = Runner([Plan("", search)], folder, url, packages)
    write_file(file, json.dumps(search.settings, indent=1) + "\n")
    for _ in runner.run(workers):
        pass
    return runner.cells[0].search


def default_workers() -> int:
    """The GPUs that this process may use or, without any, the cores."""
    return len(gpus()) or joblib.cpu_count()


def gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch
    from accelerate.utils import parse_flag_from_env

    if parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.cuda.is_available():
        return ()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(named.split(",") if named else map(str, range(torch.cuda.device_count())))


def _run_next_in_worker(runner: Runner, gpus: tuple[str, ...]) -> Outcome | None:
    _set_up_worker(tuple(runner.packages), gpus)
    return run_next(runner.cells)


@functools.cache
def _set_up_worker(packages: tuple[str, ...], gpus: tuple[str, ...]) -> None:
    """One thread, in turn one of the GPUs, and an end together with the process that began it."""
    if gpus:  # is read when torch first looks for them
        (number,) = multiprocessing.current_process()._identity  # type: ignore[attr-defined]
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("sopa_plugin").setLevel(logging.WARNING)  # the first process tells the rest
    import_plugins(packages)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)
