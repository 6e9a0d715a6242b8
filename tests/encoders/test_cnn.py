from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sopa_plugin.encoders import CnnEncoder


def mask_of(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_best_window_by_hand() -> None:
    encoder = CnnEncoder(input_dim=1, num_filters=2, window_sizes=(2,), boundary_tokens=False)
    (convolution,) = encoder.convolutions
    with torch.no_grad():
        # filters: v_t - v_{t+1} + 1 and -v_t - v_{t+1}
        convolution.weight.copy_(torch.tensor([[[1.0, -1.0]], [[-1.0, -1.0]]]))
        convolution.bias.copy_(torch.tensor([1.0, 0.0]))
    tokens = torch.tensor([[1.0, 5.0, 2.0, 4.0], [3.0, 1.0, 0.0, 0.0], [7.0, 0.0, 0.0, 0.0]])
    document = encoder(tokens[:, :, None], mask_of(4, 2, 1))
    # differences -4, 3, -2 | 2 | none; sums below 0 everywhere
    assert document.tolist() == [[4.0, 0.0], [3.0, 0.0], [0.0, 0.0]]


def test_documents_are_wrapped_as_in_the_released_baseline() -> None:
    encoder = CnnEncoder(input_dim=1, num_filters=1, window_sizes=(3,))
    (convolution,) = encoder.convolutions
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor([[[1.0, 10.0, 100.0]]]))
        convolution.bias.zero_()
    tokens = torch.tensor([[2.0, 1.0], [-3.0, 0.0], [0.0, 0.0]])
    # 0 0 2 1 0 0 | 0 0 -3 0 0, of which the first window is -300 and the last -3 | 0 0 0 0
    assert encoder(tokens[:, :, None], mask_of(2, 1, 0)).tolist() == [[200.0], [0.0], [0.0]]
    with torch.no_grad():
        convolution.bias.fill_(4)
    assert encoder(tokens[:, :, None], mask_of(2, 1, 0)).tolist() == [[204.0], [1.0], [4.0]]


@pytest.mark.parametrize("boundary", [0, 3])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 9])
def test_equals_every_window_tried(length: int, boundary: int) -> None:
    torch.manual_seed(length)
    encoder = CnnEncoder(3, num_filters=4, window_sizes=(1, 3, 4), boundary_tokens=boundary > 0)
    document = torch.randn(length, 3)
    tokens = torch.cat([torch.zeros(boundary, 3), document, torch.zeros(boundary, 3)])
    expected = []
    for window, convolution in zip((1, 3, 4), encoder.convolutions, strict=True):
        scores = [
            (convolution.weight * tokens[t : t + window].T).sum(dim=(1, 2)) + convolution.bias
            for t in range(len(tokens) - window + 1)
        ]
        expected.append(torch.stack(scores).amax(dim=0).relu() if scores else torch.zeros(4))
    padded = torch.cat([document, torch.randn(2, 3)])[None]
    found = encoder(padded, torch.arange(length + 2)[None] < length)
    torch.testing.assert_close(found[0], torch.cat(expected))
