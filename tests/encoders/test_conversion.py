"""The equivalence of section 4, in both directions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sopa_plugin.encoders import CnnEncoder, SopaEncoder
from sopa_plugin.encoders.conversion import (
    from_cnn,
    from_convolutions,
    to_cnn,
    to_convolutions,
)

DIM = 7
CNN_LIKE = {
    "semiring": "max_sum",
    "encoding": "identity",
    "self_loops": "none",
    "epsilons": False,
    "normalization": "none",
}


def documents() -> tuple[Tensor, Tensor]:
    """Documents of 9, 5, 2, 1 and 0 words."""
    lengths = torch.tensor([9, 5, 2, 1, 0])
    tokens = torch.randn(5, 9, DIM, generator=torch.Generator().manual_seed(1))
    return tokens, torch.arange(9) < lengths[:, None]


def max_pooled(convolutions: list[nn.Conv1d], document: Tensor) -> Tensor:
    """Scores of one document `[words, dim]` by torch's own convolution and maximum."""
    return torch.cat([each(document.T[None])[0].amax(dim=1) for each in convolutions])


def test_sopa_equals_torch_convolution_and_max_pooling() -> None:
    torch.manual_seed(0)
    convolutions = [nn.Conv1d(DIM, 4, 1), nn.Conv1d(DIM, 3, 2), nn.Conv1d(DIM, 5, 4)]
    tokens, mask = documents()
    encoder = from_convolutions(convolutions)
    assert encoder.layout.lengths == (2,) * 4 + (3,) * 3 + (5,) * 5
    for scores, document, real in zip(encoder(tokens, mask), tokens, mask, strict=True):
        words = document[real]
        fitting = [each for each in convolutions if each.kernel_size[0] <= len(words)]
        expected = max_pooled(fitting, words) if fitting else torch.zeros(0)
        torch.testing.assert_close(scores[: len(expected)], expected, rtol=0, atol=1e-6)
        assert not scores[len(expected) :].any()


def test_convolutions_equal_the_sopa_they_came_from() -> None:
    torch.manual_seed(0)
    encoder = SopaEncoder(DIM, {4: 3, 2: 2, 5: 1}, **CNN_LIKE, bias_scale=0.3, output_scale=2.5)
    nn.init.normal_(encoder.arcs.bias)
    convolutions = to_convolutions(encoder)
    assert [(each.kernel_size, each.out_channels) for each in convolutions] == [
        ((1,), 2),
        ((3,), 3),
        ((4,), 1),
    ]
    tokens, mask = documents()
    scores = encoder(tokens, mask)
    for row in (0, 1):
        expected = max_pooled(convolutions, tokens[row, mask[row]])
        torch.testing.assert_close(scores[row], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("boundary", [False, True])
def test_the_cnn_encoder_becomes_a_sopa_and_back(boundary: bool) -> None:
    torch.manual_seed(0)
    cnn = CnnEncoder(DIM, num_filters=6, window_sizes=(3, 1, 2), boundary_tokens=boundary).eval()
    tokens, mask = documents()
    sopa, columns = from_cnn(cnn)
    back = to_cnn(sopa)
    assert not sopa.training
    assert back.window_sizes == (1, 2, 3)
    expected = cnn(tokens, mask)[:, columns]
    torch.testing.assert_close(sopa(tokens, mask), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(back(tokens, mask), expected, rtol=0, atol=1e-6)
    assert (cnn(tokens, mask) > 0).any()
    scaled = SopaEncoder(DIM, {2: 3, 4: 3}, **CNN_LIKE, activation="relu", output_scale=0.3).eval()
    expected = scaled(tokens, mask)
    assert (expected[0] > 0).any()
    torch.testing.assert_close(to_cnn(scaled)(tokens, mask), expected, rtol=0, atol=1e-6)


def test_gradients_are_the_same_too() -> None:
    torch.manual_seed(0)
    cnn = CnnEncoder(DIM, num_filters=6, window_sizes=(3,))
    (sopa, _), (tokens, mask) = from_cnn(cnn), documents()
    for encoder in (cnn, sopa):
        encoder(tokens, mask).square().sum().backward()
    (convolution,) = cnn.convolutions
    ours = sopa.arcs.weight.grad.unflatten(0, (3, 6)).permute(1, 2, 0)
    torch.testing.assert_close(ours, convolution.weight.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"self_loops": "state"}, "self-loops"),
        ({"self_loops": "shared"}, "self-loops"),
        ({"epsilons": True}, "epsilons"),
        ({"semiring": "log"}, "semiring 'log'"),
        ({"encoding": "log_sigmoid"}, "encoding 'log_sigmoid'"),
        ({"boundary_tokens": True}, "boundary tokens"),
        ({"boundary_tokens": "marked"}, "boundary tokens"),
        ({"normalization": "layer"}, "normalization"),
    ],
)
def test_what_a_cnn_cannot_do_is_refused(changes: dict[str, object], reason: str) -> None:
    encoder = SopaEncoder(DIM, {3: 2}, **{**CNN_LIKE, **changes})
    with pytest.raises(ValueError, match=reason):
        to_convolutions(encoder)


def test_what_the_cnn_encoder_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="ReLU"):
        to_cnn(SopaEncoder(DIM, {3: 2}, **CNN_LIKE))
    uneven = SopaEncoder(DIM, {3: 2, 4: 3}, **CNN_LIKE, activation="relu")
    with pytest.raises(ValueError, match="equally many"):
        to_cnn(uneven)
    high = SopaEncoder(DIM, {3: 2}, **CNN_LIKE, activation="relu")
    nn.init.constant_(high.document_vector.no_match, 0.1)
    with pytest.raises(ValueError, match="not above"):
        to_cnn(high)


@pytest.mark.parametrize(
    "convolutions",
    [
        [nn.Conv1d(DIM, 2, 3, padding=1)],
        [nn.Conv1d(DIM, 2, 3, stride=2)],
        [nn.Conv1d(DIM, 2, 3, dilation=2)],
        [nn.Conv1d(8, 2, 3, groups=2)],
        [nn.Conv1d(DIM, 2, 3), nn.Conv1d(DIM, 2, 2)],
        [],
    ],
)
def test_what_patterns_cannot_do_is_refused(convolutions: list[nn.Conv1d]) -> None:
    with pytest.raises(ValueError, match=r"soft pattern cannot|ascending"):
        from_convolutions(convolutions)
