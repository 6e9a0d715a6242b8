"""A multilayer perceptron of two layers: the head of every model in the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from sopa_plugin.heads.classifier_head import ClassifierHead


@ClassifierHead.register("mlp")
class MlpHead(ClassifierHead):
    """Two linear layers with ReLU between (the paper's Appendix A, "Experimental Setup").

    Registered as `mlp`.

    Arguments:
        input_dim: Dimension of the document vector; handed over.
        num_labels: Number of classes; handed over.
        hidden_dim: Dimension of the hidden layer; the paper tries 10 to 300, its SST model has 25.
        dropout: Probability with which a unit of the hidden layer is dropped in training.

    Raises:
        ValueError: A dimension below 1, or a dropout outside 0 <= dropout < 1.
    """

    def __init__(
        self, input_dim: int, num_labels: int, hidden_dim: int = 25, dropout: float = 0.0
    ) -> None:
        super().__init__()
        for key, message in self.check_params({"hidden_dim": hidden_dim, "dropout": dropout}):
            raise ValueError(f"{key}: {message}")
        self.hidden = nn.Linear(input_dim, hidden_dim)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_dim, num_labels)

    def forward(self, document: Tensor) -> Tensor:
        """Logits `[batch, num_labels]` of document vectors `[batch, input_dim]`."""
        logits: Tensor = self.output(self.dropout(self.hidden(document).relu()))
        return logits

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Problems with the values of `hidden_dim` and `dropout`."""
        if params.get("hidden_dim", 1) < 1:
            yield "hidden_dim", f"expected at least 1, found {params['hidden_dim']}"
        if not 0 <= params.get("dropout", 0) < 1:
            yield "dropout", f"expected 0 <= dropout < 1, found {params['dropout']}"
