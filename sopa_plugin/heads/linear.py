"""One linear layer: the plainest head, whose weights can be read."""

from __future__ import annotations

from torch import Tensor, nn

from sopa_plugin.heads.classifier_head import ClassifierHead


@ClassifierHead.register("linear")
class LinearHead(ClassifierHead):
    """One linear layer: a class score is a weighted sum of the document vector, plus a bias.

    Registered as `linear`.

    Arguments:
        input_dim: Dimension of the document vector; handed over.
        num_labels: Number of classes; handed over.
    """

    def __init__(self, input_dim: int, num_labels: int) -> None:
        super().__init__()
        self.output = nn.Linear(input_dim, num_labels)

    def forward(self, document: Tensor) -> Tensor:
        """Logits `[batch, num_labels]` of document vectors `[batch, input_dim]`."""
        logits: Tensor = self.output(document)
        return logits
