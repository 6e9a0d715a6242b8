"""A whole number between two bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sopa_plugin.comparisons.parameters.parameter import Parameter
from sopa_plugin.comparisons.parameters.uniform import bound_problems

if TYPE_CHECKING:
    from optuna.trial import BaseTrial


@Parameter.register("integer")
class Integer(Parameter):
    """A whole number from `low` to `high`, both included.

    Registered as `integer`.

    Arguments:
        low, high: the bounds.
        log: whether its logarithm is what is uniform.
        keys: see `Parameter`.
    """

    def __init__(
        self, low: int, high: int, log: bool = False, keys: Sequence[str] | None = None
    ) -> None:
        super().__init__(keys)
        self.low, self.high, self.log = low, high, log

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Problems with the bounds."""
        return bound_problems(params)

    def suggest(self, name: str, trial: BaseTrial) -> int:
        """The value that an Optuna trial is to try."""
        return trial.suggest_int(name, self.low, self.high, log=self.log)

    def examples(self) -> list[int]:
        """The bounds."""
        return [self.low, self.high]
