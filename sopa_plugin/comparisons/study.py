"""Searches as Optuna studies: which process runs which trial, and what is kept of it."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from optuna.storages import BaseStorage, RDBStorage, journal
from optuna.trial import FrozenTrial, Trial, TrialState

from sopa_plugin.comparisons.space import Search, put, suggest, trial_seed
from sopa_plugin.errors import TrainingFailed, UserError, failing
from sopa_plugin.registry import ConfigError, fill_defaults
from sopa_plugin.training import Experiment, run_experiment
from sopa_plugin.training.metrics import Metrics
from sopa_plugin.training.run_folder import CONFIG, PREDICTIONS, OnEpoch, read_config


@dataclass(frozen=True)
class Result:
    """What is known of a finished run.

    Attributes:
        config: its config.
        metrics: as in `metrics.json`.
        seconds: from reading the data to the end.
        correct: which test examples it has right, a digit each, `1` for right; in hexadecimal, for
            there may be many.
        examples: how many test examples there are; 0 if the data have no test set.
        gold: a digest of their labels, by which other test examples are told.
    """

    config: dict[str, Any]
    metrics: Metrics
    seconds: float
    correct: str
    examples: int
    gold: str

    def right(self) -> NDArray[np.bool_]:
        """Which test examples it has right, `[examples]`."""
        packed = np.frombuffer(bytes.fromhex(self.correct), dtype=np.uint8)
        return np.unpackbits(packed, count=self.examples).astype(bool)


def run_once(config: Mapping[str, Any], folder: Path, on_epoch: OnEpoch | None = None) -> Result:
    """Trains in `folder`, going on with what an interrupted run left there, and deletes it.

    Raises `UserError` and `ConfigError` as `run_experiment` does, and whatever `on_epoch` raises.
    """
    from accelerate.state import AcceleratorState

    began = time.monotonic()
    # runs of one process may differ in what Accelerate holds for the whole process
    AcceleratorState._reset_state(reset_partial_state=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and not _can_go_on(config, folder):
        remove_run(folder)
    metrics = run_experiment(config, folder, recover=folder.exists(), on_epoch=on_epoch)
    file = folder / PREDICTIONS.format(split="test")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []  # no test set
    answers = [json.loads(line) for line in lines]
    right = np.array([each["label"] == each["predicted"] for each in answers], dtype=bool)
    gold = "\n".join(each["label"] for each in answers)
    remove_run(folder)
    return Result(
        config=dict(config),
        metrics=metrics,
        seconds=round(time.monotonic() - began, 2),
        correct=np.packbits(right).tobytes().hex(),
        examples=len(answers),
        gold=hashlib.blake2b(gold.encode(), digest_size=8).hexdigest(),
    )


def remove_run(folder: Path) -> None:
    """Deletes a run; what a kill may leave of it is no run to go on with."""
    (folder / CONFIG).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _can_go_on(config: Mapping[str, Any], folder: Path) -> bool:
    """Whether the folder holds a run of this very config."""
    try:
        return read_config(folder) == fill_defaults(Experiment, dict(config))
    except UserError:
        return False


JOURNAL = "studies.log"
HEARTBEAT = 20  # seconds; a trial that has missed three is abandoned
FAILURE = "failure"  # why a trial failed, among its attributes


class Storage:
    """Where studies are kept, for any number of processes at the same time.

    Arguments:
        folder: trials are run in it; the studies are in a journal file there.
        url: of an Optuna storage (`sqlite:///...`, `postgresql://...`) that has the studies
            instead; then machines need not share the folder.

    Raises `UserError` if the storage cannot be opened.
    """

    def __init__(self, folder: Path, url: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.has_heartbeat = url is not None
        self.optuna = _open_journal(folder / JOURNAL) if url is None else _open_database(url)

    def lock(self, name: str) -> FileLock:
        """A lock that the system takes away when its holder ends, even by a crash."""
        file = self.folder / "trials" / f"{name}.lock"
        file.parent.mkdir(exist_ok=True)
        return FileLock(file)

    def forget(self, search: Search) -> None:
        """Deletes what is known of a search."""
        with suppress(KeyError):
            optuna.delete_study(study_name=search.digest, storage=self.optuna)


Outcome = tuple[int, str]
"""A level of logging, and in words what running a trial came to."""


class Study:
    """The Optuna study of a search, found in a storage by the search's digest, or made.

    Trial `n` is Optuna's trial number `n`, and whoever runs it draws the same values for it. A
    process that runs one shows that it lives: by heartbeats where the storage is a database, else
    by a lock on a file. A trial that was begun, and that no living process works on, is done again
    as the same trial.

    Arguments:
        search: what is searched.
        name: for messages; without parameters, that of its single run.
        storage: where it is kept.
    """

    def __init__(self, search: Search, name: str, storage: Storage) -> None:
        self.search, self.name, self.storage = search, name, storage
        self._final: list[FrozenTrial] | None = None  # once all trials have ended
        pruners = {"none": optuna.pruners.NopPruner, "median": optuna.pruners.MedianPruner}
        options: dict[str, Any] = {
            "study_name": search.digest,
            "storage": storage.optuna,
            "pruner": pruners[search.pruner](),
        }
        self.optuna: Any
        try:
            self.optuna = optuna.load_study(**options)
        except KeyError:
            options["direction"] = "maximize" if search.metric[0] == "+" else "minimize"
            self.optuna = optuna.create_study(**options, load_if_exists=True)
            self.optuna.set_user_attr("name", name)
            self.optuna.set_user_attr("search", search.settings)

    @property
    def trials(self) -> list[FrozenTrial]:
        """Those that there are yet, in order, but none beyond the number that is wanted."""
        if self._final is not None:
            return self._final
        trials: list[FrozenTrial] = self.optuna.get_trials(deepcopy=False)
        trials = trials[: self.search.num_trials]
        if len(trials) == self.search.num_trials and all(
            each.state.is_finished() for each in trials
        ):
            self._final = trials
        return trials

    @property
    def ended(self) -> list[FrozenTrial]:
        """Those that need not be run again: complete, pruned or failed."""
        return [each for each in self.trials if each.state.is_finished()]

    @property
    def is_done(self) -> bool:
        """Whether all have ended."""
        return len(self.ended) == self.search.num_trials

    @property
    def is_running(self) -> bool:
        """Whether some process works on one, or did."""
        return any(each.state.name == "RUNNING" for each in self.trials)

    @property
    def complete(self) -> list[FrozenTrial]:
        """Those with a result; the best first, and of equals the earlier one."""
        sign = -1 if self.search.metric[0] == "+" else 1
        complete = [each for each in self.trials if each.state.name == "COMPLETE"]
        return sorted(complete, key=lambda each: sign * float(each.value or 0))

    @property
    def failure(self) -> str | None:
        """Why the first trial that failed did."""
        failures = [each.user_attrs[FAILURE] for each in self.ended if FAILURE in each.user_attrs]
        return failures[0] if failures else None

    def run_next(self) -> Outcome | None:
        """Runs the first trial that is to be run and that no process works on, if there is one.

        Raises `UserError` for what is no fault of the trial, which is then to be run once more.
        """
        if self.is_done:
            return None
        with ExitStack() as held:
            with self.storage.lock("taking"):
                self._put_back_abandoned()
                trial = self._take(held)
            if trial is None:
                return None
            return self._run(trial)

    def _put_back_abandoned(self) -> None:
        running = [each for each in self.trials if each.state.name == "RUNNING"]
        if running and self.storage.has_heartbeat:
            stale = set(self.optuna._storage._get_stale_trial_ids(self.optuna._study_id))
            running = [each for each in running if each._trial_id in stale]
        elif running:
            running = [each for each in running if not self._is_locked(each.number)]
        for each in running:
            self._set_state(each, "WAITING")

    def _take(self, held: ExitStack) -> Trial | None:
        """A trial that waits, or a new one, begun and held."""
        while True:
            trials = self.trials
            for each in trials:
                if each.state.name == "WAITING":
                    with ExitStack() as signs:
                        signs.enter_context(self._sign_of_life(each))
                        if self._set_state(each, "RUNNING"):
                            held.enter_context(signs.pop_all())
                            return Trial(self.optuna, each._trial_id)
            if len(trials) == self.search.num_trials:
                return None
            self.optuna.enqueue_trial({})

    @contextmanager
    def _sign_of_life(self, trial: FrozenTrial) -> Iterator[None]:
        if not self.storage.has_heartbeat:
            with self._lock(trial.number):
                yield
            return
        from optuna.storages._heartbeat import get_heartbeat_thread

        storage = self.optuna._storage
        storage.record_heartbeat(trial._trial_id)  # before it is begun, lest it never be stale
        with get_heartbeat_thread(trial._trial_id, storage):
            yield

    def _is_locked(self, number: int) -> bool:
        try:
            with self._lock(number).acquire(timeout=0):
                return False
        except Timeout:
            return True

    def _lock(self, number: int) -> FileLock:
        return self.storage.lock(f"{self.search.digest}.{number}")

    def _set_state(
        self, trial: FrozenTrial | Trial, state: str, values: list[float] | None = None
    ) -> bool:
        """Whether the trial is in this state now, by this process."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # another one did it meanwhile
            storage = self.optuna._storage
            return bool(storage.set_trial_state_values(trial._trial_id, TrialState[state], values))
        return False

    def _run(self, trial: Trial) -> Outcome:
        search, folder = self.search, self.storage.folder / "trials"
        folder /= f"{search.digest}.{trial.number}"
        samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
        self.optuna.sampler = samplers[search.sampler](seed=trial_seed(search.seed, trial.number))
        values = suggest(search.parameters, trial)
        label = f"{self.name} trial {trial.number}".strip() if search.parameters else self.name

        def on_epoch(metrics: Metrics) -> None:
            if search.pruner != "none":
                trial.report(metrics[f"validation_{search.metric[1:]}"], metrics["epoch"])
                if trial.should_prune():
                    raise optuna.TrialPruned

        try:
            result = self._known(trial)
            if result is None:
                config = put(search.base, search.parameters, values)
                result = run_once(config, folder, on_epoch)
            value = float(result.metrics[f"best_validation_{search.metric[1:]}"])
            if not math.isfinite(value):
                raise TrainingFailed(f"training diverged: the best dev {search.metric} is {value}")
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                for key, each in asdict(result).items():
                    trial.set_user_attr(key, each)
            self._set_state(trial, "COMPLETE", [value])
            level, text = logging.INFO, _in_words(result)
        except optuna.TrialPruned:
            self._set_state(trial, "PRUNED")
            level, text = logging.INFO, "pruned"
        except (TrainingFailed, ConfigError) as error:  # or values that do not go together
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                trial.set_user_attr(FAILURE, str(error))
            self._set_state(trial, "FAIL")
            level, text = logging.WARNING, f"failed: {error}"
        except BaseException as error:
            with suppress(Exception):
                self._set_state(trial, "WAITING")
            if isinstance(error, UserError):
                raise UserError(f"{label}: {error}") from error
            raise
        remove_run(folder)
        drawn = f": {json.dumps(values)}" if values else ""
        return level, f"{label}: {text}{drawn}"

    def _known(self, trial: Trial) -> Result | None:
        """The result of another trial that drew the same values."""
        for each in self.ended:
            if each.number != trial.number and each.params == trial.params:
                if FAILURE in each.user_attrs:
                    raise TrainingFailed(each.user_attrs[FAILURE])
                if each.state.name == "COMPLETE":
                    return result_of(each)
        return None


