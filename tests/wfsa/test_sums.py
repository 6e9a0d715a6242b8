"""The CPU kernel of the semirings that sum over paths, against the reference in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sopa_plugin.wfsa import Arcs, Layout, cpu, document_scores

SUMS = ("sum_product", "log")
INF = float("inf")


def make_case(
    semiring: str,
    layout: Layout,
    documents: list[int],
    rows: int,
    seed: int,
    cut: float,
    size: float,
) -> Arcs:
    """Random scores as the semiring holds them, log-weights of this `size`, a share `cut` zero."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        drawn = size * torch.randn(*shape, generator=generator)
        drawn = drawn.masked_fill(torch.rand(*shape, generator=generator) < cut, -INF)
        return drawn.sigmoid() if semiring == "sum_product" else drawn

    index = torch.randint(0, rows, (sum(documents),), generator=generator)
    offsets = torch.tensor([0, *documents]).cumsum(0)
    return Arcs(numbers(rows, layout.num_scores), index, offsets, numbers(layout.num_epsilons))


def results(semiring: str, layout: Layout, arcs: Arcs, dtype: torch.dtype) -> list[Tensor]:
    """Scores and gradients; those of a score that is no number are left out."""
    scores, epsilon = (each.to(dtype).requires_grad_() for each in (arcs.scores, arcs.epsilon))
    arcs = arcs._replace(scores=scores, epsilon=epsilon)
    found = document_scores(layout, semiring, arcs)
    grad = torch.randn(found.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    grad = grad.masked_fill(found.isinf(), 0)
    grads = torch.autograd.grad(found, (scores, epsilon), grad)
    return [each.double() for each in (found.detach(), *grads)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Layout, Arcs]:
    semiring = draw(st.sampled_from(SUMS))
    lengths = draw(st.lists(st.integers(2, 7), min_size=1, max_size=19).map(sorted))
    layout = Layout(tuple(lengths), *(draw(st.booleans()) for _ in range(5)))
    documents = draw(st.lists(st.integers(0, 9), max_size=5))
    rows, seed = draw(st.integers(1, 6)), draw(st.integers(0, 2**31))
    cut, size = draw(st.sampled_from([0, 0, 0.2])), draw(st.sampled_from([1, 10, 100]))
    return semiring, layout, make_case(semiring, layout, documents, rows, seed, cut, size)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_scores_and_gradients_are_those_of_the_reference(case: tuple[str, Layout, Arcs]) -> None:
    expected = results(*case, torch.float64)
    found = results(*case, torch.float32)
    # a gradient is the exponential of a difference of such scores, which float32 rounds
    scores = case[2].scores.detach()
    rtol = 1e-5 * max([10.0, *scores[scores.isfinite()].abs().tolist()])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("semiring", SUMS)
def test_a_document_of_a_hundred_thousand_tokens(semiring: str) -> None:
    """Of one word: after the first, each token adds the same."""
    layout = Layout((2, 3, 6))
    raw = torch.zeros(1, layout.num_scores)
    value = raw.sigmoid() if semiring == "sum_product" else torch.full_like(raw, -1.0)
    value = value.requires_grad_()
    epsilon = value.detach()[0, : layout.num_epsilons] / 2
    tokens = 100_000
    arcs = Arcs(value, torch.zeros(tokens).long(), torch.tensor([0, tokens]), epsilon)
    found = document_scores(layout, semiring, arcs)
    found.sum().backward()
    shorter = arcs._replace(
        scores=value.detach().double(),
        index=arcs.index[:100],
        offsets=torch.tensor([0, 100]),
        epsilon=epsilon.double(),
    )
    longer = shorter._replace(index=arcs.index[:101], offsets=torch.tensor([0, 101]))
    less, more = (document_scores(layout, semiring, each) for each in (shorter, longer))
    if semiring == "log":
        less, more, found = less.exp(), more.exp(), found.double().exp()
    expected = less + (tokens - 100) * (more - less)
    torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=0)
    assert value.grad.isfinite().all()
    assert (value.grad > 0).all()


def test_log_weights_above_one_do_not_overflow() -> None:
    layout = Layout((3,), boundary_loops=True, epsilons=False)
    scores = torch.full((1, layout.num_scores), 50.0, requires_grad=True)
    arcs = Arcs(scores, torch.zeros(999).long(), torch.tensor([0, 999]), scores.new_zeros(0))
    found = document_scores(layout, "log", arcs)
    found.sum().backward()
    # the longest paths alone count: 999 arcs of 50, in 999 * 998 / 2 ways
    expected = 999 * 50 + torch.tensor(999 * 998 / 2).log()
    torch.testing.assert_close(found[0, 0], expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(scores.grad.sum(), torch.tensor(999.0), rtol=1e-3, atol=0)


@pytest.mark.parametrize("semiring", SUMS)
def test_results_are_bit_equal_for_every_number_of_threads(semiring: str) -> None:
    layout = Layout(tuple(length for length in (2, 3, 4, 5, 6) for _ in range(10)))
    arcs = make_case(semiring, layout, [20] * 320, rows=500, seed=2, cut=0, size=1)
    assert len(arcs.index) * layout.num_states > 4 * cpu.LEAST_STATES
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(results(semiring, layout, arcs, torch.float32))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(others, found[0], strict=True))


@pytest.mark.parametrize("semiring", SUMS)
def test_rows_and_tokens_that_do_not_exist_are_refused(semiring: str) -> None:
    layout = Layout((2, 3))
    arcs = make_case(semiring, layout, [3], rows=4, seed=0, cut=0, size=1)
    for row in (-1, 4):
        with pytest.raises(IndexError, match="rows 0 to 3"):
            document_scores(layout, semiring, arcs._replace(index=torch.tensor([0, row, 1])))
    with pytest.raises(IndexError, match="ascend from 0 to 3"):
        document_scores(layout, semiring, arcs._replace(offsets=torch.tensor([0, 4])))
