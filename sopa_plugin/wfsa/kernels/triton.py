"""The recurrence over max and plus in Triton: one program for a document and a block of patterns.

A program holds the states of its patterns in registers, as a tuple of vectors over the patterns:
state i of all of them is element i. Tables tell where columns are: an arc's (or a state's) column
for pattern p is `start[i] + p`, for the patterns from `first[i]` on. What a pattern does not have
scores -inf.

Gradients are added up as whole numbers of a small unit, so that the order in which programs add
does not matter: the same input gives the same bits.
"""

# Triton's language is a part of Python's: its tuples grow by `+`, and types are its own.
# ruff: noqa: RUF005
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _columns_of(starts, firsts, patterns, num_patterns, COUNT: tl.constexpr):
    """Columns of the patterns' arcs 0 to COUNT - 1, one by one; -1 where a pattern has none."""
    columns = ()
    for i in tl.static_range(COUNT):
        there = (patterns >= tl.load(firsts + i)) & (patterns < num_patterns)
        columns = columns + (tl.where(there, tl.load(starts + i) + patterns, -1),)
    return columns


@triton.jit
def _read(row, columns, COUNT: tl.constexpr):
    """What stands in columns of a row; -inf where there is none."""
    found = ()
    for i in tl.static_range(COUNT):
        number = tl.load(row + columns[i], mask=columns[i] >= 0, other=float("-inf"))
        found = found + (number,)
    return found


@triton.jit
def _larger(alternative, kept):
    """`alternative` where it is strictly greater, or NaN, else `kept`."""
    return tl.where((alternative > kept) | (alternative != alternative), alternative, kept)


