from __future__ import annotations

import torch

from sopa_plugin.heads import ClassifierHead, LinearHead


def test_is_one_linear_layer() -> None:
    head = ClassifierHead.from_params("linear", input_dim=2, num_labels=3)
    assert isinstance(head, LinearHead)
    with torch.no_grad():
        head.output.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 0.0]]))
        head.output.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
    assert head(torch.tensor([[2.0, 5.0]])).tolist() == [[12.0, -4.0, 5.0]]
