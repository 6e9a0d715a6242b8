"""The custom operator: registration, dtypes, shapes, and equal results however documents lie."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from sopa_plugin.wfsa import (
    Arcs,
    Layout,
    Semiring,
    best_matches,
    document_scores,
    end_scores,
    k_best_matches,
    span_scores,
)

LAYOUT = Layout((2, 3, 3, 5))
SEMIRINGS = ("max_product", "max_sum", "sum_product", "log", "boolean")


def case(dtype: torch.dtype = torch.float64, layout: Layout = LAYOUT, rows: int = 9) -> Arcs:
    """Four documents, one of them empty, with positive scores."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(rows, layout.num_scores, generator=generator, dtype=dtype)
    epsilon = torch.rand(layout.num_epsilons, generator=generator, dtype=dtype)
    index = torch.randint(0, rows, (13,), generator=generator)
    return Arcs(scores, index, torch.tensor([0, 6, 6, 7, 13]), epsilon)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_the_operator_is_registered_as_torch_wants_it(semiring: str, dtype: torch.dtype) -> None:
    scores, index, offsets, epsilon = case(dtype)
    selects = Semiring.named(semiring).selects
    differentiable = Semiring.named(semiring).differentiable
    options = [True, True, False, True, False]
    torch.library.opcheck(
        torch.ops.sopa.document_scores.default,
        (
            scores.requires_grad_(differentiable),
            index,
            offsets,
            epsilon.requires_grad_(differentiable),
            semiring,
            list(LAYOUT.lengths),
            options,
            selects,
        ),
    )


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_documents_do_not_depend_on_their_batch(semiring: str) -> None:
    """Bit-equal alone, in a batch, in any order, and with rows listed twice."""
    scores, index, offsets, epsilon = case(torch.float32)
    together = document_scores(LAYOUT, semiring, Arcs(scores, index, offsets, epsilon))
    bounds = offsets.tolist()
    documents = [index[a:b] for a, b in pairwise(bounds)]
    for position, document in enumerate(documents):
        arcs = Arcs(scores, document, torch.tensor([0, len(document)]), epsilon)
        alone = document_scores(LAYOUT, semiring, arcs)
        assert torch.equal(alone[0], together[position])
    backwards = torch.tensor([0, *(len(document) for document in documents[::-1])]).cumsum(0)
    reversed_index = torch.cat(documents[::-1]) + len(scores)
    arcs = Arcs(torch.cat([scores, scores]), reversed_index, backwards, epsilon)
    turned = document_scores(LAYOUT, semiring, arcs)
    assert torch.equal(turned.flip(0), together)


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_no_match_scores_a_true_zero(semiring: str) -> None:
    layout = Layout((2, 4), epsilons=False)
    scores, *_ = case(layout=layout)
    arcs = Arcs(scores, torch.tensor([0]), torch.tensor([0, 1, 1]), scores.new_zeros(0))
    found = document_scores(layout, semiring, arcs)
    zero = Semiring.named(semiring).zero
    assert found[:, 1].tolist() == [zero, zero]
    assert found[1, 0] == zero
    assert found[0, 0] == scores[0, 0]
    ends = end_scores(layout, semiring, arcs).scores
    assert ends.tolist() == [[scores[0, 0].item(), zero]]


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_end_scores_add_up_to_document_scores(semiring: str) -> None:
    arcs, algebra = case(), Semiring.named(semiring)
    ends, *paths = end_scores(LAYOUT, semiring, arcs)
    found = document_scores(LAYOUT, semiring, arcs)
    for document, (start, stop) in enumerate(pairwise(arcs.offsets.tolist())):
        torch.testing.assert_close(algebra.sum(ends[start:stop], 0), found[document])
    assert all(bool(each.numel()) == algebra.selects for each in paths)


@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the kernel, the reference
def test_a_score_that_is_no_number_shows(semiring: str, dtype: torch.dtype) -> None:
    for column in range(LAYOUT.num_scores):
        arcs = case(dtype)
        arcs.scores[:, column] = float("nan")
        found = document_scores(LAYOUT, semiring, arcs)
        # one pattern's arc, in the documents that it can match at all
        assert found[:, found.isnan().any(dim=0)].shape[1] == 1
        assert found[[0, 3]].isnan().any(dim=1).all()


