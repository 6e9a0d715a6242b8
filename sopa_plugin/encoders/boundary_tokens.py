"""Documents wrapped in START and END tokens, as the released implementation has them."""

from __future__ import annotations

import torch
from torch import Tensor


def wrap(index: Tensor, offsets: Tensor, row: int, width: int) -> tuple[Tensor, Tensor]:
    """Puts `width` tokens with vector `row` before and after each packed document.

    Arguments:
        index: row of each token, `[M]`.
        offsets: where each document starts, `[B + 1]`.
        row: the row of the tokens put in.
        width: how many there are on each side.

    Returns:
        `index [M + 2·width·B]` and `offsets [B + 1]` of the wrapped documents.
    """
    batch = offsets.shape[0] - 1
    documents = torch.arange(batch + 1, device=offsets.device)
    # shape: [tokens]; the document that each token belongs to
    document = torch.searchsorted(
        offsets[1:].contiguous(), torch.arange(index.shape[0], device=index.device), right=True
    )
    places = torch.arange(index.shape[0], device=index.device) + width * (2 * document + 1)
    wrapped = index.new_full((index.shape[0] + 2 * width * batch,), row)
    return wrapped.scatter(0, places, index), offsets + 2 * width * documents
