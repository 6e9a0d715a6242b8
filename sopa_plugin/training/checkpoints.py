"""Checkpoints: all that a run needs to go on as if it had never stopped.

Accelerate's `save_state` will not do: it reads registered objects with pickle, which runs code, in
every process, leaves frozen weights in and passes over random states that it cannot read.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sopa_plugin.data.batches import Documents
from sopa_plugin.errors import UserError, failing
from sopa_plugin.files import is_left_aside, written_aside
from sopa_plugin.training.metrics import Metrics, MetricTracker
from sopa_plugin.training.processes import by_first
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.schedules import Schedule

if TYPE_CHECKING:
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer

    from sopa_plugin.models import TextClassifier

_NAME = re.compile(r"epoch_(\d+)_step_(\d+)\.pt")
_DIGEST = b"\nSHA-256: "

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a run, each a file `epoch_E_step_S.pt`: before step S of epoch E.

    A file is what `torch.save` makes of plain data, and the digest of that after it. The last
    checkpoint is kept, and the one of the best epoch's end.

    Arguments:
        folder: where they are; need not be there yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, name: str, state: Mapping[str, Any], best: str | None) -> None:
        """Writes a checkpoint and takes away those that are neither the last nor the `best`.

        Raises `UserError` if it cannot be written, as to a full disk; those before it stay.
        """
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        buffer.write(_DIGEST + hashlib.sha256(buffer.getbuffer()).hexdigest().encode())
        self.folder.mkdir(exist_ok=True)
        then = "mend that, then continue the run with --recover"
        with written_aside(self.folder / name, then) as aside, aside.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())  # renamed only once it is on the disk
        for each in self.folder.iterdir():
            ours = _NAME.fullmatch(each.name) or is_left_aside(each)  # elsewhere, if it is a link
            if ours and each.name not in (name, best):
                each.unlink()

    def last(self) -> str | None:
        """The name of the newest checkpoint."""
        if not self.folder.is_dir():
            return None
        found = filter(None, (_NAME.fullmatch(each.name) for each in self.folder.iterdir()))
        newest = max(found, key=lambda match: tuple(map(int, match.groups())), default=None)
        return newest and newest[0]

    def load(self, name: str) -> dict[str, Any]:
        """What was saved under that name; raises `UserError` if it is not there unchanged."""
        if not _NAME.fullmatch(str(name)):  # another file, perhaps elsewhere
            raise UserError(f"{self.folder}: {name!a} is no name of a checkpoint")
        path = self.folder / name
        with failing(path, "cannot be read"):
            content = path.read_bytes()
        data, _, digest = content.rpartition(_DIGEST)
        then = (
            "; delete it to recover from the checkpoint before it, if there is one, or begin anew "
            "with --force"
        )
        with failing(path, "damaged", then):
            if hashlib.sha256(data).hexdigest().encode() != digest:
                raise ValueError("its digest is another")
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            if not {"weights", "progress", "random", "identity"} <= state.keys():
                raise ValueError("not a checkpoint of a run")
            Progress(**state["progress"])
        return state  # type: ignore[no-any-return]


@dataclass
class Progress:
    """How far a run has come: before step `step` of epoch `epoch`, both counted from 0.

    Attributes:
        seconds: spent so far.
        history: metrics of every epoch.
        best_checkpoint: the name of the checkpoint after the best epoch.
        patterns: those that were left, once states were taken from the model; numbers by states.
        refitted_from: the epoch from which on it has had these.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    history: list[Metrics] = field(default_factory=list)
    best_checkpoint: str | None = None
    patterns: dict[str, int] | None = None
    refitted_from: int = 0

    def end_epoch(self, metrics: Metrics) -> None:
        """Goes to the beginning of the next epoch."""
        self.history.append(metrics)
        self.epoch, self.step = self.epoch + 1, 0


