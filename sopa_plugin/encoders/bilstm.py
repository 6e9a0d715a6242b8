"""A bidirectional LSTM: the paper's recurrent baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sopa_plugin.encoders.packing import pack, pad
from sopa_plugin.encoders.seq2vec_encoder import Seq2VecEncoder


@Seq2VecEncoder.register("bilstm")
class BilstmEncoder(Seq2VecEncoder):
    """The average of all hidden states of a one-layer bidirectional LSTM (section 5).

    Registered as `bilstm`. An empty document is the zero vector.

    Arguments:
        input_dim: Dimension of the token vectors; handed over.
        hidden_dim: Dimension of the hidden state of each direction; the paper tries 100, 200 and
            300 (its counts of 844K and 1.5M parameters are 200 and 300 a direction).
        dropout: Probability with which a number of the document vector is dropped in training.

    Raises:
        ValueError: A dimension below 1, or a dropout outside 0 <= dropout < 1.
    """

    def __init__(self, input_dim: int, hidden_dim: int = 100, dropout: float = 0.0) -> None:
        super().__init__()
        for key, message in self.check_params({"hidden_dim": hidden_dim, "dropout": dropout}):
            raise ValueError(f"{key}: {message}")
        self.lstm = nn.LSTM(input_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, 2 * hidden_dim]`, the forward direction first.

        `tokens [batch, tokens, input_dim]`, `mask [batch, tokens]`.
        """
        tokens, mask = pad(pack(tokens, mask))
        # an empty document runs over one zero vector, which its average leaves out
        lengths = mask.sum(dim=1)
        packed = pack_padded_sequence(
            tokens, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        # shape: [batch, tokens, 2 * hidden_dim]
        states, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1]
        )
        average = (states * mask[:, :, None]).sum(dim=1) / lengths.clamp(min=1)[:, None]
        document: Tensor = self.dropout(average)
        return document

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        return self.lstm.input_size

    def get_output_dim(self) -> int:
        """Dimension of the hidden states of both directions."""
        return 2 * self.lstm.hidden_size

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Problems with the values of `hidden_dim` and `dropout`."""
        if params.get("hidden_dim", 1) < 1:
            yield "hidden_dim", f"expected at least 1, found {params['hidden_dim']}"
        if not 0 <= params.get("dropout", 0) < 1:
            yield "dropout", f"expected 0 <= dropout < 1, found {params['dropout']}"
