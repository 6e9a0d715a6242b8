"""Weights of a saved model: read whole, or one error that says why not; drawn where they lack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from sopa_plugin.errors import UserError

SavedModel = TypeVar("SavedModel", bound=PreTrainedModel)


def load_weights(kind: type[SavedModel], folder: Path) -> SavedModel:
    """The model of class `kind` that `save_pretrained` wrote to `folder`, every weight of it.

    Raises:
        UserError: The weights are absent, cut short, or not those of the model's config.
    """
    try:
        with _no_progress_bar():
            result: Any = kind.from_pretrained(folder, output_loading_info=True)
    except (OSError, SafetensorError, RuntimeError) as error:  # absent, cut short, other shapes
        raise UserError(f"{folder}: the weights cannot be read ({error})") from error
    model: SavedModel
    model, loaded = result
    missing, unknown = sorted(loaded["missing_keys"]), sorted(loaded["unexpected_keys"])
    if missing or unknown:
        raise UserError(
            f"{folder}: the weights are not those of the config (missing: "
            f"{', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}); "
            "another version of the code may have saved them: train the model again"
        )
    return model


def draw_missing(module: nn.Module) -> None:
    """Draws the weights of a module that transformers did not find in a file, and no others."""
    own = (*module.parameters(), *module.buffers())
    loaded = [each for each in own if getattr(each, "_is_hf_initialized", False)]
    reset: Any = getattr(module, "reset_parameters", None)
    if reset is None or len(loaded) == len(own):
        return
    values = [each.detach().clone() for each in loaded]
    reset()
    with torch.no_grad():
        for each, value in zip(loaded, values, strict=True):
            each.copy_(value)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keeps transformers from drawing a bar over weights that take no time to read."""
    wanted = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if wanted:
            transformers_logging.enable_progress_bar()
