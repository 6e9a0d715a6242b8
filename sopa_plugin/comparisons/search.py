"""Random search for the best hyperparameters of one config, through Optuna."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sopa_plugin.comparisons.locks import locked, try_lock
from sopa_plugin.comparisons.parameters import Parameter
from sopa_plugin.comparisons.search_report import write_search_report
from sopa_plugin.comparisons.single_run import Result, remove_run, run_once
from sopa_plugin.comparisons.space import put, space_problems, suggest, trial_seed
from sopa_plugin.comparisons.study import LOCK, open_study
from sopa_plugin.comparisons.workers import worker_pool
from sopa_plugin.errors import TrainingFailed, UserError, require
from sopa_plugin.registry import ConfigError, build, check
from sopa_plugin.training import Experiment
from sopa_plugin.training.metrics import Metrics, ValidationMetric

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

logger = logging.getLogger(__name__)
FAILURE = "failure"  # why a trial failed, among its attributes


class Search:
    """What a search varies, as a Jsonnet file describes it.

    Arguments:
        base: the config of an experiment.
        parameters: what is varied in it, by name. A trial whose values do not go together fails.
        num_trials: how many configs are tried; the paper tries 30.
        metric: by which dev figure the best is picked: `-loss`, `+accuracy` or `+macro_f1`.
        sampler: `random`, as in the paper, or Optuna's `tpe`, which looks where it was good before.
        pruner: whether bad trials are stopped early: `none`, as in the paper, or Optuna's `median`
            (worse than the median of earlier trials at the same epoch).
        seed: of what is drawn. At random, a trial draws the same values whichever process does it.
    """

    def __init__(
        self,
        base: dict[str, Any],
        parameters: dict[str, Parameter],
        num_trials: int = 30,
        metric: ValidationMetric = "-loss",
        sampler: Literal["random", "tpe"] = "random",
        pruner: Literal["none", "median"] = "none",
        seed: int = 1,
    ) -> None:
        self.base = base
        self.parameters = parameters
        self.num_trials = num_trials
        self.metric = metric
        self.sampler = sampler
        self.pruner = pruner
        self.seed = seed

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Whether the base is sound and takes every value of the parameters."""
        if params["num_trials"] < 1:
            yield "num_trials", f"expected at least 1, found {params['num_trials']}"
        if params["seed"] < 0:
            yield "seed", f"expected at least 0, found {params['seed']}"
        if not params["parameters"]:
            yield "parameters", "expected something to vary, found nothing"
        problems = check(Experiment, params["base"])
        for each in problems:
            yield "base", str(each)
        if not problems:
            parameters = build(dict[str, Parameter], params["parameters"])
            for name, message in space_problems(params["base"], parameters):
                yield f"parameters.{name}", message


def run_search(
    search: Search,
    folder: Path,
    storage: str | None = None,
    workers: int = 1,
    packages: Sequence[str] = (),
) -> FrozenTrial:
    """Runs the trials that are missing, and writes the report; the best trial.

    The same search may run in several processes, or machines, that share the folder; each takes
    the next trial. A trial that a process left unfinished is taken up by whoever comes next.

    Arguments:
        search: what to search.
        folder: trials are run in it; `best.json`, `trials.md` and `search.png` are written there.
        storage: an Optuna storage URL (`sqlite:///...`); by default a journal file in the folder.
        workers: processes to start; 1 runs in this one.
        packages: plugins for the processes.
    """
    require("matplotlib.figure", "the picture of a search")  # not only when all is done
    folder.mkdir(parents=True, exist_ok=True)
    study = study_of(search, folder, storage)
    if workers == 1:
        work(search, folder, storage)
    else:
        with worker_pool(workers, packages) as pool:
            futures = [pool.submit(work, search, folder, storage) for _ in range(workers)]
            for future in futures:
                future.result()
    _check_state(study)
    write_search_report(study, list(search.parameters), search.metric, folder)
    return study.best_trial


