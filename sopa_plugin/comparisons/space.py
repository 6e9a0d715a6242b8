"""A search space: which hyperparameters of a config are varied, and what each trial draws."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import optuna
from optuna.trial import BaseTrial

from sopa_plugin.registry import (
    ConfigError,
    ConfigOf,
    NonNegativeInt,
    PositiveInt,
    Problem,
    Registrable,
    apply_overrides,
    build,
    check,
)
from sopa_plugin.training import Experiment
from sopa_plugin.training.metrics import ValidationMetric

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(eq=False)
class Parameter(ABC, Registrable):
    """One hyperparameter of a search space: which values it may have, and where they go.

    Arguments:
        keys: dotted paths in the config that all take the value, as with `-o`; null is the
            parameter's own name.
    """

    default_implementation: ClassVar[str | None] = "choice"

    keys: Sequence[str] | None = field(default=None, kw_only=True)

    @abstractmethod
    def suggest(self, name: str, trial: BaseTrial) -> Any:
        """The value that an Optuna trial is to try."""

    @abstractmethod
    def examples(self) -> Sequence[Any]:
        """Values by which to check that the config takes what this parameter may become."""


@Parameter.register("choice")
@dataclass(eq=False)
class Categorical(Parameter):
    """One of `values`, each as likely.

    Registered as `choice`.

    Arguments:
        values: of any kind that a config may hold, whole parts too.
        keys: see `Parameter`.
    """

    values: Sequence[Any]

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """There is to be something to choose from."""
        if not params["values"]:
            yield "values", "expected at least one value, found none"

    def suggest(self, name: str, trial: BaseTrial) -> Any:
        """The value that an Optuna trial is to try."""
        if all(isinstance(each, str | int | float | bool | None) for each in self.values):
            return trial.suggest_categorical(name, self.values)
        # Optuna stores plain values only
        written = [json.dumps(each, sort_keys=True) for each in self.values]
        return json.loads(str(trial.suggest_categorical(name, written)))

    def examples(self) -> Sequence[Any]:
        """All of them."""
        return self.values


@Parameter.register("uniform")
@dataclass(eq=False)
class Uniform(Parameter):
    """A real number from `low` to `high`.

    Registered as `uniform`.

    Arguments:
        low, high: the bounds.
        log: whether its logarithm is what is uniform.
        keys: see `Parameter`.
    """

    low: float
    high: float
    log: bool = False

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The bounds are to be in order, and to have logarithms where these are drawn."""
        if params["low"] > params["high"]:
            yield "low", f"expected at most {params['high']} (high), found {params['low']}"
        elif params["log"] and params["low"] <= 0:
            yield "low", f"a logarithm needs a number above 0, found {params['low']}"

    def suggest(self, name: str, trial: BaseTrial) -> float:
        """The value that an Optuna trial is to try."""
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def examples(self) -> list[Any]:
        """The bounds."""
        return [self.low, self.high]


@Parameter.register("integer")
@dataclass(eq=False)
class Integer(Uniform):
    """A whole number from `low` to `high`, both included.

    Registered as `integer`; its arguments are those of `uniform`.
    """

    low: int
    high: int

    def suggest(self, name: str, trial: BaseTrial) -> int:
        """The value that an Optuna trial is to try."""
        return trial.suggest_int(name, self.low, self.high, log=self.log)


Parameters = Mapping[str, Parameter]
Values = dict[str, Any]


def suggest(parameters: Parameters, trial: BaseTrial) -> Values:
    """The value of each parameter that an Optuna trial is to try."""
    return {name: each.suggest(name, trial) for name, each in parameters.items()}


def trial_seed(seed: int, trial: int) -> int:
    """The seed of one trial's values.

    So what a random search draws for a trial depends on its number alone: not on which process
    draws, nor on whether the search was interrupted.
    """
    return int(np.random.SeedSequence([seed, trial]).generate_state(1)[0])


def draw(parameters: Parameters, seed: int, trial: int) -> Values:
    """The values that trial number `trial` of a random search tries."""
    sampler = optuna.samplers.RandomSampler(seed=trial_seed(seed, trial))
    return suggest(parameters, optuna.create_study(sampler=sampler).ask())


