"""Document scores as one differentiable operator over packed tokens.

`sopa::document_scores` is a `torch.library` custom op: one node under `torch.compile` and
`torch.export`, with document number and length left dynamic. Inside, `dispatch.choose_kernel` picks
a kernel or the reference recurrence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sopa_plugin.wfsa import reference
from sopa_plugin.wfsa.dispatch import Kernel, choose_kernel
from sopa_plugin.wfsa.layout import Layout
from sopa_plugin.wfsa.semirings import Semiring
from sopa_plugin.wfsa.torch_operators import register_operator

_layout = lru_cache(maxsize=256)(Layout)


def _kernel(semiring: str, scores: Tensor) -> Kernel | None:
    return choose_kernel(semiring, scores.device, scores.dtype)


def _compute(
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    semiring: str,
    lengths: Sequence[int],
    options: Sequence[bool],
    keep_paths: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    layout = _layout(tuple(lengths), *options)
    kernel = _kernel(semiring, scores)
    if kernel is None:
        algebra = Semiring.named(semiring)
        return reference.document_scores(
            layout, algebra, scores, index, offsets, epsilon, keep_paths
        )
    # Positions and indices are int64 and everything is contiguous: what kernels count on.
    return kernel.forward(layout, scores, index, offsets, epsilon, keep_paths)


def _fake(
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    semiring: str,
    lengths: Sequence[int],
    options: Sequence[bool],
    keep_paths: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    best = (offsets.shape[0] - 1, len(lengths))
    steps = (index.shape[0], sum(lengths))
    return (
        scores.new_empty(best),
        scores.new_empty(best if keep_paths else (0,), dtype=torch.int32),
        scores.new_empty(best if keep_paths else (0,), dtype=torch.uint8),
        scores.new_empty(steps if keep_paths else (0,), dtype=torch.uint8),
    )


def _compute_backward(
    grad: Tensor,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    ends: Tensor,
    final: Tensor,
    steps: Tensor,
    semiring: str,
    lengths: Sequence[int],
    options: Sequence[bool],
) -> tuple[Tensor, Tensor]:
    layout = _layout(tuple(lengths), *options)
    kernel = _kernel(semiring, scores)
    # Where gradients are to be differentiated again (`create_graph`), kernels leave no graph.
    if kernel is not None and not torch.is_grad_enabled():
        return kernel.backward(layout, grad, index, offsets, ends, final, steps, len(scores))

    def recompute(scores: Tensor, epsilon: Tensor) -> Tensor:
        algebra = Semiring.named(semiring)
        return reference.document_scores(layout, algebra, scores, index, offsets, epsilon)[0]

    # torch.func works inside an operator, where autograd itself is switched off.
    grad_scores, grad_epsilon = torch.func.vjp(recompute, scores, epsilon)[1](grad)
    return grad_scores.clone(), grad_epsilon.clone()


def _fake_backward(
    grad: Tensor,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    ends: Tensor,
    final: Tensor,
    steps: Tensor,
    semiring: str,
    lengths: Sequence[int],
    options: Sequence[bool],
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scores), torch.empty_like(epsilon)


_backward = register_operator("document_scores_backward", _compute_backward, _fake_backward)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    scores, index, offsets, epsilon, *ctx.settings, _ = inputs
    _, ends, final, steps = output
    ctx.mark_non_differentiable(ends, final, steps)
    ctx.set_materialize_grads(False)  # of steps, it would be as large
    ctx.save_for_backward(scores, index, offsets, epsilon, ends, final, steps)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 8
    grads = _backward(grad.contiguous(), *ctx.saved_tensors, *ctx.settings)
    return grads[0], None, None, grads[1], None, None, None, None


_forward = register_operator("document_scores", _compute, _fake, _save, _differentiate)


class BestMatches(NamedTuple):
    """Where and how the best match of each pattern in each document runs.

    `paths.best_path` reads a match out of it.
    """

    scores: Tensor
    """Document scores `[B, K]`."""
    ends: Tensor
    """Tokens up to the match's end, int32 `[B, K]`; 0: it is empty; -1: there is no match."""
    final: Tensor
    """Whether the match ends with an epsilon, uint8 `[B, K]`."""
    steps: Tensor
    """How each state was reached at each token, uint8 `[M, S]`: `SELF_LOOP`, `EPSILON`."""


