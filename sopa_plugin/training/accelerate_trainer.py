"""The trainer of everything that learns by gradient, on one processor or many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import GradientAccumulationPlugin
from datasets import DatasetDict
from numpy.typing import NDArray

from sopa_plugin.errors import UserError
from sopa_plugin.models import Model, TextClassifier
from sopa_plugin.registry import Lazy
from sopa_plugin.training.embedding_cache import can_cache, embed_once
from sopa_plugin.training.evaluation import shared_log_probabilities
from sopa_plugin.training.metric_tracker import ValidationMetric
from sopa_plugin.training.optimizers import Optimizer
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.schedulers import Schedule, Scheduler
from sopa_plugin.training.trainer import Metrics, OnEpoch, Trainer
from sopa_plugin.training.training_loop import TrainingLoop

Tracker = Literal[
    "aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "tensorboard", "trackio", "wandb"
]


@Trainer.register("accelerate")
class AccelerateTrainer(Trainer):
    """Gradient descent with early stopping, by Hugging Face Accelerate.

    Registered as `accelerate`. The paper's protocol (section 5) is the default but for the number
    of epochs: Adam, batches of 150, stopping after 30 epochs without a better dev loss.

    Arguments:
        batch_size: documents a process and step.
        num_epochs: most epochs to train.
        patience: epochs without a new best after which to stop; null never stops.
        validation_metric: what is best on dev: `-loss`, `+accuracy` or `+macro_f1`.
        optimizer: a torch optimizer by name, with torch's arguments.
        learning_rate_scheduler: a scheduler by name; null keeps the learning rate.
        embedder_lr: learning rate of the embedder, where it is to differ (a transformer's).
        loss_reduction: whether a step's loss is the `mean` over its documents or the `sum`, as in
            the released implementation.
        grad_norm: scale gradients down to this norm, all together.
        grad_clipping: clamp each gradient to ± this.
        num_gradient_accumulation_steps: batches that make one step of the optimizer; the result is
            that of one batch so many times as large.
        mixed_precision: `no`, `fp16` or `bf16`; null as `accelerate launch` was told.
        batches_by_length: whether the documents of a batch are of like length.
        cache_embedder: whether a frozen contextual embedder is run once for all epochs, and its
            output kept on disk meanwhile (4 bytes a token and dimension).
        checkpoint_every: write a checkpoint after so many batches too, not only after each epoch.
        trackers: where else to log: `tensorboard`, `wandb`, ... (Accelerate's trackers).
    """

    trains: ClassVar[type[Model]] = TextClassifier

    def __init__(
        self,
        batch_size: int = 150,
        num_epochs: int = 50,
        patience: int | None = 30,
        validation_metric: ValidationMetric = "-loss",
        optimizer: Lazy[Optimizer] = Lazy(Optimizer, "adam"),  # noqa: B008
        learning_rate_scheduler: Lazy[Scheduler] | None = None,
        embedder_lr: float | None = None,
        loss_reduction: Literal["mean", "sum"] = "mean",
        grad_norm: float | None = None,
        grad_clipping: float | None = None,
        num_gradient_accumulation_steps: int = 1,
        mixed_precision: Literal["no", "fp16", "bf16"] | None = None,
        batches_by_length: bool = True,
        cache_embedder: bool = True,
        checkpoint_every: int | None = None,
        trackers: Sequence[Tracker] = (),
    ) -> None:
        self.batch_size = batch_size
        self.num_epochs = num_epochs
        self.patience = patience
        self.validation_metric = validation_metric
        self.optimizer = optimizer
        self.learning_rate_scheduler = learning_rate_scheduler
        self.embedder_lr = embedder_lr
        self.loss_reduction = loss_reduction
        self.grad_norm = grad_norm
        self.grad_clipping = grad_clipping
        self.num_gradient_accumulation_steps = num_gradient_accumulation_steps
        self.mixed_precision = mixed_precision
        self.batches_by_length = batches_by_length
        self.cache_embedder = cache_embedder
        self.checkpoint_every = checkpoint_every
        self.trackers = list(trackers)
        self.accelerator: Accelerator | None = None
        for key, message in self.check_params(vars(self)):
            raise ValueError(f"{key}: {message}")

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Problems with values that type hints cannot tell."""
        for key in (
            "batch_size",
            "num_epochs",
            "patience",
            "num_gradient_accumulation_steps",
            "checkpoint_every",
        ):
            if params.get(key) is not None and params[key] < 1:
                yield key, f"expected at least 1, found {params[key]}"
        for key in ("embedder_lr", "grad_norm", "grad_clipping"):
            if params.get(key) is not None and params[key] <= 0:
                yield key, f"expected a number above 0, found {params[key]}"

    def set_up(self, model: Model, run: RunFolder) -> None:
        """Makes the `Accelerator`, which finds the devices and the other processes."""
        assert isinstance(model, TextClassifier)
        self._try_out()
        # a run before, in the same process, may have had another precision
        AcceleratorState._reset_state()
        try:
            self.accelerator = Accelerator(
                mixed_precision=self.mixed_precision,
                # the loop accumulates by itself, whatever the environment says
                gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
                log_with=self.trackers or None,
                project_dir=str(run.path),
            )
        except (ValueError, ImportError) as error:
            raise UserError(f"trainer: {error}") from error
        for name in self.trackers:
            if name not in [
                str(getattr(each, "value", each)) for each in self.accelerator.log_with
            ]:
                raise UserError(
                    f"trainer.trackers: '{name}' needs its package installed (pip install {name})"
                )
        if self.embedder_lr is not None and not any(
            each.requires_grad for each in model.embedder.parameters()
        ):
            raise UserError(
                "trainer.embedder_lr: the embedder is frozen and has no learning rate; leave it "
                "out, or train the embedder (model.embedder.trainable: true)"
            )

    def _try_out(self) -> None:
        """Makes what would refuse its arguments, before a run is begun or another replaced."""
        parameter = torch.nn.Parameter(torch.zeros(1))
        try:
            optimizer: Any = self.optimizer.construct(params=[{"params": [parameter]}])
        except RuntimeError as error:  # of options that rule one another out
            raise UserError(f"trainer.optimizer: {error}") from error
        Schedule(self.learning_rate_scheduler, optimizer, self.num_epochs, larger_is_better=True)

    def train(
        self,
        model: Model,
        data: DatasetDict,
        run: RunFolder,
        seed: int,
        on_epoch: OnEpoch | None = None,
    ) -> Metrics:
        """Trains `model` and leaves the best epoch's weights in it (see `Trainer.train`)."""
        assert isinstance(model, TextClassifier)
        assert self.accelerator is not None
        model.to_device(str(self.accelerator.device))
        documents = {
            split: model.encode_texts(data[split]["text"], data[split]["label"])
            for split in ("train", "dev")
        }
        model.set_class_prior(np.array(data["train"]["label"]))
        loop = TrainingLoop(self, self.accelerator, model, run, seed, **documents)
        if self.cache_embedder and can_cache(model):
            for split, each in documents.items():
                embedded = embed_once(model, each, run.cache / split, self.accelerator)
                setattr(loop, split, embedded)
        self.accelerator.init_trackers("tracking", config=_flat(run.config))
        metrics = loop.run(on_epoch)
        for tracker in self.accelerator.trackers:
            tracker.finish()
        return metrics

    def log_probabilities(self, model: Model, texts: Sequence[str]) -> NDArray[np.floating]:
        """Log-probabilities `[texts, labels]`, the work shared out among the processes."""
        assert isinstance(model, TextClassifier)
        assert self.accelerator is not None
        return shared_log_probabilities(model, model.encode_texts(texts), self.accelerator)


def _flat(config: Any, path: str = "") -> dict[str, Any]:
    """A nested config as trackers take it: dotted paths, plain values."""
    if not isinstance(config, dict):
        plain = isinstance(config, int | float | str | bool)
        return {path: config if plain else str(config)}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{path}.{key}" if path else str(key))
    return flat
