"""A number between two bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sopa_plugin.comparisons.parameters.parameter import Parameter

if TYPE_CHECKING:
    from optuna.trial import BaseTrial


@Parameter.register("uniform")
class Uniform(Parameter):
    """A real number from `low` to `high`.

    Registered as `uniform`.

    Arguments:
        low, high: the bounds.
        log: whether its logarithm is what is uniform.
        keys: see `Parameter`.
    """

    def __init__(
        self, low: float, high: float, log: bool = False, keys: Sequence[str] | None = None
    ) -> None:
        super().__init__(keys)
        self.low, self.high, self.log = low, high, log

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Problems with the bounds."""
        return bound_problems(params)

    def suggest(self, name: str, trial: BaseTrial) -> float:
        """The value that an Optuna trial is to try."""
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def examples(self) -> list[float]:
        """The bounds."""
        return [self.low, self.high]


def bound_problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with `low` and `high`."""
    if params["low"] > params["high"]:
        yield "low", f"expected at most {params['high']} (high), found {params['low']}"
    elif params["log"] and params["low"] <= 0:
        yield "low", f"a logarithm needs a number above 0, found {params['low']}"
