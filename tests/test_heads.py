"""Heads, worked by hand."""

from __future__ import annotations

import pytest
import torch

from sopa_plugin.heads import ClassifierHead, LinearHead, MlpHead


def test_is_one_linear_layer() -> None:
    head = ClassifierHead.from_params("linear", input_dim=2, num_labels=3)
    assert isinstance(head, LinearHead)
    with torch.no_grad():
        head.output.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 0.0]]))
        head.output.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
    assert head(torch.tensor([[2.0, 5.0]])).tolist() == [[12.0, -4.0, 5.0]]


def test_linear_dropout_spares_the_votes_of_rules_and_acts_in_training_only() -> None:
    head = LinearHead(input_dim=3, num_labels=1, dropout=0.5)
    head.spared = [1]
    with torch.no_grad():
        head.output.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        head.output.bias.zero_()
    documents = torch.ones(200, 3)
    # what is kept counts double, but for what is spared
    assert set(head(documents).flatten().tolist()) == {10.0, 12.0, 210.0, 212.0}
    assert set(head.eval()(documents).flatten().tolist()) == {111.0}


def test_is_two_linear_layers_with_relu_between() -> None:
    head = MlpHead(input_dim=2, num_labels=2, hidden_dim=2)
    with torch.no_grad():
        head.hidden.weight.copy_(torch.tensor([[1.0, -1.0], [2.0, 1.0]]))
        head.hidden.bias.copy_(torch.tensor([0.0, -1.0]))
        head.output.weight.copy_(torch.tensor([[1.0, 1.0], [3.0, -2.0]]))
        head.output.bias.copy_(torch.tensor([0.5, 0.0]))
    # hidden: relu(1 - 3, 2 + 3 - 1) = (0, 4)
    assert head(torch.tensor([[1.0, 3.0]])).tolist() == [[4.5, -8.0]]


def test_dropout_acts_on_the_hidden_layer_in_training_only() -> None:
    head = MlpHead(input_dim=3, num_labels=1, hidden_dim=1000, dropout=0.5)
    with torch.no_grad():
        head.hidden.weight.zero_()
        head.hidden.bias.fill_(1.0)
        head.output.weight.fill_(1.0)
        head.output.bias.zero_()
    # a kept unit counts 1 / (1 - 0.5) = 2
    dropped = head(torch.zeros(1, 3)).item()
    assert dropped % 2 == 0
    assert 700 < dropped < 1300
    assert head.eval()(torch.zeros(1, 3)).item() == pytest.approx(1000)


def test_is_the_default_head() -> None:
    assert ClassifierHead.list_available()[0] == "mlp"