@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the kernel, the reference
def test_rows_before_the_first_are_refused(semiring: str, dtype: torch.dtype) -> None:
    arcs = case(dtype)
    arcs.index[1] = -1
    with pytest.raises(IndexError, match="rows 0 to 8"):
        document_scores(LAYOUT, semiring, arcs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    scores, index, offsets, epsilon = case(torch.float32)
    halves = [each.to(dtype).requires_grad_() for each in (scores, epsilon)]
    found = document_scores(LAYOUT, "log", Arcs(halves[0], index, offsets, halves[1]))
    singles = [each.detach().float() for each in halves]
    assert found.dtype == torch.float32
    arcs = Arcs(singles[0], index, offsets, singles[1])
    assert torch.equal(found, document_scores(LAYOUT, "log", arcs))
    found[0].sum().backward()
    assert halves[0].grad.dtype == dtype


def test_views_and_narrow_integers_are_taken_too() -> None:
    scores, index, offsets, epsilon = arcs = case(torch.float32)
    wide = torch.stack([scores, scores + 1], dim=2)[:, :, 0]
    assert not wide.is_contiguous()
    other = Arcs(wide, index.int(), offsets.int(), epsilon)
    for function in (best_matches, end_scores):
        found, expected = (function(LAYOUT, "max_sum", each) for each in (other, arcs))
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the kernel, the reference
@pytest.mark.parametrize(
    "function",
    [
        document_scores,
        best_matches,
        end_scores,
        span_scores,
        lambda *given: k_best_matches(*given, 1),
    ],
)
def test_shapes_that_do_not_fit_the_layout_are_refused(function: Any, dtype: torch.dtype) -> None:
    arcs = case(dtype)
    scores, epsilon = arcs.scores, arcs.epsilon
    # wider than the layout: nothing would fail, columns would be taken for others
    for wrong in (scores[:, 1:], torch.cat([scores, scores], dim=1), scores[0]):
        with pytest.raises(ValueError, match=r"scores: expected \[rows, 14\].* found \["):
            function(LAYOUT, "max_sum", arcs._replace(scores=wrong))
    for wrong in (epsilon[1:], torch.cat([epsilon, epsilon]), epsilon[None]):
        with pytest.raises(ValueError, match=r"epsilon: expected \[9\].* found \["):
            function(LAYOUT, "max_sum", arcs._replace(epsilon=wrong))


@pytest.mark.parametrize("semiring", ["max_sum", "sum_product"])
@pytest.mark.parametrize("documents", [0, 1, 3])
def test_batches_without_tokens(semiring: str, documents: int) -> None:
    for options in ({}, {"empty_matches": True}):
        layout = Layout((2, 3), **options)
        scores = torch.rand(0, layout.num_scores, requires_grad=True)
        epsilon = torch.rand(layout.num_epsilons, requires_grad=True)
        index, offsets = torch.zeros(0, dtype=torch.long), torch.zeros(documents + 1).long()
        arcs = Arcs(scores, index, offsets, epsilon)
        found = document_scores(layout, semiring, arcs)
        assert found.shape == (documents, 2)
        empty: Any = (
            epsilon[0].expand(documents)
            if options
            else found.new_full((documents,), Semiring.named(semiring).zero)
        )
        assert torch.equal(found[:, 0], empty)
        found[:, 0].sum().backward()
        assert epsilon.grad[0] == (documents if options else 0)
        by_end = end_scores(layout, semiring, arcs)
        assert by_end.scores.shape == (0, 2)
        if Semiring.named(semiring).selects:
            best = best_matches(layout, semiring, arcs)
            assert best.ends.tolist() == [[0 if options else -1, -1]] * documents
            assert best.steps.shape == by_end.steps.shape == (0, 5)


def test_gradients_reach_every_arc_of_the_best_path_and_no_other() -> None:
    """Main path then self-loop then main path, over tokens that share rows."""
    layout = Layout((3,), epsilons=False)
    # Columns: main path 0 and 1, self-loop of state 1.
    scores = torch.tensor([[5.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 4.0, 0.0]], requires_grad=True)
    index, offsets = torch.tensor([2, 0, 1, 1, 2, 0]), torch.tensor([0, 6])
    arcs = Arcs(scores, index, offsets, scores.new_zeros(0))
    score = document_scores(layout, "max_sum", arcs)
    assert score.item() == 5 + 2 + 2 + 4
    score.backward(torch.tensor([[0.5]]))
    assert scores.grad.tolist() == [[0.5, 0, 0], [0, 0, 1.0], [0, 0.5, 0]]


def gradient_norm(semiring: str, scores: Tensor, *others: Tensor) -> Tensor:
    """The squared norm of the gradients of the squared document scores."""
    index, offsets, epsilon = others
    found = document_scores(LAYOUT, semiring, Arcs(scores, index, offsets, epsilon))
    found = found.masked_fill(found.isinf(), 0).square().sum()
    first = torch.autograd.grad(found, (scores, epsilon), create_graph=True)
    return first[0].square().sum() + first[1].square().sum()


@pytest.mark.parametrize("semiring", ["max_sum", "sum_product", "log"])
def test_gradients_can_be_differentiated_again(
    semiring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, *others = (each.requires_grad_(each.is_floating_point()) for each in case())
    index, offsets, epsilon = others
    assert torch.autograd.gradgradcheck(
        lambda scores, epsilon: document_scores(
            LAYOUT, semiring, Arcs(scores, index, offsets, epsilon)
        )[[0, 3]].square(),
        (scores, epsilon),
    )
    # which numpy in the kernel, for float32, could not be
    scores, *others = (
        each.requires_grad_(each.is_floating_point()) for each in case(torch.float32)
    )
    found = torch.autograd.grad(gradient_norm(semiring, scores, *others), (scores, others[2]))
    monkeypatch.setenv("SOPA_KERNEL", "reference")
    expected = torch.autograd.grad(gradient_norm(semiring, scores, *others), (scores, others[2]))
    assert all(each.any() and each.isfinite().all() for each in expected)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("semiring", ["max_sum", "log"])
def test_functions_of_it_are_taken_by_torch_func(semiring: str) -> None:
    scores, index, offsets, epsilon = case(torch.float32)

    def loss(scores: Tensor, epsilon: Tensor) -> Tensor:
        arcs = Arcs(scores, index, offsets, epsilon)
        return document_scores(LAYOUT, semiring, arcs)[0].square().sum()

    found = torch.func.grad(loss, argnums=(0, 1))(scores, epsilon)
    inputs = scores.requires_grad_(), epsilon.requires_grad_()
    torch.testing.assert_close(found, torch.autograd.grad(loss(*inputs), inputs))
