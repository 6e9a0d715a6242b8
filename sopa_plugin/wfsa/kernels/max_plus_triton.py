"""The recurrence over max and plus in Triton: one program for a document and a block of patterns.

A program holds the states of its patterns in registers, as a tuple of vectors over the patterns:
state i of all of them is element i. Tables tell where columns are: an arc's (or a state's) column
for pattern p is `start[i] + p`, for the patterns from `first[i]` on. What a pattern does not have
scores -inf.
"""

# Triton's language is a part of Python's: its tuples grow by `+`, and types are its own.
# ruff: noqa: RUF005
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _scores_of(row, starts, firsts, i: tl.constexpr, patterns, num_patterns):
    """Scores of arc (or state) `i` of each pattern at a row; -inf where there is none."""
    there = (patterns >= tl.load(firsts + i)) & (patterns < num_patterns)
    return tl.load(row + tl.load(starts + i) + patterns, mask=there, other=float("-inf"))


@triton.jit
def run(
    scores,  # [N, R]
    index,  # [M]
    offsets,  # [B + 1]
    epsilon,  # [Q]
    lengths,  # [K]
    main_starts,
    main_firsts,
    loop_starts,
    loop_firsts,
    state_starts,
    document_scores,  # [B, K]
    ends,  # [B, K]; the following are not touched unless asked for
    final,  # [B, K]
    steps,  # [M, S]
    end_scores,  # [M, K]
    num_patterns,
    num_scores,
    num_states,
    STATES: tl.constexpr,
    BLOCK: tl.constexpr,
    EPSILONS: tl.constexpr,
    LOOPS: tl.constexpr,
    BOUNDARY: tl.constexpr,
    FINAL: tl.constexpr,
    EMPTY: tl.constexpr,
    PATHS: tl.constexpr,
    ENDS: tl.constexpr,
):
    """Scores of the best matches in a document and, as asked for, their paths or all ends."""
    b = tl.program_id(0)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(lengths + p, mask=p < num_patterns, other=0)
    never = tl.full((BLOCK,), float("-inf"), tl.float32)
    zero = tl.zeros((BLOCK,), tl.float32)
    start = tl.load(offsets + b)
    stop = tl.load(offsets + b + 1)

    skips = (never,)  # epsilon score into each state
    g = (zero,)
    for i in tl.static_range(1, STATES):
        if EPSILONS:
            skips = skips + (_scores_of(epsilon, main_starts, main_firsts, i - 1, p, num_patterns),)
        else:
            skips = skips + (never,)
        g = g + (never,)
    best = never
    end = tl.full((BLOCK,), -1, tl.int32)
    by_epsilon = tl.zeros((BLOCK,), tl.uint8)
    if EMPTY and FINAL:
        best = tl.where(length == 2, skips[1], never)
        end = tl.where(best > never, 0, end)
        by_epsilon = tl.where(best > never, 1, by_epsilon).to(tl.uint8)

    for m in range(start, stop):
        row = scores + tl.load(index + m) * num_scores
        step_row = steps + m * num_states + p
        e = (g[0],)
        took = (tl.zeros((BLOCK,), tl.uint8),)
        for i in tl.static_range(1, STATES):
            skip = g[i - 1] + skips[i]
            e = e + (tl.where(skip > g[i], skip, g[i]),)
            took = took + (tl.where(skip > g[i], 2, 0).to(tl.uint8),)
        # START: a match may begin after this token; without the self-loop it has no other way in.
        again = never
        if BOUNDARY:
            again = e[0] + _scores_of(row, loop_starts, loop_firsts, 0, p, num_patterns)
        restarted = tl.where(again > zero, again, zero)
        if PATHS:
            step = tl.where(again > zero, 1, 0).to(tl.uint8)
            tl.store(step_row + tl.load(state_starts), step, mask=p < num_patterns)
        new = (restarted,)
        below = restarted if EMPTY else again
        found = never
        taken = tl.zeros((BLOCK,), tl.uint8)
        for i in tl.static_range(1, STATES):
            moved = e[i - 1] + _scores_of(row, main_starts, main_firsts, i - 1, p, num_patterns)
            step = took[i]
            if LOOPS:
                again = e[i] + _scores_of(row, loop_starts, loop_firsts, i, p, num_patterns)
                step = step | tl.where(again > moved, 1, 0).to(tl.uint8)
                moved = tl.where(again > moved, again, moved)
            new = new + (moved,)
            if PATHS:
                there = (i < length) & (p < num_patterns)
                tl.store(step_row + tl.load(state_starts + i), step, mask=there)
            read = moved
            if FINAL:
                skip = below + skips[i]
                read = tl.where(skip > moved, skip, moved)
                taken = tl.where(length == i + 1, tl.where(skip > moved, 1, 0), taken).to(tl.uint8)
            found = tl.where(length == i + 1, read, found)
            below = moved
        g = new
        better = found > best
        best = tl.where(better, found, best)
        if PATHS:
            end = tl.where(better, (m + 1 - start).to(tl.int32), end)
            by_epsilon = tl.where(better, taken, by_epsilon)
        if ENDS:
            tl.store(end_scores + m * num_patterns + p, found, mask=p < num_patterns)

    place = b.to(tl.int64) * num_patterns + p
    tl.store(document_scores + place, best, mask=p < num_patterns)
    if PATHS:
        tl.store(ends + place, end, mask=p < num_patterns)
        tl.store(final + place, by_epsilon, mask=p < num_patterns)


