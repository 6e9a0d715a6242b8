"""The base class of what a search varies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sopa_plugin.registry import Registrable

if TYPE_CHECKING:
    from optuna.trial import BaseTrial


class Parameter(ABC, Registrable):
    """One hyperparameter of a search space: which values it may have, and where they go.

    Arguments:
        keys: dotted paths in the config that all take the value, as with `-o`; null is the
            parameter's own name.
    """

    default_implementation: ClassVar[str | None] = "choice"

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        self.keys = None if keys is None else list(keys)

    @abstractmethod
    def suggest(self, name: str, trial: BaseTrial) -> Any:
        """The value that an Optuna trial is to try."""

    @abstractmethod
    def examples(self) -> list[Any]:
        """Values by which to check that the config takes what this parameter may become."""
