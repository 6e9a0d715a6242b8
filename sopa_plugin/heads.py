"""Heads: what turns a document vector into class scores."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sopa_plugin.registry import PositiveInt, Rate, Registrable


class ClassifierHead(nn.Module, Registrable):
    """Scores the classes of a document.

    `input_dim` (the encoder's output dimension) and `num_labels` are handed over by the builder.
    """

    default_implementation: ClassVar[str | None] = "mlp"
    handed_over: ClassVar[frozenset[str]] = frozenset({"input_dim", "num_labels"})

    capturable: bool = False
    """Whether a CUDA graph can hold its forward pass; see `Seq2VecEncoder.capturable`."""

    def forward(self, document: Tensor) -> Tensor:
        """Logits `[batch, num_labels]` of document vectors `[batch, input_dim]`."""
        raise NotImplementedError

    def scale(self, factor: float) -> None:
        """Multiplies all logits that it will give by `factor` (a calibrated model's 1 / T)."""
        raise NotImplementedError


@ClassifierHead.register("linear")
class LinearHead(ClassifierHead):
    """One linear layer: a class score is a weighted sum of the document vector, plus a bias.

    Registered as `linear`.

    Arguments:
        input_dim: Dimension of the document vector; handed over.
        num_labels: Number of classes; handed over.
        dropout: Probability with which a number of the document vector is dropped in training;
            those of rules, which are votes, are not (`spared`).
    """

    capturable = True

    def __init__(self, input_dim: int, num_labels: int, dropout: Rate = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(input_dim, num_labels)
        self.spared: list[int] = []

    def forward(self, document: Tensor) -> Tensor:
        """Logits `[batch, num_labels]` of document vectors `[batch, input_dim]`."""
        kept = self.dropout(document)
        if self.spared and self.training:
            columns = torch.tensor(self.spared, device=document.device)
            kept = kept.index_copy(1, columns, document[:, columns])
        logits: Tensor = self.output(kept)
        return logits

    def scale(self, factor: float) -> None:
        """Multiplies weights and biases."""
        _scale(self.output, factor)


@ClassifierHead.register("mlp")
class MlpHead(ClassifierHead):
    """Two linear layers with ReLU between (the paper's Appendix A, "Experimental Setup").

    Registered as `mlp`.

    Arguments:
        input_dim: Dimension of the document vector; handed over.
        num_labels: Number of classes; handed over.
        hidden_dim: Dimension of the hidden layer; the paper tries 10 to 300, its SST model has 25.
        dropout: Probability with which a unit of the hidden layer is dropped in training.
    """

    capturable = True

    def __init__(
        self, input_dim: int, num_labels: int, hidden_dim: PositiveInt = 25, dropout: Rate = 0.0
    ) -> None:
        super().__init__()
        self.hidden = nn.Linear(input_dim, hidden_dim)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_dim, num_labels)

    def forward(self, document: Tensor) -> Tensor:
        """Logits `[batch, num_labels]` of document vectors `[batch, input_dim]`."""
        logits: Tensor = self.output(self.dropout(self.hidden(document).relu()))
        return logits

    def scale(self, factor: float) -> None:
        """Multiplies weights and biases of the last layer."""
        _scale(self.output, factor)


@torch.no_grad()
def _scale(layer: nn.Linear, factor: float) -> None:
    for each in layer.parameters():
        each.mul_(factor)
