"""The trainer of linear models: logistic regression by scikit-learn."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

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
        missing = set(range(len(model.labels))) - set(columns["train"]["label"])
        if missing:
            raise TrainingFailed(
                f"the training set has no example of the class '{model.labels[min(missing)]}'; "
                "expected some of each class (of a small subset, another dataset.subsample_seed "
                "may have)"
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
        metrics: Metrics = {"epoch": 0}
        for split, name in (("train", "training"), ("dev", "validation")):
            log_probabilities = model.log_probabilities(columns[split]["text"])
            metrics |= split_metrics(name, log_probabilities, labels[split])
        run.end_epoch([metrics])
        return training_summary([metrics], best_epoch=0, seconds=time.monotonic() - began)
