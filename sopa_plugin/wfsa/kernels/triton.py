"""The recurrence in Triton: one program for a document and a block of patterns.

A program holds the states of its patterns in registers, as a tuple of vectors over the patterns:
state i of all of them is element i. Tables tell where columns are: an arc's (or a state's) column
for pattern p is `start[i] + p`, for the patterns from `first[i]` on. What a pattern does not have
scores the semiring's zero.

`run` and `walk_back` are of max and plus. Gradients are added up there as whole numbers of a small
unit, so that the order in which programs add does not matter: the same input gives the same bits.
`run_sums` and `sums_back` are of the semirings that sum over paths, as `kernels.sums` has them;
LOGS says whether values are logarithms. Each token's gradients are written for themselves there.
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
def _read(row, columns, never, COUNT: tl.constexpr):
    """What stands in columns of a row; `never` where there is none."""
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (tl.load(row + columns[i], mask=columns[i] >= 0, other=never),)
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
    num_patterns,
    num_scores,
    num_states,
    document_scores,  # [B, K]
    ends,  # [B, K]; the following are not touched unless asked for
    final,  # [B, K]
    steps,  # [M, S]
    end_scores,  # [M, K]
    end_final,  # [M, K]
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
        skips = _read(epsilon, main, never, STATES - 1)
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
    forward = _read(row, main, never, STATES - 1)
    again = _read(row, loops, never, STATES if LOOPS else 0)
    for m in range(start, stop):
        row_after = scores + tl.load(index + m + 2, mask=m + 2 < stop, other=0) * num_scores
        next_forward = _read(next_row, main, never, STATES - 1)
        next_again = _read(next_row, loops, never, STATES if LOOPS else 0)
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


@triton.jit
def _plus(a, b, LOGS: tl.constexpr):
    if LOGS:
        high = tl.maximum(a, b)
        x = tl.exp(tl.minimum(a, b) - high)
        # log(1 + x) to the last digits; the quotient makes up for what 1 + x has lost of x
        y = 1 + x
        log = tl.where(y == 1, x, tl.log(y) * (x / (y - 1)))
        return tl.where(high == float("-inf"), high, high + log)
    return a + b


@triton.jit
def _times(a, b, LOGS: tl.constexpr):
    return a + b if LOGS else a * b


@triton.jit
def _slope(other, LOGS: tl.constexpr):
    """The derivative of a product by the factor that is not `other`."""
    return tl.full(other.shape, 1, tl.float32) if LOGS else other


@triton.jit
def _share(part, whole, LOGS: tl.constexpr):
    """The derivative of a sum, `whole`, by one of its parts."""
    if LOGS:
        return tl.where(part > float("-inf"), tl.exp(part - whole), 0.0)
    return tl.full(part.shape, 1, tl.float32)


@triton.jit
def _shares(a, b, LOGS: tl.constexpr):
    """The derivatives of a sum of two by each; in log space they add up to 1, however large."""
    if LOGS:
        greater = b > a
        gap = tl.where(greater, a - b, b - a)
        e = tl.where(gap > -87, tl.exp(gap), 0.0)
        of_larger = 1 / (1 + e)
        of_smaller = 1 - of_larger
        return tl.where(greater, of_smaller, of_larger), tl.where(greater, of_larger, of_smaller)
    one = tl.full(a.shape, 1, tl.float32)
    return one, one


@triton.jit
def _arcs_of(row, main, loops, never, STATES: tl.constexpr, LOOPS: tl.constexpr):
    """Scores of a token's main-path arcs, and of the self-loops of all states."""
    again = ()
    if LOOPS:
        again = _read(row, loops, never, STATES)
    else:
        for _ in tl.static_range(STATES):
            again = again + (never,)
    return _read(row, main, never, STATES - 1), again


@triton.jit
def _reached(g, skips, STATES: tl.constexpr, LOGS: tl.constexpr):
    """States after zero or one epsilon from each."""
    e = (g[0],)
    for i in tl.static_range(1, STATES):
        e = e + (_plus(g[i], _times(g[i - 1], skips[i - 1], LOGS), LOGS),)
    return e


@triton.jit
def _ended(
    g,
    new,
    looped,
    final,
    length,
    never,
    STATES: tl.constexpr,
    EMPTY: tl.constexpr,
    LOGS: tl.constexpr,
):
    """What a token brings to END, from states `g` to `new`: by itself, and by an epsilon after it.

    Where a match may not be empty, none begins with the epsilon that ends it.
    """
    at_end = never
    below = new[0] if EMPTY else looped
    by_epsilon = never
    for i in tl.static_range(1, STATES):
        here = length == i + 1
        at_end = tl.where(here, new[i], at_end)
        by_epsilon = tl.where(here, _times(below, final, LOGS), by_epsilon)
        below = new[i]
    return at_end, by_epsilon


