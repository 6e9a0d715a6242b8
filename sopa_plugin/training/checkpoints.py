"""Checkpoints: all that a run needs to go on as if it had never stopped."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import nn

from sopa_plugin.errors import UserError

_NAME = re.compile(r"epoch_(\d+)_step_(\d+)\.pt")


def checkpoint_name(epoch: int, step: int) -> str:
    """The file that holds how things stood before a step of an epoch, both counted from 0."""
    return f"epoch_{epoch}_step_{step}.pt"


class Checkpoints:
    """The checkpoints of a run, each a file `epoch_E_step_S.pt`: before step S of epoch E.

    A checkpoint is written aside and renamed, so a file of such a name is whole. The last one is
    kept, and the one of the best epoch's end. Only what training changes is written: trained
    weights and buffers; frozen weights come from where they came from at first.

    Arguments:
        folder: where they are; need not be there yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, name: str, model: nn.Module, state: Mapping[str, Any], best: str | None) -> None:
        """Writes a checkpoint and takes away those that are neither the last nor the `best`.

        Raises `UserError` if it cannot be written, as to a full disk; those before it stay.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f".{name}"
        try:
            with aside.open("wb") as file:
                torch.save({"weights": changing_weights(model), **state}, file)
                file.flush()
                os.fsync(file.fileno())  # renamed only once it is on the disk
        except (OSError, RuntimeError) as error:  # torch makes one of the other
            reason = error.__context__ if isinstance(error.__context__, OSError) else error
            aside.unlink(missing_ok=True)
            raise UserError(
                f"{self.folder / name}: cannot be written ({reason}); make room, then continue "
                "the run with --recover"
            ) from error
        os.replace(aside, self.folder / name)
        for each in self.folder.iterdir():
            if each.name not in (name, best):
                each.unlink()

    def last(self) -> str | None:
        """The name of the newest checkpoint."""
        if not self.folder.is_dir():
            return None
        found = filter(None, (_NAME.fullmatch(each.name) for each in self.folder.iterdir()))
        newest = max(found, key=lambda match: tuple(map(int, match.groups())), default=None)
        return newest and newest[0]

    def load(self, name: str, model: nn.Module) -> dict[str, Any]:
        """Puts the weights of a checkpoint into the model; what was saved beside them."""
        path = self.folder / name
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            weights = state.pop("weights")
        except Exception as error:  # whatever a damaged file makes torch raise
            raise UserError(
                f"{path}: cannot be read ({type(error).__name__}: {error}); delete it to recover "
                "from the checkpoint before it, if there is one"
            ) from error
        own = changing_weights(model)
        if {key: each.shape for key, each in weights.items()} != {
            key: each.shape for key, each in own.items()
        }:
            raise UserError(f"{path}: the checkpoint is of another model; begin anew with --force")
        model.load_state_dict(weights, strict=False)
        return state


def changing_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """The part of the model's state that training changes."""
    frozen = {name for name, each in model.named_parameters() if not each.requires_grad}
    return {name: each for name, each in model.state_dict().items() if name not in frozen}


def random_states() -> list[dict[str, Any]]:
    """The state of every random generator in every process, in the order of the processes."""
    name, keys, *rest = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": (name, np.asarray(keys).tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
    return gather_object([state])  # type: ignore[no-any-return]


def set_random_state(state: Mapping[str, Any]) -> None:
    """Sets the generators of this process as `random_states` found them."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and isinstance(state["cuda"], torch.Tensor):
        torch.cuda.set_rng_state(state["cuda"])
