"""The training loop."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, broadcast_object_list, set_seed
from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from sopa_plugin.data.batches import Documents, Integers, training_batches
from sopa_plugin.errors import UserError
from sopa_plugin.models import TextClassifier
from sopa_plugin.training.checkpoints import (
    Checkpoints,
    changing_weights,
    checkpoint_name,
    random_states,
    set_random_state,
)
from sopa_plugin.training.metric_tracker import MetricTracker
from sopa_plugin.training.metrics import classification_metrics
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.schedulers import Schedule
from sopa_plugin.training.trainer import Metrics, OnEpoch

if TYPE_CHECKING:
    from sopa_plugin.training.accelerate_trainer import AccelerateTrainer

logger = logging.getLogger(__name__)


@dataclass
class Progress:
    """How far a run has come: before step `step` of epoch `epoch`, both counted from 0.

    Attributes:
        seconds: spent so far.
        history: metrics of every epoch.
        best_checkpoint: the name of the checkpoint after the best epoch.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    history: list[Metrics] = field(default_factory=list)
    best_checkpoint: str | None = None


class TrainingLoop:
    """One training run; `run` goes from the beginning, or a checkpoint, to the best model.

    Arguments:
        options: the trainer.
        accelerator: of this run.
        model: to be trained, on the accelerator's device.
        run: its folder.
        seed: of the order of the documents and of dropout.
        train, dev: the documents.
    """

    def __init__(
        self,
        options: AccelerateTrainer,
        accelerator: Accelerator,
        model: TextClassifier,
        run: RunFolder,
        seed: int,
        train: Documents,
        dev: Documents,
    ) -> None:
        self.options, self.accelerator, self.model, self.run_folder = (
            options,
            accelerator,
            model,
            run,
        )
        self.seed, self.train, self.dev = seed, train, dev
        if len(train) < accelerator.num_processes:
            raise UserError(
                f"{len(train)} training documents are too few for "
                f"{accelerator.num_processes} processes"
            )
        self.progress = Progress()
        self.tracker = MetricTracker(options.validation_metric, options.patience)
        self.checkpoints = Checkpoints(run.checkpoints)
        self.module, self.optimizer = accelerator.prepare(model, self._make_optimizer())
        steps = math.ceil(len(self._steps(0)) / options.num_gradient_accumulation_steps)
        self.schedule = Schedule(
            options.learning_rate_scheduler,
            self.optimizer.optimizer,
            total_steps=steps * options.num_epochs,
            larger_is_better=self.tracker.larger_is_better,
        )
        # scores of every training document, as they were when it was trained on
        self.train_logits = torch.zeros(len(train), len(model.labels), device=model.device)

    def run(self, on_epoch: OnEpoch | None = None) -> Metrics:
        """Trains to the end and puts the best weights into the model; the metrics of the run."""
        set_seed(self.seed, device_specific=True)
        self.accelerator.init_trackers("tracking", config=_flat(self.run_folder.config))
        if self.run_folder.recovering:
            self._recover()
        began = time.monotonic() - self.progress.seconds
        while self.progress.epoch < self.options.num_epochs and not self.tracker.should_stop:
            epoch, epoch_began = self.progress.epoch, time.monotonic()
            metrics: Metrics = {"epoch": epoch}
            metrics |= _prefixed("training", self._train_epoch(began))
            metrics |= _prefixed("validation", self._evaluate(self.dev))
            better = self.tracker.add(self._validation_value(metrics), epoch)
            self.schedule.after_epoch(metrics[f"validation_{self.tracker.name}"])
            self.progress.history.append(metrics)
            self.progress.epoch, self.progress.step = epoch + 1, 0
            self._save(began, better)
            self.run_folder.log_epochs(self.progress.history)
            self.accelerator.log(metrics, step=epoch)
            logger.info("%s", _log_line(metrics, better, time.monotonic() - epoch_began))
            if on_epoch is not None:
                on_epoch(metrics)
        assert self.progress.best_checkpoint is not None
        self._load(self.progress.best_checkpoint)
        self.accelerator.unwrap_model(self.module, keep_fp32_wrapper=False)
        return self._summary()

    def _train_epoch(self, began: float) -> Metrics:
        """Trains on every document once; metrics of the epoch, as they were at each step."""
        if self.progress.step == 0:
            self.train_logits.zero_()
        steps = self._steps(self.progress.epoch)
        size = self.options.num_gradient_accumulation_steps
        self.module.train()
        with tqdm(
            total=len(steps),
            initial=self.progress.step,
            desc=f"epoch {self.progress.epoch}",
            disable=None if self.accelerator.is_main_process else True,
            leave=False,
        ) as bar:
            shown = _Shown(bar)
            while self.progress.step < len(steps):
                group = steps[self.progress.step : self.progress.step + size]
                shown.add(self._optimizer_step(group), len(group))
                before = self.progress.step
                self.progress.step += len(group)
                if self._checkpoint_is_due(before, len(steps)):
                    self._save(began)
        for each in self.model.buffers():  # as batch normalization has them
            each.copy_(broadcast(each))
        logits = self.accelerator.reduce(self.train_logits, "sum")
        metrics = _metrics(logits, self.train)
        if not math.isfinite(metrics["loss"]):
            raise UserError(
                f"training diverged: the loss of epoch {self.progress.epoch} is {metrics['loss']}; "
                "lower the learning rate (trainer.optimizer.lr) or clip gradients "
                "(trainer.grad_norm)"
            )
        return metrics

    def _optimizer_step(self, group: list[list[Integers]]) -> list[tuple[Tensor, Tensor]]:
        """One step of the optimizer on the batches of `group`; this process's logits and labels."""
        size = sum(len(numbers) for batches in group for numbers in batches)
        # gradients are averaged over processes, losses are not
        scale = self.accelerator.num_processes / (
            size if self.options.loss_reduction == "mean" else 1
        )
        results = []
        for position, batches in enumerate(group):
            last = position == len(group) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.module):
                numbers = batches[self.accelerator.process_index]
                logits, labels = self._forward(numbers)
                loss = functional.cross_entropy(logits, labels, reduction="sum")
                self.accelerator.backward(loss * scale)
            self.train_logits[torch.from_numpy(numbers)] = logits.detach()
            results.append((logits.detach(), labels))
        if self.options.grad_norm is not None:
            self.accelerator.clip_grad_norm_(self._trained(), self.options.grad_norm)
        if self.options.grad_clipping is not None:
            self.accelerator.clip_grad_value_(self._trained(), self.options.grad_clipping)
        self.optimizer.step()
        if not self.accelerator.optimizer_step_was_skipped:
            self.schedule.after_step()
        self.optimizer.zero_grad()
        return results

    def _forward(self, numbers: Integers) -> tuple[Tensor, Tensor]:
        """Logits `[batch, labels]` in float32 or more, and labels `[batch]`."""
        batch = self.model.make_batch(self.train, numbers)
        device = self.accelerator.device
        batch = {name: each.to(device, non_blocking=True) for name, each in batch.items()}
        labels = batch.pop("labels")
        logits = self.module(**batch).logits
        return logits.to(self.train_logits.dtype), labels

    def _evaluate(self, documents: Documents) -> Metrics:
        """Metrics over exactly these documents: each is some one process's."""
        batches = list(self.model.evaluation_batches(documents))
        mine = batches[self.accelerator.process_index :: self.accelerator.num_processes]
        logits = self.accelerator.reduce(self.model.logits(documents, iter(mine)), "sum")
        return _metrics(logits, documents)

    def _validation_value(self, metrics: Metrics) -> float:
        value: float = metrics[f"validation_{self.tracker.name}"]
        if not math.isfinite(value):
            raise UserError(
                f"training diverged: {self.tracker.name} on dev is {value} after epoch "
                f"{metrics['epoch']}; lower the learning rate (trainer.optimizer.lr)"
            )
        return value

    def _steps(self, epoch: int) -> list[list[Integers]]:
        return training_batches(
            self.train.lengths,
            self.options.batch_size,
            self.seed,
            epoch,
            self.accelerator.num_processes,
            self.options.batches_by_length,
        )

    def _make_optimizer(self) -> torch.optim.Optimizer:
        groups: list[dict[str, Any]] = [{"params": []}]
        embedder = {id(each) for each in self.model.embedder.parameters()}
        if self.options.embedder_lr is not None:
            groups.append({"params": [], "lr": self.options.embedder_lr})
        for each in self._trained():
            groups[-1 if id(each) in embedder else 0]["params"].append(each)
        optimizer: Any = self.options.optimizer.construct(params=groups)
        return optimizer  # type: ignore[no-any-return]

    def _trained(self) -> Iterator[torch.nn.Parameter]:
        return (each for each in self.model.parameters() if each.requires_grad)

    def _checkpoint_is_due(self, before: int, steps: int) -> bool:
        every, now = self.options.checkpoint_every, self.progress.step
        return every is not None and now < steps and now // every > before // every

    def _save(self, began: float, is_best: bool = False) -> None:
        """Writes a checkpoint; every process takes part, the first one writes."""
        self.progress.seconds = time.monotonic() - began
        name = checkpoint_name(self.progress.epoch, self.progress.step)
        if is_best:
            self.progress.best_checkpoint = name
        scaler = self.accelerator.scaler
        state = {
            "progress": asdict(self.progress),
            "tracker": asdict(self.tracker),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": scaler.state_dict() if scaler is not None else {},
            "train_logits": self.accelerator.reduce(self.train_logits, "sum").cpu(),
            "random": random_states(),
            "identity": self._identity(),
        }
        if self.accelerator.is_main_process:
            self.checkpoints.save(name, self.model, state, self.progress.best_checkpoint)
        self.accelerator.wait_for_everyone()

    def _recover(self) -> None:
        """Goes on from the last checkpoint, if the run came so far as to have one."""
        name = self._from_main(self.checkpoints.last)
        if name is None:
            logger.info("no checkpoint yet: beginning from the start")
            return
        state = self._load(name)
        changed = [key for key, each in self._identity().items() if state["identity"][key] != each]
        if changed:
            raise UserError(
                f"{self.run_folder.path}: cannot be recovered as it was: since then the "
                f"{' and the '.join(changed)} changed; begin anew with --force"
            )
        self.progress = Progress(**state["progress"])
        self.tracker = MetricTracker(**state["tracker"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        if self.accelerator.is_main_process:  # the sum over the processes
            self.train_logits.copy_(state["train_logits"])
        set_random_state(state["random"][self.accelerator.process_index])
        logger.info("recovered: epoch %d, step %d", self.progress.epoch, self.progress.step)

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a run to go on as if it had not stopped."""
        if not hasattr(self, "_fingerprints"):
            frozen = [each for each in self.model.parameters() if not each.requires_grad]
            data = [each for split in (self.train, self.dev) for each in (split.ids, split.labels)]
            self._fingerprints = {
                "data": _fingerprint(data),
                "frozen weights": _fingerprint(
                    each.detach().cpu().contiguous().view(torch.uint8).numpy() for each in frozen
                ),
            }
        return {**self._fingerprints, "number of processes": self.accelerator.num_processes}

    def _load(self, name: str) -> dict[str, Any]:
        """Puts the weights of a checkpoint into every process's model; the state beside them."""
        state: dict[str, Any] = self._from_main(lambda: self.checkpoints.load(name, self.model))
        for each in changing_weights(self.model).values():
            each.copy_(broadcast(each))
        return state

    def _from_main(self, read: Callable[[], Any]) -> Any:
        """What the first process reads: the others may see no such file."""
        found = [read() if self.accelerator.is_main_process else None]
        return broadcast_object_list(found)[0]

    def _summary(self) -> Metrics:
        history, best = self.progress.history, self.tracker.best_epoch
        assert best is not None
        best_metrics = {
            f"best_{key}": value
            for key, value in history[best].items()
            if key.startswith("validation_")
        }
        return {
            "best_epoch": best,
            "training_epochs": len(history),
            "training_duration": str(timedelta(seconds=self.progress.seconds)),
            **history[-1],
            **best_metrics,
        }


class _Shown:
    """Running loss and accuracy of this process on the progress bar."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar
        self.loss = self.correct = self.count = 0.0
        self.shown_at = 0.0

    def add(self, results: list[tuple[Tensor, Tensor]], steps: int) -> None:
        if self.bar.disable:
            return
        for logits, labels in results:
            self.loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
            self.correct += float((logits.argmax(dim=1) == labels).sum())
            self.count += len(labels)
        if self.count:
            self.bar.set_postfix(
                loss=f"{self.loss / self.count:.3f}",
                accuracy=f"{self.correct / self.count:.3f}",
                refresh=False,
            )
        self.bar.update(steps)


def _metrics(logits: Tensor, documents: Documents) -> Metrics:
    assert documents.labels is not None
    log_probabilities = logits.double().log_softmax(dim=1).cpu().numpy()
    return classification_metrics(log_probabilities, documents.labels)


def _prefixed(prefix: str, metrics: Metrics) -> Metrics:
    return {f"{prefix}_{name}": value for name, value in metrics.items()}


def _log_line(metrics: Metrics, better: bool, seconds: float) -> str:
    splits = ", ".join(
        f"{split} loss {metrics[f'{split}_loss']:.4f} accuracy {metrics[f'{split}_accuracy']:.4f}"
        for split in ("training", "validation")
    )
    return f"epoch {metrics['epoch']}: {splits}, {seconds:.2f} s{', best so far' if better else ''}"


def _fingerprint(arrays: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for each in arrays:
        digest.update(np.ascontiguousarray(each).data)
    return digest.hexdigest()


def _flat(config: Any, path: str = "") -> dict[str, Any]:
    """A nested config as trackers take it: dotted paths, plain values."""
    if not isinstance(config, dict):
        plain = isinstance(config, int | float | str | bool)
        return {path: config if plain else str(config)}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{path}.{key}" if path else str(key))
    return flat
