"""What training changes, and how a run that stopped goes on from it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import broadcast, broadcast_object_list
from numpy.typing import NDArray

from sopa_plugin.data.batches import Documents
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
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.schedulers import Schedule
from sopa_plugin.training.trainer import Metrics

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

    def end_epoch(self, metrics: Metrics) -> None:
        """Goes to the beginning of the next epoch."""
        self.history.append(metrics)
        self.epoch, self.step = self.epoch + 1, 0


class TrainingState:
    """Everything that training changes; `save` keeps it in a checkpoint, `recover` brings it back.

    Every process has one and takes part in each call; files are read and written by the first.

    Arguments:
        run: the folder of the run.
        accelerator: of the run.
        model: that is trained, on the accelerator's device.
        optimizer: of the model, prepared by the accelerator.
        schedule: of its learning rates.
        tracker: of the dev set's metric.
        train, dev: the documents.

    Attributes:
        progress: how far the run has come.
        train_logits: scores of the training documents, as they were when each was trained on, of
            this process alone; `[documents, labels]`.
    """

    def __init__(
        self,
        run: RunFolder,
        accelerator: Accelerator,
        model: TextClassifier,
        optimizer: AcceleratedOptimizer,
        schedule: Schedule,
        tracker: MetricTracker,
        train: Documents,
        dev: Documents,
    ) -> None:
        self.run_folder, self.accelerator, self.model = run, accelerator, model
        self.optimizer, self.schedule, self.tracker = optimizer, schedule, tracker
        self.progress = Progress()
        self.train_logits = torch.zeros(len(train), len(model.labels), device=model.device)
        self._checkpoints = Checkpoints(run.checkpoints)
        self._identity = {
            "data": _fingerprint(part for each in (train, dev) for part in (each.ids, each.labels)),
            "frozen weights": _fingerprint(
                each.detach().cpu().contiguous().view(torch.uint8).numpy()
                for each in model.parameters()
                if not each.requires_grad
            ),
            "number of processes": accelerator.num_processes,
        }

    def save(self, seconds: float, is_best: bool = False) -> None:
        """Writes a checkpoint.

        Arguments:
            seconds: spent on the run so far.
            is_best: whether an epoch has just ended, better than all before.
        """
        self.progress.seconds = seconds
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
            "identity": self._identity,
        }
        if self.accelerator.is_main_process:
            self._checkpoints.save(name, self.model, state, self.progress.best_checkpoint)
        self.accelerator.wait_for_everyone()

    def recover(self) -> None:
        """Goes back to the last checkpoint, if the run came so far as to have one.

        Raises `UserError` if something changed since that must not.
        """
        name = self._from_main(self._checkpoints.last)
        if name is None:
            logger.info("no checkpoint yet: beginning from the start")
            return
        state = self._load(name)
        changed = [key for key, each in self._identity.items() if state["identity"][key] != each]
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

    def load_best_weights(self) -> None:
        """Puts the weights of the best epoch into the model."""
        assert self.progress.best_checkpoint is not None
        self._load(self.progress.best_checkpoint)

    def _load(self, name: str) -> dict[str, Any]:
        """Puts the weights of a checkpoint into every process's model; the state beside them."""
        state: dict[str, Any] = self._from_main(lambda: self._checkpoints.load(name, self.model))
        for each in changing_weights(self.model).values():
            each.copy_(broadcast(each))
        return state

    def _from_main(self, read: Callable[[], Any]) -> Any:
        """What the first process reads: the others may see no such file."""
        found = [read() if self.accelerator.is_main_process else None]
        return broadcast_object_list(found)[0]


def _fingerprint(arrays: Iterable[NDArray | None]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for each in arrays:
        digest.update(np.ascontiguousarray(each).data)
    return digest.hexdigest()
