"""The training loop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, set_seed
from torch import Tensor
from torch.nn import functional

from sopa_plugin.data.batches import Documents, Integers, training_batches
from sopa_plugin.errors import TrainingFailed, UserError
from sopa_plugin.models import TextClassifier
from sopa_plugin.training.evaluation import evaluate_split, shared_log_probabilities
from sopa_plugin.training.metric_tracker import MetricTracker
from sopa_plugin.training.metrics import training_summary
from sopa_plugin.training.progress_bar import EpochBar
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.schedulers import Schedule
from sopa_plugin.training.trainer import Metrics, OnEpoch
from sopa_plugin.training.training_state import TrainingState

if TYPE_CHECKING:
    from sopa_plugin.training.accelerate_trainer import AccelerateTrainer

logger = logging.getLogger(__name__)


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
        self.options, self.accelerator, self.model = options, accelerator, model
        self.run_folder, self.seed, self.train, self.dev = run, seed, train, dev
        if len(train) < accelerator.num_processes:
            raise UserError(
                f"{len(train)} training documents are too few for "
                f"{accelerator.num_processes} processes"
            )
        tracker = MetricTracker(options.validation_metric, options.patience)
        self.module, self.optimizer = accelerator.prepare(model, self._make_optimizer())
        steps = math.ceil(len(self._steps(0)) / options.num_gradient_accumulation_steps)
        self.schedule = Schedule(
            options.learning_rate_scheduler,
            self.optimizer.optimizer,
            total_steps=steps * options.num_epochs,
            larger_is_better=tracker.larger_is_better,
        )
        self.state = TrainingState(
            run, accelerator, model, self.optimizer, self.schedule, tracker, train, dev
        )

    def run(self, on_epoch: OnEpoch | None = None) -> Metrics:
        """Trains to the end and puts the best weights into the model; the metrics of the run."""
        set_seed(self.seed, device_specific=True)
        if self.run_folder.recovering:
            self.state.recover()
            self.run_folder.log_epochs(self.state.progress.history)
        progress, tracker = self.state.progress, self.state.tracker
        began = time.monotonic() - progress.seconds
        while progress.epoch < self.options.num_epochs and not tracker.should_stop:
            epoch, epoch_began = progress.epoch, time.monotonic()
            metrics = {"epoch": epoch, **self._train_epoch(began), **self._evaluate()}
            validation = metrics[f"validation_{tracker.name}"]
            better = tracker.add(validation, epoch)
            self.schedule.after_epoch(validation)
            progress.end_epoch(metrics)
            self.state.save(time.monotonic() - began, better)
            self.run_folder.log_epochs(progress.history)
            self.accelerator.log(metrics, step=epoch)
            logger.info("%s", _log_line(metrics, better, time.monotonic() - epoch_began))
            if on_epoch is not None:
                on_epoch(metrics)
        self.state.load_best_weights()
        self.accelerator.unwrap_model(self.module, keep_fp32_wrapper=False)
        assert tracker.best_epoch is not None
        return training_summary(progress.history, tracker.best_epoch, progress.seconds)

    def _train_epoch(self, began: float) -> Metrics:
        """Trains on every document once; metrics of their scores as they were at each step."""
        progress, logits = self.state.progress, self.state.train_logits
        if progress.step == 0:
            logits.zero_()
        steps = self._steps(progress.epoch)
        size = self.options.num_gradient_accumulation_steps
        self.module.train()
        hidden = not self.accelerator.is_main_process
        with EpochBar(progress.epoch, len(steps), progress.step, hidden) as bar:
            while progress.step < len(steps):
                group = steps[progress.step : progress.step + size]
                bar.add(self._optimizer_step(group), len(group))
                before = progress.step
                progress.step += len(group)
                if self._checkpoint_is_due(before, len(steps)):
                    self.state.save(time.monotonic() - began)
        for each in self.model.buffers():  # as batch normalization has them
            each.copy_(broadcast(each))
        logits = self.accelerator.reduce(logits, "sum")
        log_probabilities = logits.cpu().double().log_softmax(dim=1).numpy()
        assert self.train.labels is not None
        metrics = evaluate_split("training", log_probabilities, self.train.labels)
        if not math.isfinite(metrics["training_loss"]):
            raise TrainingFailed(
                f"training diverged: the loss of epoch {progress.epoch} is "
                f"{metrics['training_loss']}; lower the learning rate (trainer.optimizer.lr) or "
                "clip gradients (trainer.grad_norm)"
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
            self.state.train_logits[torch.from_numpy(numbers)] = logits.detach()
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
        return logits.to(self.state.train_logits.dtype), labels

    def _evaluate(self) -> Metrics:
        """Metrics of the dev set."""
        log_probabilities = shared_log_probabilities(self.model, self.dev, self.accelerator)
        assert self.dev.labels is not None
        metrics = evaluate_split("validation", log_probabilities, self.dev.labels)
        loss = metrics["validation_loss"]
        if not math.isfinite(loss):
            raise TrainingFailed(
                f"training diverged: the loss on dev is {loss} after epoch "
                f"{self.state.progress.epoch}; lower the learning rate (trainer.optimizer.lr)"
            )
        return metrics

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
        every, now = self.options.checkpoint_every, self.state.progress.step
        return every is not None and now < steps and now // every > before // every


def _log_line(metrics: Metrics, better: bool, seconds: float) -> str:
    splits = ", ".join(
        f"{split} loss {metrics[f'{split}_loss']:.4f} accuracy {metrics[f'{split}_accuracy']:.4f}"
        for split in ("training", "validation")
    )
    return f"epoch {metrics['epoch']}: {splits}, {seconds:.2f} s{', best so far' if better else ''}"
