"""The base classes of encoders, and the two forms in which they take a batch of documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.registry import Registrable


class Seq2VecEncoder(nn.Module, Registrable):
    """Encodes a sequence of vectors as one vector.

    `input_dim` is handed over by whoever builds the encoder: it is the embedder's output dimension.
    """

    handed_over: ClassVar[frozenset[str]] = frozenset({"input_dim"})

    capturable: bool = False
    """Whether a CUDA graph can hold its forward pass: no shape in it, and no choice of the host,
    depends on what a batch holds, nor is anything copied from the host. A subclass says it anew."""

    @classmethod
    def as_saved(cls, params: Mapping[str, Any], version: str) -> dict[str, Any]:
        """The arguments of a saved model, which mean what they did to the `version` that saved it.

        Where it is not known, it is `""`.
        """
        return dict(params)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, output_dim]` of `tokens [batch, tokens, input_dim]`.

        `mask [batch, tokens]` is true (or 1) at real tokens, which come first; what stands behind
        them never matters.
        """
        raise NotImplementedError

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        raise NotImplementedError

    def get_output_dim(self) -> int:
        """Dimension of the document vector."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """What the printed module shows of itself: its sizes."""
        return f"input_dim={self.get_input_dim()}, output_dim={self.get_output_dim()}"


class PackedSeq2VecEncoder(Seq2VecEncoder):
    """An encoder that also takes documents packed, with no padding and shared token rows."""

    def forward_packed(self, rows: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        """The same document vectors from packed documents: see `Packed`."""
        raise NotImplementedError


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


def checked_mask(tokens: Tensor, mask: Tensor) -> Tensor:
    """`mask [batch, tokens]` of `tokens [batch, tokens, dim]` as booleans.

    Raises:
        ValueError: the tokens are no batch, the mask has another shape, or a token that is none
            comes before one that is.
    """
    if tokens.dim() != 3:
        advice = "one document is a batch of one: tokens[None], mask[None]"
        shapes = f"expected [batch, tokens, dim], found {list(tokens.shape)}"
        raise ValueError(f"tokens: {shapes}; {advice}")
    if mask.shape != tokens.shape[:2]:
        expected, found = list(tokens.shape[:2]), list(mask.shape)
        raise ValueError(f"mask: expected {expected}, one for each token; found {found}")
    real = mask.bool()
    # A graph that is traced cannot depend on what the mask holds.
    if not torch.compiler.is_compiling() and (real[:, 1:] > real[:, :-1]).any():
        raise ValueError("mask: expected each document's real tokens first, then its padding")
    return real


def pack(tokens: Tensor, mask: Tensor) -> Packed:
    """Packs `tokens [batch, tokens, dim]`, of which `mask [batch, tokens]` tells the real ones.

    Raises:
        ValueError: as `checked_mask`.
    """
    real = checked_mask(tokens, mask)
    # shape: [real tokens]
    index = real.flatten().nonzero().squeeze(1)
    return Packed(tokens.flatten(0, 1), index, offsets_of(real))


def pad(packed: Packed) -> tuple[Tensor, Tensor]:
    """The padded batch `[batch, tokens, dim]`, one token wide at least, and its mask."""
    rows, index, offsets = packed
    lengths = offsets.diff()
    width = max(int(lengths.max()), 1) if len(lengths) else 1
    mask = torch.arange(width, device=index.device) < lengths[:, None]
    tokens = rows.new_zeros(len(lengths), width, rows.shape[-1])
    tokens[mask] = rows[index]
    return tokens, mask


def encode_packed(encoder: Seq2VecEncoder, packed: Packed) -> Tensor:
    """Document vectors `[batch, output_dim]` of packed documents, by any encoder."""
    if isinstance(encoder, PackedSeq2VecEncoder):
        return encoder.forward_packed(*packed)
    document: Tensor = encoder(*pad(packed))
    return document
