"""Matches spelt out: which arc consumed which word, and where an epsilon was taken."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.wfsa import reference
from sopa_plugin.wfsa.layout import Layout
from sopa_plugin.wfsa.operator import BestMatches, checked
from sopa_plugin.wfsa.reference import EPSILON, SELF_LOOP
from sopa_plugin.wfsa.semirings import Semiring


class Arc(NamedTuple):
    """An arc that a match takes, and the token of the document that it consumes."""

    kind: Literal["main_path", "self_loop", "epsilon"]
    state: int  # where it starts; it ends there (self-loop) or at the next state
    token: int | None  # position in the document, from 0; None for an epsilon


@dataclass(frozen=True)
class Match:
    """A match of a pattern: it consumes the document's tokens `start` to `end - 1`."""

    score: float  # the semiring's value: in max-product a logarithm
    start: int
    end: int
    arcs: tuple[Arc, ...]


def trace(
    layout: Layout, steps: NDArray[np.uint8], pattern: int, end: int, final: bool
) -> tuple[Arc, ...]:
    """The arcs of the best match of `pattern` that ends after `end` tokens, in order.

    Arguments:
        layout: the patterns.
        steps: how each state was reached at each token of the document, uint8 `[tokens, S]`.
        pattern: which pattern.
        end: number of tokens up to the match's end.
        final: whether the match ends with an epsilon.
    """
    columns = [
        block.start + pattern - block.first_pattern
        for block in layout.states[: layout.lengths[pattern]]
    ]
    state, arcs = len(columns) - 1, []
    if final:
        state -= 1
        arcs.append(Arc("epsilon", state, None))
    # A match that has consumed nothing when it reaches START has begun there, unless an epsilon
    # leads from START to END at its end: then it must have looped at START, if it may not be empty.
    must_loop = final and state == 0 and not layout.empty_matches
    for token in range(end - 1, -1, -1):
        step = steps[token, columns[state]]
        if step & SELF_LOOP or must_loop:
            arcs.append(Arc("self_loop", state, token))
        elif state:
            state -= 1
            arcs.append(Arc("main_path", state, token))
        else:
            break
        must_loop = False
        # Before that token, the state that the arc left may have been reached by an epsilon.
        if state and steps[token, columns[state]] & EPSILON:
            state -= 1
            arcs.append(Arc("epsilon", state, None))
    return tuple(reversed(arcs))


def _match(
    layout: Layout, score: float, steps: NDArray[np.uint8], pattern: int, end: int, final: bool
) -> Match:
    arcs = trace(layout, steps, pattern, end, final)
    consumed = sum(arc.token is not None for arc in arcs)
    return Match(score, end - consumed, end, arcs)


def spell_out(layout: Layout, matches: BestMatches, offsets: Tensor) -> list[list[Match | None]]:
    """The best match of each pattern in each document, `[B][K]`; None where there is none."""
    bounds, steps = offsets.tolist(), matches.steps.cpu().numpy()
    scores, ends, finals = (each.tolist() for each in matches[:3])
    return [
        [
            _match(layout, score, steps[start:stop], pattern, end, bool(final))
            if end >= 0
            else None
            for pattern, (score, end, final) in enumerate(zip(*document, strict=True))
        ]
        for start, stop, *document in zip(
            bounds[:-1], bounds[1:], scores, ends, finals, strict=True
        )
    ]


def k_best_matches(
    layout: Layout,
    semiring: str,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    k: int,
) -> list[list[list[Match]]]:
    """The `k` best matches of each pattern in each document, best first, `[B][K][at most k]`.

    A match is the best path of one end position, so no two end at the same token; of equal ones the
    earlier comes first. Arguments as in `operator.document_scores`; runs on the reference.

    Raises:
        ValueError: the semiring sums over paths, so that none is best.
    """
    algebra = Semiring.named(semiring)
    if not algebra.selects:
        raise ValueError(f"{semiring} sums over paths: there is no best match")
    with torch.no_grad():
        scores, epsilon = checked(layout, scores, epsilon)
        recurrence = reference.Recurrence(layout, algebra, epsilon, trace=True)
        found, final, steps = reference.end_scores(recurrence, scores, index, offsets)
        empty = recurrence.read(recurrence.start(1))[0]
    if not layout.empty_matches:
        empty = torch.full_like(empty, algebra.zero)
    # Row 0 of each document is the match that ends before its first token: an epsilon, if any.
    found = torch.cat([empty, found]).cpu()
    final = torch.cat([final.new_ones(1, layout.num_patterns), final]).cpu()
    bounds, traced = offsets.tolist(), steps.cpu().numpy()
    results = []
    for start, stop in pairwise(bounds):
        rows = torch.tensor([0, *range(start + 1, stop + 1)])
        best, ends = found[rows].sort(dim=0, descending=True, stable=True)
        finals = final[rows].gather(0, ends)
        ranked = zip(best.T.tolist(), ends.T.tolist(), finals.T.tolist(), strict=True)
        results.append(
            [
                [
                    _match(layout, score, traced[start:stop], pattern, end, bool(last))
                    for score, end, last in list(zip(*columns, strict=True))[:k]
                    if score != algebra.zero
                ]
                for pattern, columns in enumerate(ranked)
            ]
        )
    return results
