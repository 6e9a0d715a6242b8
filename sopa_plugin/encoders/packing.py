"""Documents as a padded batch and packed end to end, and the way between the two."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Packed(NamedTuple):
    """A batch without padding.

    Token m of the batch has vector `rows[index[m]]`; document b is
    `index[offsets[b]:offsets[b + 1]]`.
    """

    rows: Tensor  # [rows, dim]
    index: Tensor  # type: ignore[assignment]  # [tokens], int64; also a method of tuple
    offsets: Tensor  # [batch + 1], int64


def offsets_of(mask: Tensor) -> Tensor:
    """Where each document of `mask [batch, tokens]` starts in its packed form: `[batch + 1]`."""
    return functional.pad(mask.bool().sum(dim=1).cumsum(dim=0), (1, 0))


def pack(tokens: Tensor, mask: Tensor) -> Packed:
    """Packs `tokens [batch, tokens, dim]`, keeping those where `mask [batch, tokens]` is true.

    Raises:
        ValueError: the mask has another shape.
    """
    if mask.shape != tokens.shape[:2]:
        expected, found = list(tokens.shape[:2]), list(mask.shape)
        raise ValueError(f"mask: expected {expected}, one for each token; found {found}")
    # shape: [real tokens]
    index = mask.bool().flatten().nonzero().squeeze(1)
    return Packed(tokens.flatten(0, 1), index, offsets_of(mask))


def pad(packed: Packed) -> tuple[Tensor, Tensor]:
    """The padded batch `[batch, tokens, dim]`, one token wide at least, and its mask."""
    rows, index, offsets = packed
    lengths = offsets.diff()
    width = max(int(lengths.max()), 1) if len(lengths) else 1
    mask = torch.arange(width, device=index.device) < lengths[:, None]
    tokens = rows.new_zeros(len(lengths), width, rows.shape[-1])
    tokens[mask] = rows[index]
    return tokens, mask
