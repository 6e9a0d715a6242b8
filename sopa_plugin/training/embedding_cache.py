"""The output of a frozen contextual embedder, computed once for a whole training run."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from sopa_plugin.data.batches import Documents, evaluation_batches

if TYPE_CHECKING:
    from accelerate import Accelerator

    from sopa_plugin.models import TextClassifier


def can_cache(model: TextClassifier) -> bool:
    """Whether the embedder gives a document the same vectors in every epoch, at some cost."""
    frozen = not any(each.requires_grad for each in model.embedder.parameters())
    return model.embedder.contextual and frozen


@torch.no_grad()
def embed_once(
    model: TextClassifier, documents: Documents, file: Path, accelerator: Accelerator
) -> Documents:
    """`documents` with the vectors of all tokens, in a memory-mapped file.

    The processes of one machine share the file and the work.

    Arguments:
        model: its embedder is run, in evaluation mode.
        documents: tokenised documents.
        file: where the vectors go, `[tokens, dim]`; several machines may share the folder.
        accelerator: says which part of the work is this process's.
    """
    file = file.with_name(f"{file.name}.{platform.node()}")
    shape = (len(documents.ids), model.embedder.get_output_dim())
    if accelerator.is_local_main_process:
        file.parent.mkdir(parents=True, exist_ok=True)
        _map(file, "w+", shape)
    accelerator.wait_for_everyone()
    vectors = _map(file, "r+", shape)
    batches = list(evaluation_batches(documents.lengths))
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
    mine = batches[accelerator.local_process_index :: processes]  # of this machine
    model.embedder.eval()
    silent = None if accelerator.is_main_process else True
    for numbers in tqdm(mine, desc="embedding once for all epochs", disable=silent, leave=False):
        batch = documents.padded(numbers, model.config.pad_token_id or 0)
        ids, mask = (batch[key].to(model.device) for key in ("input_ids", "attention_mask"))
        tokens = model.embedder(ids, mask)[mask.bool()]
        vectors[documents.tokens_of(numbers)[0]] = tokens.float().cpu().numpy()
    accelerator.wait_for_everyone()
    return replace(documents, vectors=_map(file, "r", shape))


def _map(file: Path, mode: Literal["w+", "r+", "r"], shape: tuple[int, int]) -> Any:
    if 0 in shape:  # a memory map cannot be empty
        return np.zeros(shape, dtype=np.float32)
    return np.memmap(file, dtype=np.float32, mode=mode, shape=shape)
