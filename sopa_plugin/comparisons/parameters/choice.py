"""One of some values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sopa_plugin.comparisons.parameters.parameter import Parameter

if TYPE_CHECKING:
    from optuna.trial import BaseTrial


@Parameter.register("choice")
class Choice(Parameter):
    """One of `values`, each as likely.

    Registered as `choice`.

    Arguments:
        values: of any kind that a config may hold, whole parts too.
        keys: see `Parameter`.
    """

    def __init__(self, values: Sequence[Any], keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.values = list(values)

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """A choice needs something to choose from."""
        if not params["values"]:
            yield "values", "expected at least one value, found none"

    def suggest(self, name: str, trial: BaseTrial) -> Any:
        """The value that an Optuna trial is to try."""
        plain = all(isinstance(each, str | int | float | bool | None) for each in self.values)
        if plain:
            return trial.suggest_categorical(name, self.values)
        # Optuna stores plain values only
        written = [json.dumps(each, sort_keys=True) for each in self.values]
        return json.loads(str(trial.suggest_categorical(name, written)))

    def examples(self) -> list[Any]:
        """All of them."""
        return self.values
