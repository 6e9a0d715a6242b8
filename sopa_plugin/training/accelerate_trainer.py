"""The trainer of everything that learns by gradient, on one processor or many."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers.utils.generic import flatten_dict

from sopa_plugin.data.batches import Documents, Integers, evaluation_batches, training_batches
from sopa_plugin.errors import TrainingFailed, UserError, listed
from sopa_plugin.models import Model, NeuralModel
from sopa_plugin.registry import Lazy, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from sopa_plugin.training import state_lasso
from sopa_plugin.training.captured_step import CapturedStep, reason_against
from sopa_plugin.training.checkpoints import Progress, TrainingState
from sopa_plugin.training.metrics import (
    EpochMetric,
    Metrics,
    MetricTracker,
    split_metrics,
    training_summary,
)
from sopa_plugin.training.processes import by_first, embed_once
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.schedules import (
    Optimizer,
    Schedule,
    Scheduler,
    gradients_of,
    make_optimizer,
    row_modules,
)
from sopa_plugin.training.trainer import Trainer

if TYPE_CHECKING:
    from accelerate import Accelerator
    from datasets import DatasetDict

    from sopa_plugin.models import TextClassifier

Tracker = Literal[
    "aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "tensorboard", "trackio", "wandb"
]

LONGEST_SILENCE = 30.0  # seconds of training without a line in the log
logger = logging.getLogger(__name__)


@Trainer.register("accelerate")
@dataclass(eq=False)
class AccelerateTrainer(Trainer):
    """Gradient descent with early stopping, by Hugging Face Accelerate.

    Registered as `accelerate`. The paper's protocol (section 5) is the default but for the number
    of epochs: Adam, batches of 150, stopping after 30 epochs without a better dev loss.

    Arguments:
        batch_size: documents a process and step.
        num_epochs: most epochs to train; 0 leaves a model as it began, with rules say, and needs
            no labels.
        patience: epochs without a new best after which to stop; null never stops.
        validation_metric: what is best on dev: `-loss`, `+accuracy` or `+macro_f1`; `+epoch` takes
            the last epoch, whatever dev says.
        optimizer: a torch optimizer by name, with torch's arguments.
        learning_rate_scheduler: a scheduler by name; null keeps the learning rate.
        embedder_lr: learning rate of the embedder, where it is to differ (a transformer's).
        embedder_pull: how strongly what is trained of the embedder is pulled towards what it began
            as: by this share of its learning rate for each step, all at the end of an epoch, so
            that of what a rare word has learned less is kept than of what a frequent one has.
        class_weights: of the training loss: by class name (1 for those left out), or `balanced`,
            in inverse proportion to how often a class occurs. Metrics are never weighted.
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
        anchor: how strongly a model with rules is held to what it began as: the loss, summed over
            the training texts, has this times half the squared distance of their patterns' weights
            and of the head from there. So it tells much beside few texts and little beside many.
        state_lasso: how much the sum of the weights' norms of patterns' states counts beside the
            mean loss. After training, states of next to no weight are taken from the best model,
            and patterns that have no other; what is left is trained once more without this, for as
            many epochs and with the same patience. See `sopa_plugin.training.state_lasso`.
        cuda_graphs: whether a step on a GPU is launched as one CUDA graph, where that can be (see
            `sopa_plugin.training.captured_step`); the log of a run says where not, and why.
        checkpoint_every: write a checkpoint after so many batches too, not only after each epoch.
        trackers: where else to log: `tensorboard`, `wandb`, ... (Accelerate's trackers).
    """

    trains: ClassVar[type[Model]] = NeuralModel
    takes_documents: ClassVar[bool] = True

    batch_size: PositiveInt = 150
    num_epochs: NonNegativeInt = 50
    patience: PositiveInt | None = 30
    validation_metric: EpochMetric = "-loss"
    optimizer: Lazy[Optimizer] = Lazy(Optimizer, "adam")  # noqa: RUF009
    learning_rate_scheduler: Lazy[Scheduler] | None = None
    embedder_lr: PositiveFloat | None = None
    embedder_pull: NonNegativeFloat = 0.0
    class_weights: Literal["balanced"] | dict[str, PositiveFloat] | None = None
    loss_reduction: Literal["mean", "sum"] = "mean"
    grad_norm: PositiveFloat | None = None
    grad_clipping: PositiveFloat | None = None
    num_gradient_accumulation_steps: PositiveInt = 1
    mixed_precision: Literal["no", "fp16", "bf16"] | None = None
    batches_by_length: bool = True
    cache_embedder: bool = True
    anchor: NonNegativeFloat = 0.0
    state_lasso: NonNegativeFloat = 0.0
    cuda_graphs: bool = True
    checkpoint_every: PositiveInt | None = None
    trackers: Sequence[Tracker] = ()
    accelerator: Accelerator = field(init=False)

    @property
    def needs_labels(self) -> bool:
        return self.num_epochs > 0

    @classmethod
    def may_change(cls, params: Mapping[str, Any]) -> frozenset[str]:
        """All that leaves the epochs before as they were."""
        scheduler = params["learning_rate_scheduler"]
        fixed = scheduler is not None and Schedule.needs_total_steps(scheduler)
        return frozenset(
            {"patience", "trackers", "cuda_graphs"} | (set() if fixed else {"num_epochs"})
        )

    def set_up(self, model: Model, run: RunFolder) -> None:
        """Makes the `Accelerator`, which finds the devices and the other processes."""
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
        from accelerate.utils import GradientAccumulationPlugin

        classifier = cast("TextClassifier", model)
        weights = self.class_weights if isinstance(self.class_weights, dict) else {}
        if unknown := sorted(weights.keys() - set(model.labels)):
            raise UserError(
                f"trainer.class_weights.{unknown[0]}: not a class of the data, which has "
                f"{listed(model.labels)}"
            )
        if self.anchor and not classifier.started():
            raise UserError(
                "trainer.anchor: this model has no rules to hold to; leave it out, or name some "
                "(model.rules)"
            )
        if self.state_lasso and (reason := state_lasso.reason_against(classifier)):
            raise UserError(f"trainer.state_lasso: {reason}")
        frozen = not any(each.requires_grad for each in classifier.embedder.parameters())
        for key, given in (("lr", self.embedder_lr), ("pull", self.embedder_pull)):
            if given and frozen:
                raise UserError(
                    f"trainer.embedder_{key}: the embedder is frozen and has no learning rate; "
                    "leave it out, or train the embedder (model.embedder.trainable: true)"
                )
        try:  # what refuses its arguments, before a run is begun or another replaced
            optimizer = make_optimizer(self.optimizer, classifier, self.embedder_lr)
        except RuntimeError as error:  # of options that rule one another out
            raise UserError(f"trainer.optimizer: {error}") from error
        Schedule(self.learning_rate_scheduler, optimizer, self.num_epochs, larger_is_better=True)
        # a run before, in the same process, may have had another precision
        AcceleratorState._reset_state()
        try:
            self.accelerator = Accelerator(
                mixed_precision=self.mixed_precision,
                # the loop accumulates by itself, whatever the environment says
                gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
                log_with=list(self.trackers) or None,
                project_dir=str(run.path),
            )
        except (ValueError, ImportError) as error:
            raise UserError(f"trainer: {error}") from error
        found = [str(getattr(each, "value", each)) for each in self.accelerator.log_with]
        for name in self.trackers:
            if name not in found:
                raise UserError(
                    f"trainer.trackers: '{name}' needs its package installed (pip install {name})"
                )

    def train(self, model: Model, data: DatasetDict, run: RunFolder, seed: int) -> Metrics:
        """Trains `model` and leaves the best epoch's weights in it (see `Trainer.train`)."""
        from accelerate.utils import set_seed

        state = self._begin(cast("TextClassifier", model), data, run, seed)
        flat = flatten_dict(run.config)
        plain = {
            key: each if isinstance(each, int | float) else str(each) for key, each in flat.items()
        }
        self.accelerator.init_trackers("tracking", config=plain)
        set_seed(seed, device_specific=True)
        if run.before is not None:
            state.recover()
            run.log_epochs(state.progress.history)
        began = time.monotonic() - state.progress.seconds
        try:
            self._train_epochs(state, began)
            if self.state_lasso and self.num_epochs and state.progress.patterns is None:
                state = self._pruned(state)
                self._train_epochs(state, began)
        except KeyboardInterrupt:
            # several processes are not all stopped at the same place
            if state.progress.best_checkpoint is not None and self.accelerator.num_processes == 1:
                self._keep_best(state)
            raise
        progress = state.progress
        if progress.best_checkpoint is not None:
            state.load_best_weights()
        self.accelerator.unwrap_model(state.module, keep_fp32_wrapper=False)
        for module in row_modules(state.model):
            module.sparse = False
        if self.accelerator.is_main_process:  # which saves the model
            state.model.take_means_of(state.train)
        for each in self.accelerator.trackers:
            each.finish()
        left = {} if progress.patterns is None else {"patterns_left": progress.patterns}
        return {
            **training_summary(progress.history, state.tracker.best_epoch, progress.seconds),
            **left,
        }

    def log_probabilities(
        self, model: Model, texts: Sequence[str] | Documents
    ) -> NDArray[np.floating]:
        """Log-probabilities `[texts, labels]`, the work shared out among the processes."""
        classifier = cast("TextClassifier", model)
        return self._log_probabilities(classifier, classifier.encode_texts(texts))

    def _train_epochs(self, state: TrainingState, began: float) -> None:
        """Epochs until they are enough, each with its checkpoint."""
        progress, tracker, said = state.progress, state.tracker, time.monotonic()
        state.class_weights = self._weights(state)
        captured = self._captured(state)
        end = progress.refitted_from + self.num_epochs
        while progress.epoch < end and not tracker.should_stop:
            epoch, epoch_began = progress.epoch, time.monotonic()
            metrics = {"epoch": epoch, **self._train_epoch(state, captured, began)}
            metrics |= self._evaluate(state)
            validation = tracker.value(metrics)
            better = tracker.add(validation, epoch)
            state.schedule.after_epoch(validation)
            progress.end_epoch(metrics)
            state.save(time.monotonic() - began, better)
            self.accelerator.log(metrics, step=epoch)
            is_last = progress.epoch >= end or tracker.should_stop
            if is_last or _is_round(progress.epoch) or time.monotonic() - said > LONGEST_SILENCE:
                said = time.monotonic()
                logger.info("%s", _log_line(metrics, tracker, said - epoch_began))
            state.run.end_epoch(progress.history)

    def _keep_best(self, state: TrainingState) -> None:
        """Saves the best model so far, of a run that is stopped."""
        state.load_best_weights()
        self.accelerator.unwrap_model(state.module, keep_fp32_wrapper=False)
        state.model.to_device("cpu")
        state.run.keep(state.model)
        logger.warning(
            "stopped: the best model so far, of epoch %s, is saved in %s and may be used; go on "
            "with the same command and --recover",
            state.tracker.best_epoch,
            state.run.path,
        )

    def _begin(
        self, model: TextClassifier, data: DatasetDict, run: RunFolder, seed: int
    ) -> TrainingState:
        """Everything that the loop needs, as it is before the first epoch."""
        accelerator = self.accelerator
        model.to_device(str(accelerator.device))
        train, dev = (
            self.documents.get(split) or model.encode_texts(each["text"], each["label"])
            for split, each in ((split, data[split]) for split in ("train", "dev"))
        )
        if len(train) < accelerator.num_processes:
            raise UserError(
                f"{len(train)} training documents are too few for "
                f"{accelerator.num_processes} processes"
            )
        assert train.labels is not None
        model.set_class_prior(train.labels)
        if self.state_lasso and run.before is not None:
            patterns = by_first(lambda: TrainingState.patterns_left(run))
            if patterns is not None:
                state_lasso.set_patterns(model, patterns)
        state = self._prepared(model, run, train, dev, seed)
        state.starts = [
            (parameter, torch.where(own, parameter, 0).detach(), own)
            for parameter, own in model.started()
        ]
        if self.embedder_pull:
            state.embedder_start = [
                (each, each.detach().clone())
                for each in model.embedder.parameters()
                if each.requires_grad
            ]
        frozen = not any(each.requires_grad for each in model.embedder.parameters())
        if self.cache_embedder and model.embedder.contextual and frozen:
            state.train = embed_once(model, train, run.cache / "train", accelerator)
            state.dev = embed_once(model, dev, run.cache / "dev", accelerator)
        return state

    def _prepared(
        self, model: TextClassifier, run: RunFolder, train: Documents, dev: Documents, seed: int
    ) -> TrainingState:
        """The model with an optimizer, as before the first epoch."""
        accelerator = self.accelerator
        # of several processes only gloo can add them up
        sparse = accelerator.num_processes == 1 or torch.distributed.get_backend() == "gloo"
        for each in row_modules(model):
            each.sparse = sparse
        module, optimizer = accelerator.prepare(
            model, make_optimizer(self.optimizer, model, self.embedder_lr)
        )
        tracker = MetricTracker(self.validation_metric, self.patience)
        steps = math.ceil(
            len(self._steps(train, seed, epoch=0)) / self.num_gradient_accumulation_steps
        )
        schedule = Schedule(
            self.learning_rate_scheduler,
            optimizer.optimizer,
            total_steps=max(steps * self.num_epochs, 1),
            larger_is_better=tracker.larger_is_better,
        )
        return TrainingState(
            run, accelerator, model, module, optimizer, schedule, tracker, train, dev, seed
        )

    def _pruned(self, before: TrainingState) -> TrainingState:
        """What trains the best model on, from which states of next to no weight are taken."""
        model, progress = before.model, before.progress
        before.load_best_weights()
        self.accelerator.unwrap_model(before.module, keep_fp32_wrapper=False)
        self.accelerator.free_memory()
        states = state_lasso.prune(model, before.train)
        state = self._prepared(model, before.run, before.train, before.dev, before.seed)
        state.embedder_start = before.embedder_start
        state.progress = Progress(
            progress.epoch,
            seconds=progress.seconds,
            history=progress.history,
            patterns=model.config.encoder["patterns"],
            refitted_from=progress.epoch,
        )
        logger.info(
            "%d of %d states are left, numbers of patterns by states: %s; validation loss %.4f, "
            "%.4f before the others were taken out",
            *states,
            state.progress.patterns,
            self._evaluate(state)["validation_loss"],
            progress.history[before.tracker.best_epoch or 0]["validation_loss"],
        )
        return state

    def _captured(self, state: TrainingState) -> CapturedStep | None:
        """The step as CUDA graphs, where it can be; on a GPU, the log says whether, and why not."""
        device = self.accelerator.device
        lasso = self.state_lasso > 0 and state.progress.patterns is None
        own = {
            "as configured": not self.cuda_graphs,
            "gradients are accumulated over batches": self.num_gradient_accumulation_steps > 1,
            "state_lasso sums up states by lists": lasso,
        }
        reason = reason_against(state, device, own)
        if device.type == "cuda":
            kind = "one CUDA graph" if reason is None else f"not one CUDA graph: {reason}"
            logger.info("each training step is %s", kind)
        if reason is not None:
            return None

        def learn(logits: Tensor, labels: Tensor) -> None:
            weights, reduction = state.class_weights, self.loss_reduction
            # mean: over the weights of those that have a label
            functional.cross_entropy(logits, labels, weights, reduction=reduction).backward()
            self._clip(state.model)

        optimizer, count = state.optimizer.optimizer, min(self.batch_size, len(state.train))
        return CapturedStep(state.model, optimizer, state.train, count, learn)

    def _train_epoch(
        self, state: TrainingState, captured: CapturedStep | None, began: float
    ) -> Metrics:
        """Trains on every document once; metrics of their scores as they were at each step."""
        from accelerate.utils import broadcast

        progress, logits = state.progress, state.train_logits
        end = progress.refitted_from + self.num_epochs
        if progress.step == 0:
            logits.zero_()
        steps = self._steps(state.train, state.seed, progress.epoch)
        state.module.train()
        shown = time.monotonic()
        with tqdm(
            total=len(steps),
            initial=progress.step,
            desc=f"epoch {progress.epoch} of {end}{_best(state.tracker)}",
            disable=None if self.accelerator.is_main_process else True,  # None: without a terminal
            leave=False,
        ) as bar:
            while progress.step < len(steps):
                group = steps[progress.step :][: self.num_gradient_accumulation_steps]
                self._optimizer_step(state, captured, group)
                progress.step += len(group)
                if not bar.disable and time.monotonic() - shown > 1:  # a GPU is waited for
                    shown = time.monotonic()
                    bar.set_postfix(self._so_far(state, steps[: progress.step]), refresh=False)
                bar.update(len(group))
                every = self.checkpoint_every
                due = every is not None and progress.step % every < len(group)
                if due and progress.step < len(steps):
                    state.save(time.monotonic() - began)
        self._pull_embedder(state, math.ceil(len(steps) / self.num_gradient_accumulation_steps))
        for each in state.model.buffers():  # as batch normalization has them
            each.copy_(broadcast(each))
        log_probabilities = _log_softmax(self.accelerator.reduce(logits, "sum"))
        assert state.train.labels is not None
        metrics = split_metrics("training", log_probabilities, state.train.labels)
        if not math.isfinite(metrics["training_loss"]):
            raise TrainingFailed(
                f"training diverged: the loss of epoch {progress.epoch} is "
                f"{metrics['training_loss']}; lower the learning rate (trainer.optimizer.lr) or "
                "clip gradients (trainer.grad_norm)"
            )
        return metrics

    def _optimizer_step(
        self, state: TrainingState, captured: CapturedStep | None, group: list[list[Integers]]
    ) -> None:
        """One step of the optimizer on the batches of `group`."""
        numbers = np.concatenate([each for batches in group for each in batches])
        if captured is not None and captured.take(numbers, state.train_logits):
            state.schedule.after_step()
            return
        weights = state.class_weights
        size: float = len(numbers)
        if weights is not None:  # as torch has the mean: over the weights
            assert state.train.labels is not None
            size = float(weights[torch.from_numpy(state.train.labels[numbers])].sum())
        # gradients are averaged over processes, losses are not
        scale = self.accelerator.num_processes / (size if self.loss_reduction == "mean" else 1)
        device = self.accelerator.device
        for position, batches in enumerate(group):
            last = position == len(group) - 1
            with nullcontext() if last else self.accelerator.no_sync(state.module):
                numbers = batches[self.accelerator.process_index]
                batch = state.model.make_batch(state.train, numbers)
                batch = {name: each.to(device, non_blocking=True) for name, each in batch.items()}
                labels = batch.pop("labels")
                logits = state.module(**batch).logits.to(state.train_logits.dtype)
                loss = functional.cross_entropy(logits, labels, weights, reduction="sum")
                objective, share = loss * scale, 1 if self.loss_reduction == "mean" else size
                if last and self.anchor:
                    objective = objective + self._anchored(state) * (share / len(state.train))
                if last and self.state_lasso and state.progress.patterns is None:
                    of_states = state_lasso.penalty(state.model)
                    objective = objective + of_states * (share * self.state_lasso)
                self.accelerator.backward(objective)
            state.train_logits[torch.from_numpy(numbers)] = logits.detach()
        self._clip(state.model)
        state.optimizer.step()
        if not self.accelerator.optimizer_step_was_skipped:
            self._decay_to_start(state)
            state.schedule.after_step()
        state.optimizer.zero_grad()

    def _so_far(self, state: TrainingState, steps: list[list[Integers]]) -> dict[str, str]:
        """Loss and accuracy of some of an epoch's steps, of this process's documents."""
        assert state.train.labels is not None
        numbers = np.concatenate([each[self.accelerator.process_index] for each in steps])
        logits = state.train_logits[torch.from_numpy(numbers)]
        labels = torch.from_numpy(state.train.labels[numbers]).to(logits.device)
        loss = functional.cross_entropy(logits, labels)
        correct = (logits.argmax(dim=1) == labels).float().mean()
        return {"loss": f"{loss:.3f}", "accuracy": f"{correct:.3f}"}

    def _anchored(self, state: TrainingState) -> Tensor:
        """What the distance of a model with rules from its start adds to the loss of all texts."""
        far = [
            torch.where(own, parameter - start, 0).square().sum()
            for parameter, start, own in state.starts
        ]
        return torch.stack(far).sum() * (self.anchor / 2)

    @torch.no_grad()
    def _decay_to_start(self, state: TrainingState) -> None:
        """Gives back what weight decay apart from gradients took of the start of rules.

        So it brings their patterns nearer to what they began as, instead of to nothing.
        """
        group = state.optimizer.param_groups[0]
        if group.get("decoupled_weight_decay"):
            for parameter, start, _ in state.starts:
                parameter.add_(start, alpha=group["lr"] * group["weight_decay"])

    @torch.no_grad()
    def _pull_embedder(self, state: TrainingState, steps: int) -> None:
        """Brings the embedder nearer to its start, for so many steps at once."""
        share = min(self.embedder_pull * state.optimizer.param_groups[-1]["lr"], 1.0)
        for parameter, start in state.embedder_start:
            parameter.lerp_(start, 1 - (1 - share) ** steps)

    def _weights(self, state: TrainingState) -> Tensor | None:
        """Weights of the classes, `[labels]`."""
        if self.class_weights is None or not self.num_epochs:
            return None
        names = state.model.labels
        if self.class_weights == "balanced":
            assert state.train.labels is not None
            counts = np.bincount(state.train.labels, minlength=len(names))
            # as scikit-learn has it; a class without examples has no say
            weights = len(state.train) / (len(names) * np.maximum(counts, 1))
        else:
            weights = np.array([self.class_weights.get(name, 1.0) for name in names])
        return torch.from_numpy(weights).to(state.train_logits)

    def _clip(self, model: TextClassifier) -> None:
        if self.grad_norm is None and self.grad_clipping is None:
            return
        # once: Accelerate's own clip_grad_* unscale each, and torch refuses the second
        self.accelerator.unscale_gradients()
        gradients = list(gradients_of(model))
        if self.grad_norm is not None:
            norm = torch.nn.utils.get_total_norm(gradients)
            torch._foreach_mul_(gradients, (self.grad_norm / (norm + 1e-6)).clamp(max=1))
        if self.grad_clipping is not None:
            torch._foreach_clamp_min_(gradients, -self.grad_clipping)
            torch._foreach_clamp_max_(gradients, self.grad_clipping)

    def _evaluate(self, state: TrainingState) -> Metrics:
        """Metrics of the dev set."""
        assert state.dev.labels is not None
        log_probabilities = self._log_probabilities(state.model, state.dev)
        metrics = split_metrics("validation", log_probabilities, state.dev.labels)
        loss = metrics["validation_loss"]
        if not math.isfinite(loss):
            raise TrainingFailed(
                f"training diverged: the loss on dev is {loss} after epoch "
                f"{state.progress.epoch}; lower the learning rate (trainer.optimizer.lr)"
            )
        return metrics

    def _log_probabilities(
        self, model: TextClassifier, documents: Documents
    ) -> NDArray[np.floating]:
        """Log-probabilities `[documents, labels]`, each document's computed by some one process."""
        batches = list(evaluation_batches(documents.lengths))
        mine = batches[self.accelerator.process_index :: self.accelerator.num_processes]
        return _log_softmax(self.accelerator.reduce(model.logits(documents, iter(mine)), "sum"))

    def _steps(self, train: Documents, seed: int, epoch: int) -> list[list[Integers]]:
        return training_batches(
            train.lengths,
            self.batch_size,
            seed,
            epoch,
            self.accelerator.num_processes,
            self.batches_by_length,
        )


def _log_softmax(logits: Tensor) -> NDArray[np.floating]:
    return logits.cpu().double().log_softmax(dim=1).numpy()  # type: ignore[no-any-return]


def _is_round(number: int) -> bool:
    """Whether only the first digit is not 0: 1, 2, ..., 10, 20, ..., 100, 200, ..."""
    return not str(number)[1:].strip("0")


def _best(tracker: MetricTracker) -> str:
    if tracker.best is None:
        return ""
    return f", best {tracker.name} {tracker.best:.4f} (epoch {tracker.best_epoch})"


def _log_line(metrics: Metrics, tracker: MetricTracker, seconds: float) -> str:
    splits = ", ".join(
        f"{split} loss {metrics[f'{split}_loss']:.4f} accuracy {metrics[f'{split}_accuracy']:.4f}"
        for split in ("training", "validation")
    )
    return f"epoch {metrics['epoch']}: {splits}{_best(tracker)}, {seconds:.2f} s"
