"""The processes that train together: work for all, shared out or done by one, and its errors."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from sopa_plugin.data.batches import Documents, evaluation_batches
from sopa_plugin.errors import UserError

if TYPE_CHECKING:
    from accelerate import Accelerator, PartialState

    from sopa_plugin.models import TextClassifier

T = TypeVar("T")


def processes() -> PartialState:
    """Which of how many processes this one is.

    Accelerate heeds `ACCELERATE_USE_CPU` only once it trains; left to itself before that, on a
    machine without a GPU, each of several processes would take itself for the only one.
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))


def by_first(action: Callable[[], T]) -> T:
    """What `action` gives the first process, in all of them; so with its error."""
    from accelerate.utils import broadcast_object_list

    outcome = _outcome(action) if processes().is_main_process else (None, None)
    result, error = broadcast_object_list(list(outcome))
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def by_all(action: Callable[[], T]) -> T:
    """What `action` gives this process; the error that it raises in any, in all of them."""
    from accelerate.utils import gather_object

    result, error = _outcome(action)
    errors = gather_object([error])
    failed = [number for number, each in enumerate(errors) if each is not None]
    if not failed:
        return result  # type: ignore[return-value]
    error = errors[failed[0]]
    if len(failed) < len(errors):
        error = UserError(f"process {failed[0]} of {len(errors)}: {error}")
    raise error


def lost_another(error: RuntimeError) -> bool:
    """Whether an error is but that another process has ended, as gloo and NCCL say it."""
    from torch.distributed import DistError

    return processes().num_processes > 1 and (
        isinstance(error, DistError) or "by peer" in str(error)
    )


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
    import torch
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

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
    bar = tqdm(mine, desc="embedding once for all epochs", disable=silent, leave=False)
    with torch.no_grad():
        for numbers in bar:
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


def _outcome(action: Callable[[], T]) -> tuple[T | None, Any]:
    try:
        return action(), None
    except (UserError, OSError) as error:
        return None, error
