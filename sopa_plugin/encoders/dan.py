"""The average of the token vectors: with the `mlp` head, the paper's deep averaging network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from sopa_plugin.encoders.seq2vec_encoder import Seq2VecEncoder


@Seq2VecEncoder.register("dan")
class DanEncoder(Seq2VecEncoder):
    """Averages token vectors, dropping whole words in training (Iyyer et al. 2015, section 5).

    Registered as `dan`. It has no parameters: the layers above the average are the head. The
    average is over the words that are kept; of none (an empty document), it is the zero vector.

    Arguments:
        input_dim: Dimension of the token vectors; handed over.
        word_dropout: Probability with which a word is dropped in training. The paper tries 0.1 to
            0.4; 0.3 is what Iyyer et al. use.

    Raises:
        ValueError: A word dropout outside 0 <= word_dropout < 1.
    """

    def __init__(self, input_dim: int, word_dropout: float = 0.3) -> None:
        super().__init__()
        for key, message in self.check_params({"word_dropout": word_dropout}):
            raise ValueError(f"{key}: {message}")
        self.input_dim = input_dim
        self.word_dropout = word_dropout

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, input_dim]`.

        `tokens [batch, tokens, input_dim]`, `mask [batch, tokens]`.
        """
        kept = mask.bool()
        if self.training:
            kept = kept & (torch.rand(kept.shape, device=kept.device) >= self.word_dropout)
        # shape: [batch, input_dim]
        total = tokens.masked_fill(~kept[:, :, None], 0.0).sum(dim=1)
        return total / kept.sum(dim=1).clamp(min=1)[:, None]

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        return self.input_dim

    def get_output_dim(self) -> int:
        """The same: an average has the dimension of what it averages."""
        return self.input_dim

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Problems with the value of `word_dropout`."""
        if not 0 <= params.get("word_dropout", 0) < 1:
            yield "word_dropout", f"expected 0 <= word_dropout < 1, found {params['word_dropout']}"
