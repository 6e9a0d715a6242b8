"""Checkpoints: all that a run needs to go on as if it had never stopped."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import nn

from sopa_plugin.errors import UserError

_NAME = re.compile(r"epoch_(\d+)_step_(\d+)")
_WEIGHTS, _STATE = "weights.pt", "state.pt"


class Checkpoints:
    """The checkpoints of a run, each a folder `epoch_E_step_S`: before step S of epoch E.

    A checkpoint is written aside and renamed, so a folder with such a name is complete. The last
    one is kept, and the one of the best epoch's end. Only what training changes is written: trained
    weights and buffers; frozen weights come from where they came from at first.

    Arguments:
        folder: where they are; need not be there yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(
        self, epoch: int, step: int, model: nn.Module, state: Mapping[str, Any], best: str | None
    ) -> str:
        """Writes a checkpoint, takes away those that are neither last nor `best`; its name."""
        name = f"epoch_{epoch}_step_{step}"
        aside = self.folder / f".{name}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        _write(aside / _WEIGHTS, changing_weights(model))
        _write(aside / _STATE, dict(state))
        shutil.rmtree(self.folder / name, ignore_errors=True)
        os.replace(aside, self.folder / name)
        for each in self.folder.iterdir():
            if each.name not in (name, best):
                shutil.rmtree(each)
        return name

    def last(self) -> str | None:
        """The name of the newest checkpoint."""
        if not self.folder.is_dir():
            return None
        found = [_NAME.fullmatch(each.name) for each in self.folder.iterdir()]
        newest = max(
            filter(None, found), key=lambda match: tuple(map(int, match.groups())), default=None
        )
        return newest and newest[0]

    def load_state(self, name: str) -> dict[str, Any]:
        """What was saved beside the weights."""
        return self._read(name, _STATE)

    def load_weights(self, name: str, model: nn.Module) -> None:
        """Puts the weights of a checkpoint into the model."""
        weights = self._read(name, _WEIGHTS)
        if weights.keys() != changing_weights(model).keys():
            raise UserError(f"{self.folder / name}: the checkpoint is of another model")
        model.load_state_dict(weights, strict=False)

    def _read(self, name: str, file: str) -> dict[str, Any]:
        path = self.folder / name / file
        try:
            return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
        except Exception as error:  # whatever a damaged file makes torch raise
            raise UserError(
                f"{path}: cannot be read ({type(error).__name__}: {error}); delete the folder of "
                "this checkpoint to recover from the one before, if there is one"
            ) from error


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
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    return gather_object([state])  # type: ignore[no-any-return]


def set_random_state(state: Mapping[str, Any]) -> None:
    """Sets the generators of this process as `random_states` found them."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a file and waits until it is on the disk, so that no crash leaves half of it."""
    with path.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
