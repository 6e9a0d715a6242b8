"""The trainer of linear models: logistic regression by scikit-learn."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.errors import TrainingFailed
from sopa_plugin.models import Model
from sopa_plugin.models.linear_model import LinearModel
from sopa_plugin.registry import PositiveFloat, PositiveInt
from sopa_plugin.training.metrics import Metrics, split_metrics, training_summary
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.trainer import Trainer

if TYPE_CHECKING:
    from datasets import DatasetDict

logger = logging.getLogger(__name__)


@Trainer.register("sklearn")
@dataclass(eq=False)
class SklearnTrainer(Trainer):
    """Fits a `LinearModel` by L2-regularised logistic regression (appendix of the paper).

    Registered as `sklearn`. The answer does not depend on the seed. Metrics are those of the other
    trainers, as of one epoch.

    Arguments:
        C: inverse strength of the regularisation, as in scikit-learn; the paper tries 0.001 to 1.
        max_iter: most iterations of the solver.
        tol: at what change of the gradient the solver stops.
        balanced: whether classes count alike, however many documents they have.
    """

    trains: ClassVar[type[Model]] = LinearModel

    C: PositiveFloat = 1.0
    max_iter: PositiveInt = 1000
    tol: PositiveFloat = 1e-4
    balanced: bool = False

    def train(self, model: Model, data: DatasetDict, run: RunFolder, seed: int) -> Metrics:
        """Finds the features, then their weights (see `Trainer.train`)."""
        from sklearn.linear_model import LogisticRegression

        assert isinstance(model, LinearModel)
        began = time.monotonic()
        columns = {split: data[split][:] for split in ("train", "dev")}
        labels = {split: np.array(each["label"]) for split, each in columns.items()}
        if len(set(columns["train"]["label"])) < 2:
            raise TrainingFailed(
                "the training set has examples of one class alone; expected some of two or more "
                "(of a small subset, another dataset.subsample_seed may have)"
            )
        features = model.fit_features(columns["train"]["text"])
        logger.info("%d features of %d documents", features.shape[1], features.shape[0])
        regression = LogisticRegression(
            C=self.C,
            max_iter=self.max_iter,
            tol=self.tol,
            class_weight="balanced" if self.balanced else None,
        ).fit(features, labels["train"])
        if regression.n_iter_.max() >= self.max_iter:
            logger.warning(
                "trainer.max_iter: the solver had not converged after %d iterations; raise it",
                self.max_iter,
            )
        model.coefficients, model.intercepts = regression.coef_, regression.intercept_
        if len(regression.classes_) < len(model.labels):
            _add_absent_classes(model, regression.classes_, len(labels["train"]))
        metrics: Metrics = {"epoch": 0}
        of_dev = model.log_probabilities(columns["dev"]["text"])
        metrics |= split_metrics("training", model.answers(features), labels["train"])
        metrics |= split_metrics("validation", of_dev, labels["dev"])
        run.end_epoch([metrics])
        return training_summary([metrics], best_epoch=0, seconds=time.monotonic() - began)


def _add_absent_classes(model: LinearModel, present: NDArray[np.integer], examples: int) -> None:
    """Gives the classes without a training example no features and less than one example's odds.

    The scores of the others add up to 0, so that the largest is at least that: none without an
    example is ever predicted.
    """
    coefficients, intercepts = model.coefficients, model.intercepts
    if len(coefficients) == 1:  # two classes are one row
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    model.coefficients = np.zeros((len(model.labels), coefficients.shape[1]))
    model.intercepts = np.full(len(model.labels), -np.log(examples))
    model.coefficients[present], model.intercepts[present] = coefficients, intercepts