@triton.jit
def run(
    scores,  # [N, R], a row at least
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
    end_final,  # [M, K]
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
    real = p < num_patterns
    length = tl.load(lengths + p, mask=real, other=0)
    never = tl.full((BLOCK,), float("-inf"), tl.float32)
    zero = tl.zeros((BLOCK,), tl.float32)
    start = tl.load(offsets + b)
    stop = tl.load(offsets + b + 1)
    main = _columns_of(main_starts, main_firsts, p, num_patterns, STATES - 1)
    loops = ()
    if LOOPS:
        loops = _columns_of(loop_starts, loop_firsts, p, num_patterns, STATES)
    states = ()
    if PATHS:
        for i in tl.static_range(STATES):
            states = states + (tl.load(state_starts + i) + p,)

    skips = ()  # epsilon score out of each state
    if EPSILONS:
        skips = _read(epsilon, main, STATES - 1)
    else:
        for _ in tl.static_range(STATES - 1):
            skips = skips + (never,)
    g = (zero,)
    for _ in tl.static_range(STATES - 1):
        g = g + (never,)
    best = never
    end = tl.full((BLOCK,), -1, tl.int32)
    by_epsilon = tl.zeros((BLOCK,), tl.uint8)
    if EMPTY and FINAL:
        best = tl.where(length == 2, skips[0], never)
        end = tl.where(best > never, 0, end)
        by_epsilon = tl.where(best > never, 1, by_epsilon).to(tl.uint8)

    # The scores of the next token and the row of the one after it are on their way during a step;
    # row 0 stands in for those after the last.
    row = scores + tl.load(index + start, mask=start < stop, other=0) * num_scores
    next_row = scores + tl.load(index + start + 1, mask=start + 1 < stop, other=0) * num_scores
    forward = _read(row, main, STATES - 1)
    again = _read(row, loops, STATES if LOOPS else 0)
    for m in range(start, stop):
        row_after = scores + tl.load(index + m + 2, mask=m + 2 < stop, other=0) * num_scores
        next_forward = _read(next_row, main, STATES - 1)
        next_again = _read(next_row, loops, STATES if LOOPS else 0)
        step_row = steps + m * num_states
        e = (g[0],)
        took = (tl.zeros((BLOCK,), tl.uint8),)
        for i in tl.static_range(1, STATES):
            skip = g[i - 1] + skips[i - 1]
            e = e + (_larger(skip, g[i]),)
            took = took + (tl.where(skip > g[i], 2, 0).to(tl.uint8),)
        # START: a match may begin after this token; without the self-loop it has no other way in.
        looped = never
        if BOUNDARY:
            looped = e[0] + again[0]
        restarted = _larger(looped, zero)
        if PATHS:
            step = tl.where(looped > zero, 1, 0).to(tl.uint8)
            tl.store(step_row + states[0], step, mask=real)
        new = (restarted,)
        below = restarted if EMPTY else looped
        found = never
        taken = tl.zeros((BLOCK,), tl.uint8)
        for i in tl.static_range(1, STATES):
            moved = e[i - 1] + forward[i - 1]
            step = took[i]
            if LOOPS:
                looped = e[i] + again[i]
                step = step | tl.where(looped > moved, 1, 0).to(tl.uint8)
                moved = _larger(looped, moved)
            new = new + (moved,)
            if PATHS:
                tl.store(step_row + states[i], step, mask=(i < length) & real)
            read = moved
            if FINAL:
                skip = below + skips[i - 1]
                read = _larger(skip, moved)
                taken = tl.where(length == i + 1, tl.where(skip > moved, 1, 0), taken).to(tl.uint8)
            found = tl.where(length == i + 1, read, found)
            below = moved
        g = new
        better = found > best
        best = _larger(found, best)
        if PATHS:
            end = tl.where(better, (m + 1 - start).to(tl.int32), end)
            by_epsilon = tl.where(better, taken, by_epsilon)
        if ENDS:
            tl.store(end_scores + m * num_patterns + p, found, mask=real)
            tl.store(end_final + m * num_patterns + p, taken, mask=real)
        next_row, forward, again = row_after, next_forward, next_again

    place = b.to(tl.int64) * num_patterns + p
    tl.store(document_scores + place, best, mask=real)
    if PATHS:
        tl.store(ends + place, end, mask=real)
        tl.store(final + place, by_epsilon, mask=real)


@triton.jit
def _power_of_two(exponent):
    """2 to the power of a whole number, float64."""
    return ((exponent.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _exponent(largest):
    """The least n with `largest` < 2 ** n, for a float32 (-126 for those below them all)."""
    return (largest.to(tl.int32, bitcast=True) >> 23) - 126


@triton.jit(do_not_specialize=["num_cells"])
def walk_back(
    grad,  # [B, K]
    largest,  # []: the largest absolute value in `grad`
    index,  # [M]
    offsets,  # [B + 1]
    lengths,  # [K]
    main_starts,
    loop_starts,
    state_starts,
    ends,  # [B, K]
    final,  # [B, K]
    steps,  # [M, S]
    sums,  # [N * R + Q], int64: what is added up, for each arc and epsilon
    num_patterns,
    num_scores,
    num_states,
    num_cells,  # N * R
    bits,  # sums stay below 2 ** bits times `largest`
    BLOCK: tl.constexpr,
    EMPTY: tl.constexpr,
):
    """Adds the gradient of a document's scores to that of each arc of their best paths."""
    b = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = p < num_patterns
    amount = tl.load(grad + b * num_patterns + p, mask=real, other=0.0)
    unit = _power_of_two(62 - bits - _exponent(tl.load(largest)))
    added = (amount.to(tl.float64) * unit).to(tl.int64)
    end = tl.load(ends + b * num_patterns + p, mask=real, other=-1)
    last = tl.load(final + b * num_patterns + p, mask=real, other=0) != 0
    state = tl.load(lengths + p, mask=real, other=1) - 1
    start = tl.load(offsets + b)
    epsilons = sums + num_cells + p

    active = (end >= 0) & (amount != 0)
    skipped = active & last
    state = tl.where(skipped, state - 1, state)
    tl.atomic_add(
        epsilons + tl.load(main_starts + state, mask=skipped, other=0), added, mask=skipped
    )
    # An epsilon from START to END follows a token that START's loop consumed, or an empty match.
    must_loop = skipped & (state == 0) & (not EMPTY)
    token = start + end - 1  # each pattern walks by itself: matches are short, documents long
    active = active & (end > 0)
    while tl.max(active.to(tl.int32), axis=0) > 0:
        row = tl.load(index + token, mask=active, other=0)
        step_row = steps + token * num_states + p
        column = tl.load(state_starts + state, mask=active, other=0)
        step = tl.load(step_row + column, mask=active, other=0)
        looped = ((step & 1) != 0) | must_loop
        active = active & (looped | (state > 0))
        must_loop = must_loop & False
        state = tl.where(active & (looped == 0), state - 1, state)
        by_loop = tl.load(loop_starts + state, mask=active & looped, other=0)
        by_main = tl.load(main_starts + state, mask=active & (looped == 0), other=0)
        cell = row * num_scores + tl.where(looped, by_loop, by_main) + p
        tl.atomic_add(sums + cell, added, mask=active)
        column = tl.load(state_starts + state, mask=active, other=0)
        step = tl.load(step_row + column, mask=active, other=0)
        skipped = active & ((step & 2) != 0)
        state = tl.where(skipped, state - 1, state)
        tl.atomic_add(
            epsilons + tl.load(main_starts + state, mask=skipped, other=0), added, mask=skipped
        )
        token -= 1
        active = active & (token >= start)


@triton.jit(do_not_specialize=["count"])
def to_floats(
    sums,  # [count], int64
    largest,  # []
    floats,  # [count]
    count,
    bits,
    BLOCK: tl.constexpr,
):
    """What `walk_back` added up, in float32; nan everywhere if any gradient was infinite or nan."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    exponent = _exponent(tl.load(largest))
    unit = _power_of_two(bits + exponent - 62)
    found = (tl.load(sums + place, mask=there, other=0).to(tl.float64) * unit).to(tl.float32)
    found = tl.where(exponent > 128, float("nan"), found)
    tl.store(floats + place, found, mask=there)