def _check_state(study: Study) -> None:
    """Says what is still running; raises `UserError` where there is no best trial yet."""
    trials = study.get_trials(deepcopy=False)
    running = sum(not each.state.is_finished() for each in trials)
    ended = any(each.value is not None for each in trials)
    if running:
        still = f"{running} trials are still running in other processes"
        if not ended:
            raise UserError(f"{still} and none has ended yet; run the same command again later")
        logger.info("%s, and are not in the report", still)
    if ended:
        return
    messages = [each.user_attrs[FAILURE] for each in trials if FAILURE in each.user_attrs]
    raise UserError(f"no trial came to an end: {next(iter(messages), 'all were pruned')}")


def study_of(search: Search, folder: Path, storage: str | None) -> Study:
    """The study of a search, made or found; raises `UserError` if it is another search's."""
    direction: Literal["minimize", "maximize"] = (
        "maximize" if search.metric[0] == "+" else "minimize"
    )
    return open_study(folder, storage, _describe(search), direction, search.pruner)


def work(search: Search, folder: Path, storage: str | None) -> None:
    """Takes trials and runs them until there are enough."""
    study = study_of(search, folder, storage)
    while True:
        with locked(folder / LOCK):
            taken = _take_abandoned(study, folder) or _ask(study, search)
            if taken is None:
                return
            # held until the trial ends, in whatever way
            lock = try_lock(_lock_file(folder, taken.number))
        assert lock is not None
        with lock:
            _run_trial(study, taken, search, folder)


def _run_trial(study: Study, trial: Trial, search: Search, folder: Path) -> None:
    optuna = require("optuna", "a search")
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    study.sampler = samplers[search.sampler](seed=trial_seed(search.seed, trial.number))
    values = suggest(search.parameters, trial)

    def on_epoch(metrics: Metrics) -> None:
        trial.report(metrics[f"validation_{search.metric[1:]}"], metrics["epoch"])
        if search.pruner != "none" and trial.should_prune():
            raise optuna.TrialPruned

    run = folder / "trials" / f"{trial.number}"
    try:
        config = put(search.base, search.parameters, values)
        result = run_once(config, run, on_epoch)
    except optuna.TrialPruned:
        remove_run(run)
        study.tell(trial.number, state=optuna.trial.TrialState.PRUNED)
        logger.info("trial %d: pruned: %s", trial.number, json.dumps(values))
        return
    except (TrainingFailed, ConfigError) as error:  # the latter of values that do not go together
        remove_run(run)
        trial.set_user_attr(FAILURE, str(error))
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        logger.warning("trial %d failed: %s: %s", trial.number, json.dumps(values), error)
        return
    value = abs(result.dev(search.metric))
    _note(trial, result)
    study.tell(trial.number, value)
    logger.info(
        "trial %d: dev %s %.4f: %s", trial.number, search.metric[1:], value, json.dumps(values)
    )


def _note(trial: Trial, result: Result) -> None:
    """What the report tells of a trial beside its value."""
    for key, value in result.metrics.items():
        if key.startswith(("best_validation_", "test_", "parameters_", "training_epochs")):
            trial.set_user_attr(key, value)
    trial.set_user_attr("seconds", result.seconds)
    trial.set_user_attr("config", result.config)


def _ask(study: Study, search: Search) -> Trial | None:
    """A new trial, unless there are enough."""
    return study.ask() if len(study.get_trials(deepcopy=False)) < search.num_trials else None


def _take_abandoned(study: Study, folder: Path) -> Trial | None:
    """A trial that was begun, and that no living process works on."""
    optuna = require("optuna", "a search")
    running = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    for each in running:
        lock = try_lock(_lock_file(folder, each.number))
        if lock is None:
            continue
        with lock:
            # it may have ended between the two lines above
            if not study._storage.get_trial(each._trial_id).state.is_finished():
                trial: Trial = optuna.Trial(study, each._trial_id)
                return trial
    return None


def _lock_file(folder: Path, trial: int) -> Path:
    return folder / "trials" / f"{trial}.lock"


def _describe(search: Search) -> dict[str, Any]:
    """What must be the same for a search to go on; more trials are welcome."""
    parameters = {
        name: {"type": type(each).__name__, **vars(each)}
        for name, each in search.parameters.items()
    }
    described = {
        "base": search.base,
        "parameters": parameters,
        "metric": search.metric,
        "sampler": search.sampler,
        "pruner": search.pruner,
        "seed": search.seed,
    }
    return json.loads(json.dumps(described))  # type: ignore[no-any-return]
