"""The base class of everything that turns a document's token vectors into one vector."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from sopa_plugin.registry import Registrable


class Seq2VecEncoder(nn.Module, Registrable):
    """Encodes a sequence of vectors as one vector.

    `input_dim` is handed over by whoever builds the encoder: it is the embedder's output dimension.
    """

    handed_over: ClassVar[frozenset[str]] = frozenset({"input_dim"})

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, output_dim]` of `tokens [batch, tokens, input_dim]`.

        `mask [batch, tokens]` is true (or 1) at real tokens; what stands elsewhere never matters.
        """
        raise NotImplementedError

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        raise NotImplementedError

    def get_output_dim(self) -> int:
        """Dimension of the document vector."""
        raise NotImplementedError


class PackedSeq2VecEncoder(Seq2VecEncoder):
    """An encoder that also takes documents packed, with no padding and shared token rows."""

    def forward_packed(self, rows: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        """The same document vectors from packed documents (see `sopa_plugin.encoders.packing`).

        `rows [distinct tokens, input_dim]`; token m of the batch has vector `rows[index[m]]`,
        `index [tokens]`; document b is `index[offsets[b]:offsets[b + 1]]`, `offsets [batch + 1]`.
        """
        raise NotImplementedError