@triton.jit
def _automata(
    epsilon,
    tables,
    num_patterns,
    p,
    STATES: tl.constexpr,
    EPSILONS: tl.constexpr,
    FINAL: tl.constexpr,
    LOGS: tl.constexpr,
):
    """What patterns `p` are, whatever they read.

    Their lengths (0: it is none); the semiring's one and zero; the columns of main-path arcs, of
    self-loops and of states; epsilons out of each state but END, and the one that may end a match.
    """
    lengths, main_starts, main_firsts, loop_starts, loop_firsts, state_starts = tables
    length = tl.load(lengths + p, mask=p < num_patterns, other=0)
    one = tl.full(p.shape, 0 if LOGS else 1, tl.float32)
    never = tl.full(p.shape, float("-inf") if LOGS else 0, tl.float32)
    main = _columns_of(main_starts, main_firsts, p, num_patterns, STATES - 1)
    loops = _columns_of(loop_starts, loop_firsts, p, num_patterns, STATES)
    places = ()
    for i in tl.static_range(STATES):
        places = places + (tl.load(state_starts + i) + p,)
    skips = ()
    final = never
    for i in tl.static_range(STATES - 1):
        skip = never
        if EPSILONS:
            skip = tl.load(epsilon + main[i], mask=main[i] >= 0, other=never)
        if FINAL:
            final = tl.where(length == i + 2, skip, final)
        skips = skips + (skip,)
    return length, one, never, main, loops, places, skips, final


@triton.jit
def run_sums(
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
    num_patterns,
    num_scores,
    num_states,
    document_scores,  # [B, K]
    states,  # [M, S]: after each token; not touched unless KEEP
    STATES: tl.constexpr,
    BLOCK: tl.constexpr,
    EPSILONS: tl.constexpr,
    LOOPS: tl.constexpr,
    FINAL: tl.constexpr,
    EMPTY: tl.constexpr,
    LOGS: tl.constexpr,
    KEEP: tl.constexpr,
):
    """Sums over all matches in a document."""
    b = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = tl.load(offsets + b)
    stop = tl.load(offsets + b + 1)
    tables = (lengths, main_starts, main_firsts, loop_starts, loop_firsts, state_starts)
    length, one, never, main, loops, places, skips, final = _automata(
        epsilon, tables, num_patterns, p, STATES, EPSILONS, FINAL, LOGS
    )

    total = tl.where(length == 2, final, never) if EMPTY else never
    g = (one,)
    for _ in tl.static_range(STATES - 1):
        g = g + (never,)
    for m in range(start, stop):
        row = scores + tl.load(index + m) * num_scores
        forward, again = _arcs_of(row, main, loops, never, STATES, LOOPS)
        e = _reached(g, skips, STATES, LOGS)
        looped = _times(g[0], again[0], LOGS)
        new = (_plus(one, looped, LOGS),)
        for i in tl.static_range(1, STATES):
            moved = _times(e[i - 1], forward[i - 1], LOGS)
            new = new + (_plus(moved, _times(e[i], again[i], LOGS), LOGS),)
        if KEEP:
            for i in tl.static_range(STATES):
                tl.store(states + m * num_states + places[i], new[i], mask=i < length)
        at_end, by_epsilon = _ended(g, new, looped, final, length, never, STATES, EMPTY, LOGS)
        total = _plus(total, _plus(at_end, by_epsilon, LOGS), LOGS)
        g = new
    tl.store(document_scores + b * num_patterns + p, total, mask=length > 0)


