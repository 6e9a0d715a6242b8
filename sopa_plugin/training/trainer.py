"""The base class of everything that trains a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.data.batches import Documents
from sopa_plugin.models import Model
from sopa_plugin.registry import Registrable
from sopa_plugin.training.metrics import Metrics
from sopa_plugin.training.run_folder import RunFolder

if TYPE_CHECKING:
    from datasets import DatasetDict


class Trainer(Registrable):
    """Trains a model on a data set.

    What comes before (reading, building) and after (test figures, the saved model, `metrics.json`)
    is the same for all trainers and done by `Experiment`, in this order: `set_up`, `train`,
    `log_probabilities` for test.
    """

    default_implementation: ClassVar[str | None] = "accelerate"
    trains: ClassVar[type[Model]] = Model
    """The models that it can train."""
    takes_documents: ClassVar[bool] = False
    """Whether `log_probabilities` takes `Documents` too; `documents` are then given."""
    documents: Mapping[str, Documents] = MappingProxyType({})
    """The texts of each split tokenised, of a model that takes them so (`text_classifier`)."""

    @property
    def needs_labels(self) -> bool:
        """Whether it needs labels of the training and dev texts."""
        return True

    @classmethod
    def may_change(cls, params: Mapping[str, Any]) -> frozenset[str]:
        """Arguments that may be others when a run goes on (`--recover`), of such filled-in ones."""
        return frozenset()

    def set_up(self, model: Model, run: RunFolder) -> None:
        """Makes sure that this machine can train as configured, before there is a run folder.

        Raises `UserError` if it cannot.
        """

    def train(self, model: Model, data: DatasetDict, run: RunFolder, seed: int) -> Metrics:
        """Trains `model` in place and leaves the best one in it.

        Arguments:
            model: as built.
            data: `train`, `dev` and, where there is one, `test`, with columns `text` and `label`.
            run: where checkpoints and logs go, and come from if the run is recovered; is told of
                each epoch (`RunFolder.end_epoch`).
            seed: of everything random.

        Returns:
            What is known of the training, by AllenNLP's names: `training_epochs`, `best_epoch`,
            `training_duration`, `training_*`, `validation_*`, `best_validation_*`.
        """
        raise NotImplementedError

    def log_probabilities(
        self, model: Model, texts: Sequence[str] | Documents
    ) -> NDArray[np.floating]:
        """Log-probabilities `[texts, labels]`; every process gets all of them.

        The texts may be those of `documents`.
        """
        return model.log_probabilities(texts)  # type: ignore[arg-type]
