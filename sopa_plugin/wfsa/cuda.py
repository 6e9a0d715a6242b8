"""The recurrence on CUDA devices, in float32, in Triton.

An implementation of `dispatch.Kernel`. The backward pass is deterministic. Of max semirings it
walks back along the best paths and adds up gradients atomically, as whole numbers of a unit that no
sum can overflow. Of semirings that sum over paths it runs the recurrence again, keeping all states,
and back; each token has gradients of its own, which are added up for each row as those of embedded
words are.

`TRITON_INTERPRET=1`, set before this is imported, runs it on CPU tensors: slowly, for tests.
On an H200 max semirings gave the CPU kernel's scores bit for bit; sums have not run on a GPU yet.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor

from sopa_plugin.wfsa.dispatch import MAX_SEMIRINGS
from sopa_plugin.wfsa.kernels import triton as triton_kernels
from sopa_plugin.wfsa.kernels.plan import origins_of
from sopa_plugin.wfsa.layout import Arcs, BestMatches, EndScores, Layout

BLOCK = 32
"""Patterns in a program: one warp, a pattern a thread."""

CELLS = 1024
"""Gradients that a program turns into floats."""


@lru_cache(maxsize=256)
def _tables(layout: Layout, device: torch.device) -> list[Tensor]:
    """The first six tables of `Origins`."""
    return [torch.from_numpy(each).to(device) for each in origins_of(layout)[:6]]


def forward(layout: Layout, semiring: str, arcs: Arcs, keep_paths: bool) -> BestMatches:
    """The best matches of documents, or sums over all; see `dispatch.Kernel`."""
    matches = BestMatches.unfilled(layout, arcs, keep_paths)
    if semiring not in MAX_SEMIRINGS:
        _run_sums(layout, semiring, arcs, matches.scores)
        return matches
    _run(layout, arcs, matches, matches.scores, matches.final, PATHS=keep_paths, ENDS=False)
    return matches


def end_scores(layout: Layout, arcs: Arcs) -> EndScores:
    """The best matches that end at each token; see `dispatch.Kernel`."""
    found, matches = EndScores.unfilled(layout, arcs), BestMatches.unfilled(layout, arcs, True)
    _run(layout, arcs, matches, found.scores, found.final, PATHS=True, ENDS=True)
    return found._replace(steps=matches.steps)


def backward(
    layout: Layout, semiring: str, grad: Tensor, arcs: Arcs, *paths: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of `scores [N, R]` and `epsilon [Q]`; see `dispatch.Kernel`.

    Takes what `forward` gave for the same `arcs`.
    """
    if semiring not in MAX_SEMIRINGS:
        return _sums_backward(layout, semiring, grad.float().contiguous(), arcs)
    index, offsets, num_rows = arcs.index, arcs.offsets, len(arcs.scores)
    grad = grad.float().contiguous()
    lengths, main_starts, _, loop_starts, _, state_starts = _tables(layout, grad.device)
    batch, num_patterns = grad.shape
    num_cells = num_rows * layout.num_scores
    count = num_cells + layout.num_epsilons
    floats = grad.new_empty(count)
    if not batch:
        floats.zero_()
    else:
        # Each token adds at most once to a pattern's arcs, each document to an epsilon.
        bits = (len(index) + batch).bit_length()
        largest = torch.linalg.vector_norm(grad, torch.inf)
        sums = torch.zeros(count, dtype=torch.int64, device=grad.device)
        # Triton launches on the current device, which need not be the tensors'.
        with torch.cuda.device_of(grad):
            triton_kernels.walk_back[(batch, triton.cdiv(num_patterns, BLOCK))](
                grad,
                largest,
                index,
                offsets,
                lengths,
                main_starts,
                loop_starts,
                state_starts,
                *paths,
                sums,
                num_patterns,
                layout.num_scores,
                layout.num_states,
                num_cells,
                bits,
                BLOCK=BLOCK,
                EMPTY=layout.empty_matches,
                num_warps=1,
            )
            triton_kernels.to_floats[(triton.cdiv(count, CELLS),)](
                sums, largest, floats, count, bits, BLOCK=CELLS
            )
    return floats[:num_cells].view(num_rows, layout.num_scores), floats[num_cells:]


def _run(
    layout: Layout,
    arcs: Arcs,
    matches: BestMatches,
    end_scores: Tensor,
    end_final: Tensor,
    **wanted: bool,
) -> None:
    if not len(arcs.scores):
        arcs = arcs._replace(scores=arcs.scores.new_zeros(1, layout.num_scores))
    boundary = layout.self_loops and layout.boundary_loops
    output = (*matches, end_scores, end_final)
    _launch(triton_kernels.run, layout, arcs, *output, BOUNDARY=boundary, **wanted)


def _run_sums(
    layout: Layout, semiring: str, arcs: Arcs, scores: Tensor, states: Tensor | None = None
) -> None:
    """Fills document scores `[B, K]` and, if asked for, the `states [M, S]` after each token."""
    flags = {"LOGS": semiring == "log", "KEEP": states is not None}
    kept = scores if states is None else states
    _launch(triton_kernels.run_sums, layout, arcs, scores, kept, **flags)


def _sums_backward(
    layout: Layout, semiring: str, grad: Tensor, arcs: Arcs
) -> tuple[Tensor, Tensor]:
    num_rows, num_tokens, batch = len(arcs.scores), len(arcs.index), len(grad)
    scores, states = torch.empty_like(grad), grad.new_empty(num_tokens, layout.num_states)
    _run_sums(layout, semiring, arcs, scores, states)
    # those of tokens behind the last document stay zero
    for_tokens = grad.new_zeros(num_tokens, layout.num_scores)
    for_epsilon = grad.new_zeros(batch, layout.num_epsilons)
    _launch(
        triton_kernels.sums_back,
        layout,
        arcs,
        *(grad, scores, states, for_tokens, for_epsilon, layout.num_epsilons),
        LOGS=semiring == "log",
    )
    for_rows = torch.ops.aten.embedding_dense_backward(for_tokens, arcs.index, num_rows, -1, False)
    return for_rows, for_epsilon.sum(0)


def _launch(kernel: Any, layout: Layout, arcs: Arcs, *more: Any, **flags: bool) -> None:
    """Runs a kernel over all documents and patterns; nothing where there is no document."""
    batch = len(arcs.offsets) - 1
    if not batch:
        return
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device_of(arcs.scores):
        kernel[(batch, triton.cdiv(layout.num_patterns, BLOCK))](
            *arcs,
            *_tables(layout, arcs.scores.device),
            layout.num_patterns,
            layout.num_scores,
            layout.num_states,
            *more,
            STATES=layout.max_length,
            BLOCK=BLOCK,
            EPSILONS=layout.epsilons,
            LOOPS=layout.self_loops,
            FINAL=layout.final_epsilon and layout.epsilons,
            EMPTY=layout.empty_matches,
            num_warps=1,
            **flags,
        )