@triton.jit
def sums_back(
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
    num_patterns,
    num_scores,
    num_states,
    grad,  # [B, K]
    document_scores,  # [B, K]
    states,  # [M, S]: as `run_sums` keeps them
    grad_tokens,  # [M, R]: filled with the gradients of each token's arcs
    grad_epsilon,  # [B, Q]: and with those of epsilons
    num_epsilons,
    STATES: tl.constexpr,
    BLOCK: tl.constexpr,
    EPSILONS: tl.constexpr,
    LOOPS: tl.constexpr,
    FINAL: tl.constexpr,
    EMPTY: tl.constexpr,
    LOGS: tl.constexpr,
):
    """Takes the gradient of a document's scores back to its arcs: the recurrence, reversed."""
    b = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = tl.load(offsets + b)
    stop = tl.load(offsets + b + 1)
    tables = (lengths, main_starts, main_firsts, loop_starts, loop_firsts, state_starts)
    length, one, never, main, loops, places, skips, final = _automata(
        epsilon, tables, num_patterns, p, STATES, EPSILONS, FINAL, LOGS
    )
    zero = tl.zeros((BLOCK,), tl.float32)
    amount = tl.load(grad + b * num_patterns + p, mask=length > 0, other=0.0)
    total = tl.load(document_scores + b * num_patterns + p, mask=length > 0, other=0.0)

    new = ()  # states after a token
    to_g = ()  # their gradients
    to_skips = ()  # those of epsilons, added up
    kept = tl.where(start < stop, length, 0)
    for i in tl.static_range(STATES):
        place = states + (stop - 1) * num_states + places[i]
        new = new + (tl.load(place, mask=i < kept, other=0.0),)
        to_g = to_g + (zero,)
    for _ in tl.static_range(STATES - 1):
        to_skips = to_skips + (zero,)
    for back in range(stop - start):
        m = stop - 1 - back
        row = scores + tl.load(index + m) * num_scores
        forward, again = _arcs_of(row, main, loops, never, STATES, LOOPS)
        kept = tl.where(m > start, length, 0)
        g = ()
        for i in tl.static_range(STATES):
            place = states + (m - 1) * num_states + places[i]
            g = g + (tl.load(place, mask=i < kept, other=one if i == 0 else never),)
        e = _reached(g, skips, STATES, LOGS)
        looped = _times(g[0], again[0], LOGS)
        at_end, by_epsilon = _ended(g, new, looped, final, length, never, STATES, EMPTY, LOGS)

        # What ends here: by itself, and by an epsilon.
        at_end = amount * _share(at_end, total, LOGS)
        by_epsilon = amount * _share(by_epsilon, total, LOGS) if FINAL else zero
        to_below = by_epsilon * _slope(final, LOGS)
        to_new = ()
        more_skips = ()
        from_start = zero
        for i in tl.static_range(STATES):
            to = to_g[i]
            if i > 0:
                to = to + tl.where(length == i + 1, at_end, 0.0)
            if i < STATES - 1:
                skipped = length == i + 2
                below = new[i]
                if i > 0 or EMPTY:
                    to = to + tl.where(skipped, to_below, 0.0)
                else:
                    below = looped
                    from_start = tl.where(skipped, to_below, 0.0)
                added = tl.where(skipped, by_epsilon * _slope(below, LOGS), 0.0)
                more_skips = more_skips + (to_skips[i] + added,)
            to_new = to_new + (to,)

        # The token, from START's self-loop on.
        token = grad_tokens + m * num_scores
        of_loop = _shares(one, looped, LOGS)[1]
        by_loop = to_new[0] * of_loop + from_start
        to_e = ()
        stayed = zero
        for i in tl.static_range(STATES):
            if i > 0:
                moved = _times(e[i - 1], forward[i - 1], LOGS)
                of_main, of_loop = _shares(moved, _times(e[i], again[i], LOGS), LOGS)
                by_main = to_new[i] * of_main
                by_loop = to_new[i] * of_loop
                here = main[i - 1]
                tl.store(token + here, by_main * _slope(e[i - 1], LOGS), mask=here >= 0)
                to_e = to_e + (stayed + by_main * _slope(forward[i - 1], LOGS),)
            if LOOPS:
                tl.store(token + loops[i], by_loop * _slope(e[i], LOGS), mask=loops[i] >= 0)
            stayed = by_loop * _slope(again[i], LOGS)
        to_e = to_e + (stayed,)

        # The epsilons before it.
        to_g = ()
        to_skips = ()
        stayed = to_e[0]
        for i in tl.static_range(1, STATES):
            of_stay, of_skip = _shares(g[i], _times(g[i - 1], skips[i - 1], LOGS), LOGS)
            by_skip = to_e[i] * of_skip
            to_g = to_g + (stayed + by_skip * _slope(skips[i - 1], LOGS),)
            to_skips = to_skips + (more_skips[i - 1] + by_skip * _slope(g[i - 1], LOGS),)
            stayed = to_e[i] * of_stay
        to_g = to_g + (stayed,)
        new = g

    if EPSILONS:
        for i in tl.static_range(STATES - 1):
            to = to_skips[i]
            if EMPTY and FINAL and i == 0:
                to = to + tl.where(length == 2, amount * _share(final, total, LOGS), 0.0)
            place = grad_epsilon + b * num_epsilons + main[i]
            tl.store(place, to, mask=main[i] >= 0)