def put(config: Mapping[str, Any], parameters: Parameters, values: Values) -> dict[str, Any]:
    """The config of an experiment with `values` of `parameters` in it."""
    overrides = [
        f"{key}={json.dumps(value)}"
        for name, value in values.items()
        for key in parameters[name].keys or [name]
    ]
    return apply_overrides(Experiment, dict(config), overrides)


def space_problems(config: Mapping[str, Any], parameters: Parameters) -> Iterator[tuple[str, str]]:
    """`(parameter, message)` for every value that the config does not take."""
    varied: set[str] = set()
    for name, parameter in parameters.items():
        for key in parameter.keys or [name]:
            if key in varied:
                yield name, f"'{key}' is varied twice; expected different keys"
            varied.add(key)
    for name, parameter in parameters.items():
        for value in parameter.examples():
            problems = _problems(config, parameters, {name: value})
            if problems:
                yield name, f"{json.dumps(value)}: {problems[0]}"
                break


def trial_problems(
    config: Mapping[str, Any], parameters: Parameters, seed: int, num_trials: int
) -> Iterator[str]:
    """A message for the first trial of a random search whose values do not go together."""
    for trial in range(num_trials if parameters else 0):
        values = draw(parameters, seed, trial)
        problems = _problems(config, parameters, values)
        if problems:
            drawn = json.dumps(values)
            yield f"trial {trial} draws what does not go together, {drawn}: {problems[0]}"
            return


def _problems(config: Mapping[str, Any], parameters: Parameters, values: Values) -> list[Problem]:
    try:
        return check(Experiment, put(config, parameters, values))
    except ConfigError as error:
        return error.problems


@dataclass
class Search:
    """What a search varies, as a Jsonnet file describes it.

    Attributes:
        base: the config of an experiment.
        parameters: what is varied in it, by name. A trial whose values do not go together fails.
        num_trials: how many configs are tried; the paper tries 30.
        metric: by which dev figure the best is picked: `-loss`, `+accuracy` or `+macro_f1`.
        sampler: `random`, as in the paper, or Optuna's `tpe`, which looks where it was good before.
        pruner: whether bad trials are stopped early: `none`, as in the paper, or Optuna's `median`
            (worse than the median of earlier trials at the same epoch).
        seed: of what is drawn. At random, a trial draws the same values whichever process does it.
    """

    base: Annotated[dict[str, Any], ConfigOf(Experiment)]
    parameters: dict[str, Parameter]
    num_trials: PositiveInt = 30
    metric: ValidationMetric = "-loss"
    sampler: Literal["random", "tpe"] = "random"
    pruner: Literal["none", "median"] = "none"
    seed: NonNegativeInt = 1

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Whether the base is sound and takes every value of the parameters."""
        if not params["parameters"]:
            yield "parameters", "expected something to vary, found nothing"
        problems = check(Experiment, params["base"])
        for each in problems:
            yield "base", str(each)
        if not problems:
            parameters = build(dict[str, Parameter], params["parameters"])
            for name, message in space_problems(params["base"], parameters):
                yield f"parameters.{name}", message

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a search to go on; more trials are welcome.

        Settings that are as they are by default are left out, so that one that comes with a later
        version makes no other search of an older one.
        """
        parameters = {
            name: {"type": type(each).__name__, **vars(each)}
            for name, each in self.parameters.items()
        }
        settings = {"base": self.base, "parameters": parameters, "metric": self.metric}
        optional = ("sampler", "pruner", "seed")  # dataclasses keep defaults on the class
        changed = {key: each for key in optional if (each := vars(self)[key]) != vars(Search)[key]}
        return json.loads(json.dumps({**settings, **changed}))  # type: ignore[no-any-return]

    @property
    def digest(self) -> str:
        """A name by which the same search is found again, whatever asks for it."""
        written = json.dumps(self.settings, sort_keys=True)
        return hashlib.blake2b(written.encode(), digest_size=8).hexdigest()
