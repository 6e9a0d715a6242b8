"""What a search for hyperparameters is: a config, what is varied in it, and how."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from sopa_plugin.comparisons.space import Parameter, space_problems
from sopa_plugin.registry import NonNegativeInt, PositiveInt, build, check
from sopa_plugin.training import Experiment
from sopa_plugin.training.metrics import ValidationMetric


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
        num_trials: PositiveInt = 30,
        metric: ValidationMetric = "-loss",
        sampler: Literal["random", "tpe"] = "random",
        pruner: Literal["none", "median"] = "none",
        seed: NonNegativeInt = 1,
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
        defaults = {"sampler": "random", "pruner": "none", "seed": 1}
        changed = {
            key: vars(self)[key] for key, each in defaults.items() if vars(self)[key] != each
        }
        return json.loads(json.dumps({**settings, **changed}))  # type: ignore[no-any-return]

    @property
    def digest(self) -> str:
        """A name by which the same search is found again, whatever asks for it."""
        written = json.dumps(self.settings, sort_keys=True)
        return hashlib.blake2b(written.encode(), digest_size=8).hexdigest()
