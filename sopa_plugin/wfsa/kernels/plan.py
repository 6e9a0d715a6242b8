"""How the columns of a layout lie in vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.wfsa.layout import Block, Layout

WIDTH = 8
"""Numbers in a vector: one AVX register of float32. (16 on AVX-512 took as long, when measured.)"""


class Plan(NamedTuple):
    """The vector steps of one token, as tables that the kernel runs through.

    State i of pattern p has lane `i * stride + padding + p`: a state has a row of lanes, a multiple
    of `WIDTH`, with the last pattern in the last one. In scores and steps the columns lie close
    together instead, so the first vector of a block may begin in the block before it. The lanes in
    front of a state's first pattern therefore hold numbers without meaning, which nothing reads.
    """

    stride: int
    padding: int
    num_lanes: int
    num_states: int
    epsilon_steps: NDArray[np.int64]  # lanes of the states that an arc leaves, from last to first
    arc_steps: NDArray[np.int64]  # [A]: lanes of all states but START, from the last to the first
    main_columns: NDArray[np.int64]  # [A]: the main-path arcs that lead there, columns of R
    loop_columns: NDArray[np.int64]  # [A]: the self-loops there
    step_columns: NDArray[np.int64]  # [A]: those states, columns of S
    barred: NDArray[np.float32]  # [lanes]: -inf for states without a self-loop, else 0
    start_steps: NDArray[np.int64]  # lanes of START, where START has a self-loop
    start_column: int  # column of R of lane 0's loop at START
    end_steps: NDArray[np.int64]  # lanes of END states
    end_lanes: NDArray[np.int64]  # [K]: lane of each pattern's END
    epsilon_lanes: NDArray[np.int64]  # [Q]: lane of the state that each epsilon leads to
    final: NDArray[np.bool_]  # [Q]: whether the epsilon may follow the last token of a match
    empty: NDArray[np.bool_]  # [Q]: whether the epsilon alone is a match
    empty_matches: bool


@lru_cache(maxsize=256)
def plan_of(layout: Layout) -> Plan:
    """The plan of a layout."""
    num_patterns, num_states = layout.num_patterns, layout.max_length
    stride = -(-num_patterns // WIDTH) * WIDTH
    padding = stride - num_patterns
    boundary = layout.self_loops and layout.boundary_loops
    # shape: [K]
    lengths, patterns = np.array(layout.lengths), np.arange(num_patterns)

    def vectors(state: int, first_pattern: int) -> list[int]:
        """First lanes of the vectors that hold the patterns from `first_pattern` on at `state`."""
        first = (
            (padding + first_pattern) // WIDTH * WIDTH if first_pattern < num_patterns else stride
        )
        return list(range(state * stride + first, (state + 1) * stride, WIDTH))

    def columns(lanes: Sequence[int], blocks: Sequence[Block | None]) -> NDArray[np.int64]:
        """Column of each lane in its state's block; any column, for a lane that is barred."""
        block_of = (blocks[lane // stride] for lane in lanes)
        origins = (block.origin if block else 0 for block in block_of)
        pairs = zip(lanes, origins, strict=True)
        return np.array([origin + lane % stride - padding for lane, origin in pairs], np.int64)

    # The first pattern that leaves or may loop at each state.
    looping = [layout.first_pattern(i + (1 if boundary else 2)) for i in range(num_states)]
    barred = np.full((num_states, stride), -np.inf, np.float32)
    for state in range(0 if boundary else 1, num_states if layout.self_loops else 0):
        barred[state, padding + looping[state] :] = 0
    descending = range(num_states - 1, 0, -1)
    arcs = [lane for i in descending for lane in vectors(i, layout.first_pattern(i + 1))]
    targets, owners, final = _epsilons(layout)
    end_lanes = (lengths - 1) * stride + padding + patterns
    return Plan(
        stride=stride,
        padding=padding,
        num_lanes=num_states * stride,
        num_states=layout.num_states,
        epsilon_steps=np.array([s for i in descending for s in vectors(i, looping[i])], np.int64),
        arc_steps=np.array(arcs, np.int64),
        main_columns=columns(arcs, (None, *layout.main_path)),
        loop_columns=columns(arcs, layout.loops),
        step_columns=columns(arcs, layout.states),
        barred=barred.reshape(-1),
        start_steps=np.array(vectors(0, 0) if boundary else [], np.int64),
        start_column=int(columns([0], layout.loops)[0]) if boundary else 0,
        end_steps=np.unique(end_lanes // WIDTH * WIDTH),
        end_lanes=end_lanes,
        epsilon_lanes=targets * stride + padding + owners,
        final=final,
        empty=final & (targets == 1) & layout.empty_matches,
        empty_matches=layout.empty_matches,
    )


def _epsilons(
    layout: Layout,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The state that each epsilon leads to, whose it is, and whether it may end a match, `[Q]`."""
    pairs = [
        (state, p)
        for state, arc in enumerate(layout.epsilon_arcs, start=1)
        for p in range(arc.first_pattern, layout.num_patterns)
    ]
    targets, owners = np.array(pairs, np.int64).reshape(-1, 2).T
    final = (targets == np.array(layout.lengths)[owners] - 1) & layout.final_epsilon
    # START is reached by a token only through its self-loop, else only a match that is empty
    # takes the epsilon from there.
    loops_at_start = layout.self_loops and layout.boundary_loops
    return targets, owners, final & ((targets > 1) | loops_at_start | layout.empty_matches)


class Origins(NamedTuple):
    """Where arcs and states are: pattern p's has column `origin + p`, for patterns from `first`."""

    lengths: NDArray[np.int64]  # [K]: number of states
    main_path: NDArray[np.int64]  # [states - 1]: origins, in R and in Q
    main_firsts: NDArray[np.int64]
    loops: NDArray[np.int64]  # [states]: origins, in R
    loop_firsts: NDArray[np.int64]  # K, where no pattern has a self-loop
    states: NDArray[np.int64]  # [states]: origins, in S
    final_epsilon: bool
    empty_matches: bool


@lru_cache(maxsize=256)
def origins_of(layout: Layout) -> Origins:
    """The columns of a layout, for kernels."""

    def origins(blocks: Sequence[Block | None]) -> NDArray[np.int64]:
        return np.array([block.origin if block else 0 for block in blocks], np.int64)

    def firsts(blocks: Sequence[Block | None]) -> NDArray[np.int64]:
        none = layout.num_patterns
        return np.array([block.first_pattern if block else none for block in blocks], np.int64)

    return Origins(
        np.array(layout.lengths, np.int64),
        origins(layout.main_path),
        firsts(layout.main_path),
        origins(layout.loops),
        firsts(layout.loops),
        origins(layout.states),
        layout.final_epsilon,
        layout.empty_matches,
    )
