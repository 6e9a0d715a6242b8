from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sopa_plugin.encoders import CnnEncoder, SopaEncoder


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


def test_is_the_special_case_of_soft_patterns() -> None:
    """A window of w words is a pattern of w + 1 states without self-loops and epsilons."""
    torch.manual_seed(0)
    cnn = CnnEncoder(input_dim=5, num_filters=3, window_sizes=(2, 4))
    sopa = SopaEncoder(
        input_dim=5,
        patterns={3: 3, 5: 3},
        semiring="max_sum",
        encoding="identity",
        self_loops="none",
        epsilons=False,
        normalization="none",
    )
    with torch.no_grad():
        sopa.arcs.bias.zero_()
        for number, convolution in enumerate(cnn.convolutions):
            for arc in range(convolution.kernel_size[0]):
                block = sopa.layout.main_path[arc]
                first = block.start + 3 * number - block.first_pattern
                sopa.arcs.weight[first : first + 3] = convolution.weight[:, :, arc]
                if arc == 0:  # a pattern has a bias for each arc, a filter one for all
                    sopa.arcs.bias[first : first + 3] = convolution.bias
    tokens, mask = torch.randn(6, 9, 5), mask_of(9, 7, 4, 4, 5, 2)
    document, patterns = cnn(tokens, mask), sopa(tokens, mask).relu()
    torch.testing.assert_close(document[:5], patterns[:5])
    torch.testing.assert_close(document[5, :3], patterns[5, :3])
    assert document[5, 3:].tolist() == [0, 0, 0]  # two words cannot match a window of four
