"""A search space: named parameters of a config."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sopa_plugin.comparisons.parameters import Parameter
from sopa_plugin.errors import require
from sopa_plugin.registry import ConfigError, apply_overrides, check
from sopa_plugin.training import Experiment

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

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
    optuna = require("optuna", "a search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.RandomSampler(seed=trial_seed(seed, trial))
    study = optuna.create_study(sampler=sampler)
    return suggest(parameters, study.ask())


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
            try:
                changed = put(config, parameters, {name: value})
            except ConfigError as error:
                yield name, f"{json.dumps(value)}: {error}"
                break
            problems = check(Experiment, changed)
            if problems:
                yield name, f"{json.dumps(value)}: {problems[0]}"
                break


def trial_problems(
    config: Mapping[str, Any], parameters: Parameters, seed: int, num_trials: int
) -> Iterator[str]:
    """A message for the first trial of a random search whose values do not go together."""
    for trial in range(num_trials if parameters else 0):
        values = draw(parameters, seed, trial)
        try:
            problems = check(Experiment, put(config, parameters, values))
        except ConfigError as error:
            problems = error.problems
        if problems:
            drawn = json.dumps(values)
            yield f"trial {trial + 1} draws what does not go together, {drawn}: {problems[0]}"
            return
