from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sopa_plugin.encoders import CnnEncoder


def mask_of(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_best_window_by_hand() -> None:
    encoder = CnnEncoder(input_dim=1, num_filters=2, window_sizes=(2,))
    (convolution,) = encoder.convolutions
    with torch.no_grad():
        # filters: v_t - v_{t+1} + 1 and -v_t - v_{t+1}
        convolution.weight.copy_(torch.tensor([[[1.0, -1.0]], [[-1.0, -1.0]]]))
        convolution.bias.copy_(torch.tensor([1.0, 0.0]))
    tokens = torch.tensor([[1.0, 5.0, 2.0, 4.0], [3.0, 1.0, 0.0, 0.0], [7.0, 0.0, 0.0, 0.0]])
    document = encoder(tokens[:, :, None], mask_of(4, 2, 1))
    # differences -4, 3, -2 | 2 | none; sums below 0 everywhere
    assert document.tolist() == [[4.0, 0.0], [3.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 9])
def test_equals_every_window_tried(length: int) -> None:
    torch.manual_seed(length)
    encoder = CnnEncoder(input_dim=3, num_filters=4, window_sizes=(1, 3, 4))
    tokens = torch.randn(length, 3)
    expected = []
    for window, convolution in zip((1, 3, 4), encoder.convolutions, strict=True):
        scores = [
            (convolution.weight * tokens[t : t + window].T).sum(dim=(1, 2)) + convolution.bias
            for t in range(length - window + 1)
        ]
        expected.append(torch.stack(scores).amax(dim=0).relu() if scores else torch.zeros(4))
    padded = torch.cat([tokens, torch.randn(2, 3)])[None]
    document = encoder(padded, torch.arange(length + 2)[None] < length)
    torch.testing.assert_close(document[0], torch.cat(expected))
