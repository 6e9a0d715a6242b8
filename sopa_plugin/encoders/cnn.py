"""A convolution with max-pooling: the paper's CNN baseline, and SoPa's special case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.encoders.seq2vec_encoder import Seq2VecEncoder, pack, pad
from sopa_plugin.registry import PositiveInt, Rate


@Seq2VecEncoder.register("cnn")
class CnnEncoder(Seq2VecEncoder):
    """One layer of filters over windows of words, max-pooled over the document (section 5).

    Registered as `cnn`. A filter of window w is a soft pattern of w + 1 states without self-loops
    and epsilons, in max-sum with identity (section 4): the best of its windows counts, and only
    then ReLU is taken.

    Arguments:
        input_dim: Dimension of the token vectors; handed over.
        num_filters: Filters of each window size; the paper tries 50, 100 and 200.
        window_sizes: How many words a filter sees; the paper tries 4, 5 and 6, one at a time.
        dropout: Probability with which a number of the document vector is dropped in training.
        boundary_tokens: Whether every document is wrapped in (largest window - 1) zero vectors on
            each side, as the authors' released code does. Without them, a document shorter than
            the window is unmatched, as with patterns, and scores 0.

    Raises:
        ValueError: No window size, or one given twice.
    """

    def __init__(
        self,
        input_dim: int,
        num_filters: PositiveInt = 100,
        window_sizes: tuple[PositiveInt, ...] = (4,),
        dropout: Rate = 0.0,
        boundary_tokens: bool = True,
    ) -> None:
        super().__init__()
        for key, message in self.check_params({"window_sizes": window_sizes}):
            raise ValueError(f"{key}: {message}")
        self.input_dim = input_dim
        self.num_filters = num_filters
        self.window_sizes = window_sizes
        self.boundary_width = max(window_sizes) - 1 if boundary_tokens else 0
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_dim, num_filters, window) for window in window_sizes
        )
        self.dropout = nn.Dropout(dropout)

    @classmethod
    def as_saved(cls, params: Mapping[str, Any], version: str) -> dict[str, Any]:
        """Before they had a name, boundary tokens were not there."""
        return {"boundary_tokens": False, **params}

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, len(window_sizes) * num_filters]`, filters of a size together.

        `tokens [batch, tokens, input_dim]`, `mask [batch, tokens]`.
        """
        tokens, mask = pad(pack(tokens, mask))
        width = self.boundary_width
        # shape: [batch, input_dim, tokens]
        columns = functional.pad(tokens.transpose(1, 2), (width, width))
        lengths = mask.sum(dim=1) + 2 * width
        pooled = []
        for window, convolution in zip(self.window_sizes, self.convolutions, strict=True):
            # shape: [batch, num_filters, tokens], one window starting at each token
            scores = convolution(functional.pad(columns, (0, window - 1)))
            pooled.append(_best(scores, lengths - window))
        document: Tensor = self.dropout(torch.cat(pooled, dim=1).relu())
        return document

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        return self.input_dim

    def get_output_dim(self) -> int:
        """Number of filters of all window sizes."""
        return self.num_filters * len(self.convolutions)

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Window sizes that are none, or not all different."""
        windows = list(params["window_sizes"])
        if not windows or len(set(windows)) < len(windows):
            yield "window_sizes", f"expected different sizes, at least one; found {windows}"


def _best(scores: Tensor, last: Tensor) -> Tensor:
    """The best of `scores [batch, filters, starts]` up to start `last [batch]`, 0 if there is none.

    Shape of the answer: `[batch, filters]`.
    """
    outside = torch.arange(scores.shape[2], device=scores.device) > last[:, None]
    best = scores.masked_fill(outside[:, None], float("-inf")).max(dim=2).values
    return best.masked_fill((last < 0)[:, None], 0.0)