@dataclass(eq=False)
class TrainingState:
    """Everything that training changes; `save` keeps it in a checkpoint, `recover` brings it back.

    Every process has one and takes part in each call; files are read and written by the first.
    Only what training changes is written: trained weights and buffers; frozen weights come from
    where they came from at first.

    Arguments:
        run: the folder of the run.
        accelerator: of the run.
        model: that is trained, on the accelerator's device.
        module: the model as the accelerator prepared it, to be called in training.
        optimizer: of the model, prepared by the accelerator.
        schedule: of its learning rates.
        tracker: of the dev set's metric.
        train, dev: the documents.
        seed: of their order.

    Attributes:
        progress: how far the run has come.
        train_logits: scores of the training documents, as they were when each was trained on, of
            this process alone; `[documents, labels]`.
        class_weights: of the loss, `[labels]`; None where classes count alike.
        starts: weights some of whose numbers rules began: each with these, and which they are.
        embedder_start: what is trained of the embedder, if it is pulled to its start, with that.
    """

    run: RunFolder
    accelerator: Accelerator
    model: TextClassifier
    module: nn.Module
    optimizer: AcceleratedOptimizer
    schedule: Schedule
    tracker: MetricTracker
    train: Documents
    dev: Documents
    seed: int

    def __post_init__(self) -> None:
        self.progress = Progress()
        self.class_weights: torch.Tensor | None = None
        self.starts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.embedder_start: list[tuple[torch.Tensor, torch.Tensor]] = []
        shape = len(self.train), len(self.model.labels)
        self.train_logits = torch.zeros(shape, device=self.model.device)
        self._checkpoints = Checkpoints(self.run.checkpoints)
        frozen = (each for each in self.model.parameters() if not each.requires_grad)
        texts = (part for each in (self.train, self.dev) for part in (each.ids, each.labels))
        self._identity = {
            "data": _fingerprint(texts),
            "frozen weights": _fingerprint(
                each.detach().cpu().reshape(-1).view(torch.uint8).numpy() for each in frozen
            ),
            "number of processes": self.accelerator.num_processes,
        }

    def save(self, seconds: float, is_best: bool = False) -> None:
        """Writes a checkpoint.

        Arguments:
            seconds: spent on the run so far.
            is_best: whether an epoch has just ended, better than all before.
        """
        self.progress.seconds = seconds
        name = f"epoch_{self.progress.epoch}_step_{self.progress.step}.pt"
        if is_best:
            self.progress.best_checkpoint = name
        scaler = self.accelerator.scaler
        state = {
            "weights": _changing_weights(self.model),
            "progress": asdict(self.progress),
            "tracker": asdict(self.tracker),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": scaler.state_dict() if scaler is not None else {},
            "train_logits": self.accelerator.reduce(self.train_logits, "sum").cpu(),
            "random": _random_states(),
            "identity": self._identity,
        }

        def write() -> None:
            self.run.check()
            self._checkpoints.save(name, state, self.progress.best_checkpoint)

        by_first(write)

    def recover(self) -> None:
        """Goes back to the last checkpoint, if the run came so far as to have one.

        Raises `UserError` if that is damaged, or something changed since that must not.
        """
        state = by_first(self._load_last)
        if state is None:
            logger.info("no checkpoint yet: beginning from the start")
            return
        changed = [
            key for key, each in self._identity.items() if state["identity"].get(key) != each
        ]
        if changed:
            raise UserError(
                f"{self.run.path}: cannot be recovered as it was: since then the "
                f"{' and the '.join(changed)} changed; begin anew with --force"
            )
        what, then = "the last checkpoint does not fit this run", "; begin anew with --force"
        with failing(self.run.checkpoints, what, then):
            self._take(state)
        logger.info("recovered: epoch %d, step %d", self.progress.epoch, self.progress.step)

    def _take(self, state: Mapping[str, Any]) -> None:
        self._set_weights(state["weights"])
        self.progress = Progress(**state["progress"])
        self.tracker = MetricTracker(**state["tracker"] | {"patience": self.tracker.patience})
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        if self.accelerator.is_main_process:  # the sum over the processes
            self.train_logits.copy_(state["train_logits"])
        _set_random_state(state["random"][self.accelerator.process_index])

    def load_best_weights(self) -> None:
        """Puts the weights of the best epoch into the model."""
        best = self.progress.best_checkpoint
        assert best is not None
        self._set_weights(by_first(lambda: self._checkpoints.load(best)["weights"]))

    @staticmethod
    def patterns_left(run: RunFolder) -> dict[str, int] | None:
        """The patterns of the model in a run's last checkpoint, if states were taken from it."""
        checkpoints = Checkpoints(run.checkpoints)
        name = checkpoints.last()
        return Progress(**checkpoints.load(name)["progress"]).patterns if name else None

    def _load_last(self) -> dict[str, Any] | None:
        """The last checkpoint, after a look at the best one, which will be needed in the end."""
        name = self._checkpoints.last()
        if name is None:
            return None
        state = self._checkpoints.load(name)
        best = state["progress"]["best_checkpoint"]
        if best is not None:
            self._checkpoints.load(best)
        return state

    def _set_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        own = _changing_weights(self.model)
        if {key: each.shape for key, each in weights.items()} != {
            key: each.shape for key, each in own.items()
        }:
            raise UserError(
                f"{self.run.checkpoints}: the checkpoints are of another model; begin anew with "
                "--force"
            )
        self.model.load_state_dict(weights, strict=False)


def _changing_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """The part of the model's state that training changes."""
    frozen = {name for name, each in model.named_parameters() if not each.requires_grad}
    return {name: each for name, each in model.state_dict().items() if name not in frozen}


def _random_states() -> list[dict[str, Any]]:
    """The state of every random generator in every process, in the order of the processes."""
    from accelerate.utils import gather_object

    name, keys, *rest = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": (name, np.asarray(keys).tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
    return gather_object([state])  # type: ignore[no-any-return]


def _set_random_state(state: Mapping[str, Any]) -> None:
    """Sets the generators of this process as `_random_states` found them."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and isinstance(state["cuda"], torch.Tensor):
        torch.cuda.set_rng_state(state["cuda"])


def _fingerprint(arrays: Iterable[NDArray | None]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for each in arrays:
        digest.update(np.ascontiguousarray(each).data)
    return digest.hexdigest()
