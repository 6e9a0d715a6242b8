"""The encoder stepped with a carried state against the encoder on whole documents."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sopa_plugin.encoders import SopaEncoder, SopaStream

DIM = 5


def whole_and_stream(**options: Any) -> tuple[SopaEncoder, SopaStream]:
    torch.manual_seed(0)
    encoder = SopaEncoder(DIM, {4: 2, 2: 2, 3: 1}, **options)
    return encoder, SopaStream(encoder)


@pytest.mark.parametrize("chunk", [1, 2, 5, 11])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"semiring": "max_sum"},
        {"semiring": "sum_product"},
        {"semiring": "log", "self_loops": "shared"},
        {"empty_matches": True},
        {"final_epsilon": False, "boundary_loops": True},
        {"boundary_tokens": True, "self_loops": "none"},
        {"boundary_tokens": "marked"},
    ],
    ids=str,
)
def test_chunks_score_like_the_whole_document(options: dict[str, Any], chunk: int) -> None:
    encoder, stream = whole_and_stream(**options)
    tokens = torch.randn(3, 11, DIM)
    mask = torch.arange(11) < torch.tensor([11, 6, 1])[:, None]
    state = None
    for part, real in zip(tokens.split(chunk, dim=1), mask.split(chunk, dim=1), strict=True):
        vectors, state = stream(part, state, real)
    torch.testing.assert_close(vectors, encoder(tokens, mask))


def test_every_prefix_of_a_stream_has_its_document_vector() -> None:
    encoder, stream = whole_and_stream(boundary_tokens=True)
    tokens, state = torch.randn(1, 6, DIM), None
    for length in range(1, 7):
        vectors, state = stream(tokens[:, length - 1 : length], state)
        torch.testing.assert_close(vectors, encoder(tokens[:, :length], torch.ones(1, length)))
    assert state is not None
    assert state.states.shape == (1, sum(encoder.layout.lengths))


def test_gradients_flow_through_the_state() -> None:
    encoder, stream = whole_and_stream(semiring="log")
    tokens = torch.randn(2, 6, DIM)

    def grads(vectors: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(vectors.square().sum(), encoder.arcs.parameters()))

    _, state = stream(tokens[:, :3])
    vectors, _ = stream(tokens[:, 3:], state)
    for ours, expected in zip(
        grads(vectors), grads(encoder(tokens, torch.ones(2, 6))), strict=True
    ):
        torch.testing.assert_close(ours, expected)


def test_a_document_may_be_empty() -> None:
    encoder, stream = whole_and_stream()
    vectors, _ = stream(torch.zeros(2, 0, DIM))
    torch.testing.assert_close(vectors, encoder(torch.zeros(2, 0, DIM), torch.zeros(2, 0)))
