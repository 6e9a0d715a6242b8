"""The base class of everything that turns a document vector into class scores."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from sopa_plugin.registry import Registrable


class ClassifierHead(nn.Module, Registrable):
    """Scores the classes of a document.

    `input_dim` (the encoder's output dimension) and `num_labels` are handed over by the builder.
    """

    default_implementation: ClassVar[str | None] = "mlp"
    handed_over: ClassVar[frozenset[str]] = frozenset({"input_dim", "num_labels"})

    def forward(self, document: Tensor) -> Tensor:
        """Logits `[batch, num_labels]` of document vectors `[batch, input_dim]`."""
        raise NotImplementedError
