"""The recurrence in torch operations, one token at a time: the specification of every kernel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from sopa_plugin.wfsa.layout import EPSILON, SELF_LOOP, Arcs, BestMatches, EndScores, Layout
from sopa_plugin.wfsa.semirings import Semiring


class StateColumns(NamedTuple):
    """Where the recurrence looks, as columns of the states `S` (see `Layout.states`)."""

    previous: list[int]  # for each state but START: the state before it, [S - K]
    loops: list[int]  # for each state: its self-loop in R, R where it has none, [S]
    ends: list[int]  # the END states, [K]


@lru_cache(maxsize=256)
def columns_of(layout: Layout) -> StateColumns:
    """The columns of `layout`."""
    num_patterns = layout.num_patterns
    previous = [
        before.origin + pattern
        for before, state in pairwise(layout.states)
        for pattern in range(state.first_pattern, num_patterns)
    ]
    loops = [
        loop.origin + pattern if loop and pattern >= loop.first_pattern else layout.num_scores
        for state, loop in zip(layout.states, layout.loops, strict=True)
        for pattern in range(state.first_pattern, num_patterns)
    ]
    ends = [layout.states[length - 1].origin + p for p, length in enumerate(layout.lengths)]
    return StateColumns(previous, loops, ends)


class Turn(NamedTuple):
    """What one token brings."""

    state: Tensor  # scores of the best (or all) paths into each state, [B, S]
    scores: Tensor  # scores of the matches that end at this token, [B, K]
    steps: Tensor  # how each state was reached, uint8 [B, S]; empty unless tracing
    final: Tensor  # whether those matches end with an epsilon, uint8 [B, K]; empty unless tracing


class Recurrence:
    """g_t = plus(eps(g_{t-1})·T(x_t), π) for a set of patterns (paper, Eq. 7-8).

    A main-path arc arrives in state column `K + c` from column `previous[c]`; since every state
    but START has one, main-path scores `[S - K]` and epsilons `[S - K]` line up with the states.

    Arguments:
        layout: the patterns.
        semiring: how scores combine.
        epsilon: epsilon scores `[Q]`.
        trace: whether steps tell how each state was reached (semirings that select only).
    """

    def __init__(
        self, layout: Layout, semiring: Semiring, epsilon: Tensor, trace: bool = False
    ) -> None:
        columns = columns_of(layout)
        device = epsilon.device
        self.layout = layout
        self.semiring = semiring
        self.epsilon = epsilon
        self.trace = trace
        self.previous = torch.tensor(columns.previous, device=device)
        self.loops = torch.tensor(columns.loops, device=device)
        self.ends = torch.tensor(columns.ends, device=device)

    def start(self, batch: int) -> Tensor:
        """π: one at START, zero elsewhere, `[batch, S]`."""
        state = self.epsilon.new_full((batch, self.layout.num_states), self.semiring.zero)
        state[:, : self.layout.num_patterns] = self.semiring.one
        return state

    def take_epsilons(self, state: Tensor) -> Tensor:
        """eps(state): zero or one epsilon from each state."""
        if not self.layout.epsilons:
            return state
        k = self.layout.num_patterns
        by_epsilon = self.semiring.times(state[:, self.previous], self.epsilon)
        return torch.cat([state[:, :k], self.semiring.plus(state[:, k:], by_epsilon)], dim=1)

    def consume(self, state: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """state·T(x), `[B, S]`, and the same by main-path arcs alone; `scores [B, R]` are x's."""
        k, s = self.layout.num_patterns, self.layout.num_states
        start = state.new_full((len(state), k), self.semiring.zero)
        # shape: [batch, S]
        main = torch.cat(
            [start, self.semiring.times(state[:, self.previous], scores[:, : s - k])], dim=1
        )
        if not self.layout.self_loops:
            return main, main
        # States without a self-loop have one of score zero.
        padded = torch.cat([scores, scores.new_full((len(scores), 1), self.semiring.zero)], dim=1)
        looped = self.semiring.times(state, padded[:, self.loops])
        return self.semiring.plus(main, looped), main

    def read(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of matches at END `[B, K]`, and whether they end with an epsilon."""
        reached = self.take_epsilons(state) if self.layout.final_epsilon else state
        scores = reached[:, self.ends]
        return scores, self._changed(scores, state[:, self.ends])

    def restart(self, moved: Tensor) -> Tensor:
        """plus(π, moved): a match may start after this token, too."""
        k = self.layout.num_patterns
        one = torch.full_like(moved[:, :k], self.semiring.one)
        return torch.cat([self.semiring.plus(one, moved[:, :k]), moved[:, k:]], dim=1)

    def step(self, state: Tensor, scores: Tensor) -> Turn:
        """Consumes one token of each document: `scores [B, R]` are its arc scores."""
        before = self.take_epsilons(state)
        moved, main = self.consume(before, scores)
        after = self.restart(moved)
        read, final = self.read(after if self.layout.empty_matches else moved)
        if not self.trace:
            return Turn(after, read, final, final)
        k = self.layout.num_patterns
        one = torch.full_like(main[:, :k], self.semiring.one)
        unlooped = torch.cat([one, main[:, k:]], dim=1)
        steps = self._changed(after, unlooped) * SELF_LOOP + self._changed(before, state) * EPSILON
        return Turn(after, read, steps, final)

    def _changed(self, chosen: Tensor, kept: Tensor) -> Tensor:
        """Where `plus` did not keep its first operand: uint8, empty unless tracing."""
        if not self.trace:
            return chosen.new_empty(0, dtype=torch.uint8)
        return (chosen != kept).to(torch.uint8)


class Scan:
    """Runs a recurrence over packed documents: which tokens are read at each time, and the turn.

    Documents are taken longest first, so that those still running are always the first ones and
    no time step computes anything for a finished document.
    """

    def __init__(self, recurrence: Recurrence, arcs: Arcs) -> None:
        scores, index, offsets, _ = arcs
        if len(index) and int(index.min()) < 0:
            raise IndexError(f"expected an index of rows 0 to {len(scores) - 1} of scores")
        self.recurrence = recurrence
        self.lengths, self.order = offsets.diff().sort(descending=True, stable=True)
        self.initial = recurrence.start(len(self.order))
        longest = int(self.lengths[0]) if len(self.lengths) else 0
        steps = torch.arange(longest, device=offsets.device)
        # shape: [time]; documents that have a token at that time
        active = (self.lengths > steps[:, None]).sum(dim=1)
        self.active = [int(count) for count in active]  # in torch.func, torch 2.8 has no `tolist`
        starts = offsets[:-1][self.order]
        self.positions = [starts[:count] + t for t, count in enumerate(self.active)]
        # One gather for all time steps: its backward pass then writes each row's gradient once.
        # shape: [tokens, R]
        gathered = scores[index[torch.cat(self.positions)]] if longest else scores[:0]
        self.scores = gathered.split(self.active) if longest else ()

    def __iter__(self) -> Iterator[tuple[Tensor, Turn]]:
        state = self.initial
        for count, positions, scores in zip(self.active, self.positions, self.scores, strict=True):
            turn = self.recurrence.step(state[:count], scores)
            state = turn.state
            yield positions, turn


def document_scores(
    layout: Layout, semiring: Semiring, arcs: Arcs, keep_paths: bool = False
) -> BestMatches:
    """Document scores and how they come about: what `dispatch.Kernel.forward` describes."""
    recurrence = Recurrence(layout, semiring, arcs.epsilon, trace=keep_paths)
    scan = Scan(recurrence, arcs)
    best = torch.full_like(scan.initial[:, : layout.num_patterns], semiring.zero)
    if layout.empty_matches:
        best, _ = recurrence.read(scan.initial)
    # An empty match can only be an epsilon from START to END.
    final = (best != semiring.zero).to(torch.uint8)
    ends = final.to(torch.int32) - 1
    shape = (len(arcs.index), layout.num_states) if keep_paths else (0,)
    steps = torch.zeros(shape, dtype=torch.uint8, device=arcs.index.device)
    finished: list[tuple[Tensor, ...]] = []
    for t, (positions, turn) in enumerate(scan, start=1):
        count = len(positions)
        if count < len(best):
            finished.append((best[count:], ends[count:], final[count:]))
            best, ends, final = best[:count], ends[:count], final[:count]
        kept, best = best, semiring.plus(best, turn.scores)
        if keep_paths:
            improved = best != kept
            ends = ends.masked_fill(improved, t)
            final = torch.where(improved, turn.final, final)
            steps[positions] = turn.steps
    finished.append((best, ends, final))
    best, ends, final = (
        torch.cat(parts[::-1])[scan.order.argsort()] for parts in zip(*finished, strict=True)
    )
    if not keep_paths:
        return BestMatches(best, ends.new_empty(0), final.new_empty(0), steps)
    return BestMatches(best, ends, final, steps)


def end_scores(recurrence: Recurrence, arcs: Arcs) -> EndScores:
    """Scores of the matches that end at each token; `final` and `steps` are empty unless tracing.

    Arguments:
        recurrence: with the same epsilon scores as `arcs`.
        arcs: the documents.
    """
    scanned = list(Scan(recurrence, arcs))
    layout = recurrence.layout
    if not scanned:
        none = torch.zeros(0, layout.num_patterns, dtype=torch.uint8, device=arcs.index.device)
        scores = arcs.scores.new_zeros(none.shape)
        return EndScores(scores, none, none.new_zeros(0, layout.num_states))
    # shape: [tokens]; the packed order
    order = torch.cat([positions for positions, _ in scanned]).argsort()
    turns = [turn for _, turn in scanned]
    found = torch.cat([turn.scores for turn in turns])[order]
    if not recurrence.trace:
        return EndScores(found, turns[0].final, turns[0].steps)
    final, steps = (
        torch.cat([getattr(turn, name) for turn in turns])[order] for name in ("final", "steps")
    )
    return EndScores(found, final, steps)