def _call(
    layout: Layout,
    semiring: str,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    keep_paths: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    options = (
        layout.self_loops,
        layout.epsilons,
        layout.boundary_loops,
        layout.final_epsilon,
        layout.empty_matches,
    )
    scores, epsilon = checked(layout, scores, epsilon)
    outputs: tuple[Tensor, Tensor, Tensor, Tensor] = _forward(
        scores.contiguous(),
        index.long().contiguous(),
        offsets.long().contiguous(),
        epsilon.contiguous(),
        semiring,
        layout.lengths,
        options,
        keep_paths,
    )
    return outputs


def at_least_float32(scores: Tensor) -> Tensor:
    """`scores`, in float32 if they come in half precision."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def checked(layout: Layout, scores: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """Arc scores `[N, R]` and epsilon scores `[Q]`, at least in float32.

    Raises:
        ValueError: their columns are not the layout's.
    """
    if scores.dim() != 2 or scores.shape[1] != layout.num_scores:
        expected, found = f"[rows, {layout.num_scores}]", list(scores.shape)
        raise ValueError(f"scores: expected {expected}, as the layout has arcs; found {found}")
    if epsilon.dim() != 1 or epsilon.shape[0] != layout.num_epsilons:
        expected, found = f"[{layout.num_epsilons}]", list(epsilon.shape)
        raise ValueError(f"epsilon: expected {expected}, as the layout has epsilons; found {found}")
    return at_least_float32(scores), at_least_float32(epsilon)


def document_scores(
    layout: Layout,
    semiring: str,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
) -> Tensor:
    """How well each pattern matches each document (paper, Eq. 6-8): `[B, K]`, differentiable.

    Arguments:
        layout: the patterns and how matches are read.
        semiring: the registered name of the semiring; values are as it holds them, logarithms in
            max-product.
        scores: arc scores of distinct token rows, `[N, R]`. Half precision is computed in float32.
        index: which row each token of the batch is, `[M]`.
        offsets: where each document starts in `index`, `[B + 1]`.
        epsilon: epsilon scores, `[Q]`.

    Returns:
        The best match's score or, where the semiring sums, the sum over all spans (the expected
        count); the semiring's zero where nothing matches.

    Raises:
        ValueError: the columns of `scores` or `epsilon` are not the layout's.
    """
    needs_paths = torch.is_grad_enabled() and (scores.requires_grad or epsilon.requires_grad)
    keep_paths = needs_paths and Semiring.named(semiring).selects
    return _call(layout, semiring, scores, index, offsets, epsilon, keep_paths)[0]


def best_matches(
    layout: Layout,
    semiring: str,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
) -> BestMatches:
    """The best match of each pattern in each document; arguments as in `document_scores`.

    Ties go to the earliest end, then to no epsilon before an epsilon, the main path before a
    self-loop, and a match that starts afresh before one that looped at START.

    Raises:
        ValueError: the semiring sums over paths, so that no path is best.
    """
    if not Semiring.named(semiring).selects:
        raise ValueError(f"{semiring} sums over paths: there is no best match")
    with torch.no_grad():
        return BestMatches(*_call(layout, semiring, scores, index, offsets, epsilon, True))


def end_scores(
    layout: Layout,
    semiring: str,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
) -> Tensor:
    """Scores of the matches that end at each token, `[M, K]`; arguments as in `document_scores`.

    No gradient.
    """
    with torch.no_grad():
        scores, epsilon = (each.contiguous() for each in checked(layout, scores, epsilon))
        kernel = _kernel(semiring, scores)
        index, offsets = index.long().contiguous(), offsets.long().contiguous()
        if kernel is not None:
            return kernel.end_scores(layout, scores, index, offsets, epsilon)
        recurrence = reference.Recurrence(layout, Semiring.named(semiring), epsilon)
        return reference.end_scores(recurrence, scores, index, offsets)[0]
