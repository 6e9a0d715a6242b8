"""The average of the token vectors: with the `mlp` head, the paper's deep averaging network."""

from __future__ import annotations

import torch
from torch import Tensor

from sopa_plugin.encoders.seq2vec_encoder import Seq2VecEncoder, checked_mask
from sopa_plugin.registry import Rate


@Seq2VecEncoder.register("mean")
class MeanEncoder(Seq2VecEncoder):
    """Averages token vectors; with a `transformer` and a `linear` head, the usual baseline.

    Registered as `mean`. It has no parameters. An empty document is the zero vector.

    Arguments:
        input_dim: Dimension of the token vectors; handed over.
    """

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        self.input_dim = input_dim

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, input_dim]`.

        `tokens [batch, tokens, input_dim]`, `mask [batch, tokens]`.
        """
        return self.average(tokens, checked_mask(tokens, mask))

    def average(self, tokens: Tensor, kept: Tensor) -> Tensor:
        """The average of those tokens that are `kept [batch, tokens]`; of none, zero."""
        # shape: [batch, input_dim]
        total = tokens.masked_fill(~kept[:, :, None], 0.0).sum(dim=1)
        return total / kept.sum(dim=1).clamp(min=1)[:, None]

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        return self.input_dim

    def get_output_dim(self) -> int:
        """The same: an average has the dimension of what it averages."""
        return self.input_dim


@Seq2VecEncoder.register("dan")
class DanEncoder(MeanEncoder):
    """Averages token vectors, dropping whole words in training (Iyyer et al. 2015, section 5).

    Registered as `dan`. It has no parameters: the layers above the average are the head. The
    average is over the words that are kept; of none (an empty document), it is the zero vector.

    Arguments:
        input_dim: Dimension of the token vectors; handed over.
        word_dropout: Probability with which a word is dropped in training. The paper tries 0.1 to
            0.4; 0.3 is what Iyyer et al. use.
    """

    def __init__(self, input_dim: int, word_dropout: Rate = 0.3) -> None:
        super().__init__(input_dim)
        self.word_dropout = word_dropout

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, input_dim]`.

        `tokens [batch, tokens, input_dim]`, `mask [batch, tokens]`.
        """
        kept = checked_mask(tokens, mask)
        if self.training:
            kept = kept & (torch.rand(kept.shape, device=kept.device) >= self.word_dropout)
        return self.average(tokens, kept)
