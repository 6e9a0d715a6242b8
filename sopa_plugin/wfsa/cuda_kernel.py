"""The recurrence on CUDA devices: max semirings in float32, in Triton.

An implementation of `dispatch.Kernel`. The backward pass is deterministic: it notes the arc that
each best path takes at each token (two bytes a token and pattern) and then adds up, row by row,
the tokens that share it, in their order; epsilons are added up document by document. No atomics.

`TRITON_INTERPRET=1`, set before this is imported, runs it on CPU tensors: slowly, for tests.
It has been tested that way, and compiled for GPUs, but it has not run on one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from sopa_plugin.wfsa.kernels import max_plus_triton
from sopa_plugin.wfsa.layout import Block, Layout

BLOCK = 32
"""Patterns in a program: one warp, a pattern a thread."""


class Tables(NamedTuple):
    """Where columns are: that of pattern p is `start + p`, for patterns from `first` on."""

    lengths: Tensor  # [K]
    main_starts: Tensor  # [states - 1], in R and in Q
    main_firsts: Tensor
    loop_starts: Tensor  # [states], in R
    loop_firsts: Tensor
    state_starts: Tensor  # [states], in S


@lru_cache(maxsize=256)
def _tables(layout: Layout, device: torch.device) -> Tables:
    def starts(blocks: Sequence[Block | None]) -> list[int]:
        return [block.start - block.first_pattern if block else 0 for block in blocks]

    def firsts(blocks: Sequence[Block | None]) -> list[int]:
        return [block.first_pattern if block else layout.num_patterns for block in blocks]

    lists = (
        layout.lengths,
        starts(layout.main_path),
        firsts(layout.main_path),
        starts(layout.loops),
        firsts(layout.loops),
        starts(layout.states),
    )
    return Tables(*(torch.tensor(numbers, device=device) for numbers in lists))


def forward(
    layout: Layout,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    keep_paths: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Document scores and, with `keep_paths`, the best paths; see `dispatch.Kernel`.

    Raises:
        ValueError: the columns of `scores` or `epsilon` are not the layout's.
    """
    best = (len(offsets) - 1, layout.num_patterns)
    document_scores = scores.new_empty(best, dtype=torch.float32)
    ends = index.new_empty(best if keep_paths else 0, dtype=torch.int32)
    final = index.new_empty(best if keep_paths else 0, dtype=torch.uint8)
    shape = (len(index), layout.num_states) if keep_paths else 0
    steps = index.new_empty(shape, dtype=torch.uint8)
    outputs = (document_scores, ends, final, steps, document_scores)
    _run(layout, scores, index, offsets, epsilon, outputs, PATHS=keep_paths, ENDS=False)
    return document_scores, ends, final, steps


def end_scores(
    layout: Layout, scores: Tensor, index: Tensor, offsets: Tensor, epsilon: Tensor
) -> Tensor:
    """Score of the best match ending at each token, `[M, K]`; see `dispatch.Kernel`.

    Raises as `forward` does.
    """
    best = scores.new_empty((len(offsets) - 1, layout.num_patterns), dtype=torch.float32)
    found = scores.new_empty((len(index), layout.num_patterns), dtype=torch.float32)
    outputs = (best, best, best, best, found)
    _run(layout, scores, index, offsets, epsilon, outputs, PATHS=False, ENDS=True)
    return found


def backward(
    layout: Layout,
    grad: Tensor,
    index: Tensor,
    offsets: Tensor,
    ends: Tensor,
    final: Tensor,
    steps: Tensor,
    num_rows: int,
) -> tuple[Tensor, Tensor]:
    """Gradients of `scores [N, R]` and `epsilon [Q]` along the best paths; see `dispatch.Kernel`.

    Takes what `forward` gave for the same `index` and `offsets`.
    """
    grad, tables = grad.float().contiguous(), _tables(layout, grad.device)
    batch, num_patterns = grad.shape
    # shape: [M, K], [B, Q], [N, R]
    arcs = index.new_empty((len(index), num_patterns), dtype=torch.int16)
    by_document = grad.new_zeros((batch, layout.num_epsilons))
    grad_scores = grad.new_empty((num_rows, layout.num_scores))
    blocks = triton.cdiv(num_patterns, BLOCK)
    if batch:
        max_plus_triton.walk_back[(batch, blocks)](
            grad,
            offsets,
            tables.lengths,
            tables.main_starts,
            tables.state_starts,
            ends,
            final,
            steps,
            arcs,
            by_document,
            num_patterns,
            layout.num_states,
            layout.num_epsilons,
            BLOCK=BLOCK,
            EMPTY=layout.empty_matches,
            num_warps=1,
        )
    if num_rows:
        # shape: [M], [N + 1], [M]
        rows, order = index.sort(stable=True)
        row_offsets = torch.searchsorted(rows, torch.arange(num_rows + 1, device=index.device))
        tokens = torch.arange(len(index), device=index.device)
        documents = torch.searchsorted(offsets, tokens, right=True) - 1
        max_plus_triton.sum_by_row[(num_rows, blocks)](
            grad,
            order,
            row_offsets,
            documents,
            arcs,
            *tables[1:5],
            grad_scores,
            num_patterns,
            layout.num_scores,
            STATES=layout.max_length,
            BLOCK=BLOCK,
            LOOPS=layout.self_loops,
            num_warps=1,
        )
    return grad_scores, by_document.sum(dim=0)


def _run(
    layout: Layout,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    outputs: tuple[Tensor, ...],
    **wanted: Any,
) -> None:
    if scores.shape[1:] != (layout.num_scores,):
        raise ValueError(f"scores: expected [rows, {layout.num_scores}], found {scores.shape}")
    if epsilon.shape != (layout.num_epsilons,):
        raise ValueError(f"epsilon: expected [{layout.num_epsilons}], found {epsilon.shape}")
    if len(offsets) == 1:
        return
    max_plus_triton.run[(len(offsets) - 1, triton.cdiv(layout.num_patterns, BLOCK))](
        scores.float().contiguous(),
        index.contiguous(),
        offsets.contiguous(),
        epsilon.float().contiguous(),
        *_tables(layout, scores.device),
        *outputs,
        layout.num_patterns,
        layout.num_scores,
        layout.num_states,
        STATES=layout.max_length,
        BLOCK=BLOCK,
        EPSILONS=layout.epsilons,
        LOOPS=layout.self_loops,
        BOUNDARY=layout.self_loops and layout.boundary_loops,
        FINAL=layout.final_epsilon and layout.epsilons,
        EMPTY=layout.empty_matches,
        num_warps=1,
        **wanted,
    )