def result_of(trial: FrozenTrial) -> Result:
    """The figures of a complete trial."""
    return Result(**{each.name: trial.user_attrs[each.name] for each in fields(Result)})


def _in_words(result: Result) -> str:
    metrics = result.metrics
    parts = [
        f"dev loss {metrics['best_validation_loss']:.4f}",
        f"accuracy {metrics['best_validation_accuracy']:.4f}",
    ]
    if "test_accuracy" in metrics:
        parts.append(f"test accuracy {metrics['test_accuracy']:.4f}")
    return f"{', '.join(parts)}, {metrics['training_epochs']} epochs, {result.seconds:.0f} s"


def _open_database(url: str) -> BaseStorage:
    with failing(f"--storage {url}", "cannot be opened"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # heartbeats are an experimental feature of Optuna's
        return RDBStorage(url, heartbeat_interval=HEARTBEAT, grace_period=3 * HEARTBEAT)


def _open_journal(file: Path) -> BaseStorage:
    lock = journal.JournalFileOpenLock(str(file))
    _cut_half_line(file, lock)
    with failing(file, "damaged", "; mend it, or delete it to begin anew"):
        return journal.JournalStorage(journal.JournalFileBackend(str(file), lock_obj=lock))


def _cut_half_line(file: Path, lock: Any) -> None:
    """Takes away what a kill or a full disk has left of a line, which would spoil the next one."""
    if not file.is_file():
        return
    lock.acquire()
    try:
        content = file.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(file, content.rfind(b"\n") + 1)
    finally:
        lock.release()
