"""A bidirectional LSTM: the paper's recurrent baseline."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sopa_plugin.encoders.seq2vec_encoder import Seq2VecEncoder, pack, pad
from sopa_plugin.registry import PositiveInt, Rate


@Seq2VecEncoder.register("bilstm")
class BilstmEncoder(Seq2VecEncoder):
    """The average of all hidden states of a one-layer bidirectional LSTM (section 5).

    Registered as `bilstm`. An empty document is the zero vector.

    Arguments:
        input_dim: Dimension of the token vectors; handed over.
        hidden_dim: Dimension of the hidden state of each direction; the paper tries 100, 200 and
            300 (its counts of 844K and 1.5M parameters are 200 and 300 a direction).
        dropout: Probability with which a number of the document vector is dropped in training.
    """

    def __init__(self, input_dim: int, hidden_dim: PositiveInt = 100, dropout: Rate = 0.0) -> None:
        super().__init__()
        self.forward_lstm = nn.LSTM(input_dim, hidden_dim, batch_first=True)
        self.backward_lstm = nn.LSTM(input_dim, hidden_dim, batch_first=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, 2 * hidden_dim]`, the forward direction first.

        `tokens [batch, tokens, input_dim]`, `mask [batch, tokens]`.
        """
        tokens, mask = pad(pack(tokens, mask))
        lengths = mask.sum(dim=1)
        # On the CPU, training over torch's packed sequences takes time quadratic in the length.
        ahead, _ = self.forward_lstm(tokens)
        back, _ = self.backward_lstm(_reversed(tokens, lengths))
        # shape: [batch, tokens, 2 * hidden_dim]
        states = torch.cat([ahead, _reversed(back, lengths)], dim=2)
        average = (states * mask[:, :, None]).sum(dim=1) / lengths.clamp(min=1)[:, None]
        document: Tensor = self.dropout(average)
        return document

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        return self.forward_lstm.input_size

    def get_output_dim(self) -> int:
        """Dimension of the hidden states of both directions."""
        return 2 * self.forward_lstm.hidden_size


def _reversed(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Each document's tokens from its last to its first, its padding where it was."""
    place = torch.arange(tokens.shape[1], device=tokens.device)
    # shape: [batch, tokens]
    source = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    return tokens.gather(1, source[:, :, None].expand_as(tokens))