@triton.jit
def walk_back(
    grad,  # [B, K]
    offsets,  # [B + 1]
    lengths,  # [K]
    main_starts,
    state_starts,
    ends,  # [B, K]
    final,  # [B, K]
    steps,  # [M, S]
    arcs,  # [M, K]: the arc that consumed the token: 1 + 2 * state it leaves + is it a loop; or 0
    grad_epsilon,  # [B, Q], zero before
    num_patterns,
    num_states,
    num_epsilons,
    BLOCK: tl.constexpr,
    EMPTY: tl.constexpr,
):
    """Which arcs the best paths of a document take, and the gradient of each epsilon there."""
    b = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = p < num_patterns
    amount = tl.load(grad + b * num_patterns + p, mask=real, other=0.0)
    end = tl.load(ends + b * num_patterns + p, mask=real, other=-1)
    last = tl.load(final + b * num_patterns + p, mask=real, other=0) != 0
    state = tl.load(lengths + p, mask=real, other=1) - 1
    epsilon_row = grad_epsilon + b * num_epsilons + p
    alive = (end >= 0) & (amount != 0)

    skipped = alive & last
    state = tl.where(skipped, state - 1, state)
    tl.store(
        epsilon_row + tl.load(main_starts + state, mask=skipped, other=0), amount, mask=skipped
    )
    # An epsilon from START to END follows a token that START's loop consumed, or an empty match.
    must_loop = skipped & (state == 0) & (not EMPTY)
    start = tl.load(offsets + b)
    count = tl.load(offsets + b + 1) - start
    for back in range(count):
        t = count - 1 - back
        m = start + t
        active = alive & (t < end)
        column = tl.load(state_starts + state, mask=active, other=0) + p
        looped = (tl.load(steps + m * num_states + column, mask=active, other=0) & 1) != 0
        looped = looped | must_loop
        alive = alive & ((active & (looped | (state > 0))) | (t >= end))
        active = active & alive
        must_loop = must_loop & (t >= end)
        state = tl.where(active & (looped == 0), state - 1, state)
        arc = tl.where(active, 1 + 2 * state + tl.where(looped, 1, 0), 0)
        tl.store(arcs + m * num_patterns + p, arc.to(tl.int16), mask=real)
        column = tl.load(state_starts + state, mask=active, other=0) + p
        step = tl.load(steps + m * num_states + column, mask=active, other=0)
        skipped = active & ((step & 2) != 0)
        state = tl.where(skipped, state - 1, state)
        column = tl.load(main_starts + state, mask=skipped, other=0)
        tl.store(epsilon_row + column, amount, mask=skipped)


@triton.jit
def sum_by_row(
    grad,  # [B, K]
    order,  # [M]: the tokens, those of row 0 first
    row_offsets,  # [N + 1]: where in `order` the tokens of each row begin
    documents,  # [M]: which document a token is in
    arcs,  # [M, K]: see walk_back
    main_starts,
    main_firsts,
    loop_starts,
    loop_firsts,
    grad_scores,  # [N, R]
    num_patterns,
    num_scores,
    STATES: tl.constexpr,
    BLOCK: tl.constexpr,
    LOOPS: tl.constexpr,
):
    """The gradient of one row: the tokens that share it are added in their order in the batch."""
    row = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = p < num_patterns
    sums = ()  # by arc: main path out of state i, self-loop at state i
    for _ in tl.static_range(2 * STATES):
        sums = sums + (tl.zeros((BLOCK,), tl.float32),)
    for k in range(tl.load(row_offsets + row), tl.load(row_offsets + row + 1)):
        m = tl.load(order + k)
        arc = tl.load(arcs + m * num_patterns + p, mask=real, other=0)
        amount = tl.load(grad + tl.load(documents + m) * num_patterns + p, mask=real, other=0.0)
        added = ()
        for i in tl.static_range(2 * STATES):
            added = added + (sums[i] + tl.where(arc == i + 1, amount, 0.0),)
        sums = added
    place = grad_scores + row * num_scores + p
    for i in tl.static_range(STATES):
        if i < STATES - 1:
            there = real & (p >= tl.load(main_firsts + i))
            tl.store(place + tl.load(main_starts + i), sums[2 * i], mask=there)
        if LOOPS:
            there = real & (p >= tl.load(loop_firsts + i))
            tl.store(place + tl.load(loop_starts + i), sums[2 * i + 1], mask=there)
