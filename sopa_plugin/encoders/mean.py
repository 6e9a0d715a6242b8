"""The average of the token vectors, and nothing else."""

from __future__ import annotations

from torch import Tensor

from sopa_plugin.encoders.seq2vec_encoder import Seq2VecEncoder


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
        real = mask.bool()
        # shape: [batch, input_dim]
        total = tokens.masked_fill(~real[:, :, None], 0.0).sum(dim=1)
        return total / real.sum(dim=1).clamp(min=1)[:, None]

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        return self.input_dim

    def get_output_dim(self) -> int:
        """The same: an average has the dimension of what it averages."""
        return self.input_dim
