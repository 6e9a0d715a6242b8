"""The recurrence of semirings that sum over paths, and its gradient, compiled for the CPU.

`WIDTH` patterns at a time, a block, run through a document: each of their states is a vector, state
i at lane `i * WIDTH`. What a pattern does not have scores zero and adds nothing. Functions take
`logs`: True where values are logarithms, None where they are held as they are; compiling leaves out
the branch that is not taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from sopa_plugin.wfsa.kernels.elementwise import exp, log_one_plus
from sopa_plugin.wfsa.kernels.plan import WIDTH
from sopa_plugin.wfsa.kernels.threads import Compiled
from sopa_plugin.wfsa.kernels.vectors import (
    address,
    load,
    maximum,
    select,
    splat,
    store,
)

_ZERO, _ONE, _NEVER, _LOWEST = (np.float32(number) for number in (0, 1, -np.inf, -87))

# Inlined, they count no references to arrays.
_inlined = njit(forceinline=True)


@_inlined
def _plus(a: Any, b: Any, logs: Any) -> Any:
    if logs is None:
        return a + b
    high = maximum(b, a)
    low = select(b > a, a, b)
    return high + log_one_plus(exp(low - high))


@_inlined
def _times(a: Any, b: Any, logs: Any) -> Any:
    if logs is None:
        return a * b
    return a + b


@_inlined
def _share(part: Any, whole: Any, logs: Any) -> Any:
    """The derivative of a sum, `whole`, by one of its parts."""
    if logs is None:
        return splat(_ONE)
    return select(part > splat(_NEVER), exp(part - whole), splat(_ZERO))


@_inlined
def _shares(a: Any, b: Any, logs: Any) -> Any:
    """The derivatives of a sum of two by each; in log space they add up to 1, however large."""
    if logs is None:
        return splat(_ONE), splat(_ONE)
    greater = b > a
    gap = select(greater, a - b, b - a)
    e = select(gap > _LOWEST, exp(gap), splat(_ZERO))
    of_larger = _ONE / (_ONE + e)
    of_smaller = _ONE - of_larger
    return select(greater, of_smaller, of_larger), select(greater, of_larger, of_smaller)


@_inlined
def _slope(other: Any, logs: Any) -> Any:
    """The derivative of a product by the factor that is not `other`."""
    if logs is None:
        return other
    return splat(_ONE)


@_inlined
def _zeros(count: int, logs: Any) -> Any:
    """`count` vectors of the semiring's zero."""
    return np.full(count * WIDTH, _ZERO if logs is None else _NEVER)


@_inlined
def _read(row: Any, origins: Any, firsts: Any, start: int, stop: int, arcs: Any) -> None:
    """Fills `arcs` with those that patterns `start` to `stop - 1` have in a row of scores."""
    for i in range(len(arcs) // WIDTH):
        if firsts[i] <= start and stop - start == WIDTH:
            store(address(arcs, 0), i * WIDTH, load(address(row, 0), origins[i] + start))
            continue
        for p in range(max(firsts[i], start), stop):
            arcs[i * WIDTH + p - start] = row[origins[i] + p]


@_inlined
def _add(row: Any, origins: Any, firsts: Any, start: int, stop: int, arcs: Any) -> None:
    """Adds `arcs` to where `_read` has them from."""
    for i in range(len(arcs) // WIDTH):
        if firsts[i] <= start and stop - start == WIDTH:
            place, there = origins[i] + start, address(row, 0)
            store(there, place, load(there, place) + load(address(arcs, 0), i * WIDTH))
            continue
        for p in range(max(firsts[i], start), stop):
            row[origins[i] + p] += arcs[i * WIDTH + p - start]


class Block(NamedTuple):
    """Patterns that run side by side, with room for what one token brings; arrays of vectors."""

    start: int  # the first of the patterns
    stop: int  # the one after the last
    ends: Any  # the END states, -1 in lanes without a pattern, [1]
    skips: Any  # epsilons out of each state, [states - 1]
    final: Any  # the epsilon that may end a match, [1]
    main: Any  # the token's main-path arcs, [states - 1]
    loops: Any  # its self-loops, [states]
    ended: Any  # scores at END after it, and those that an epsilon brings there, [2]


@_inlined
def _block(origins: Any, epsilon: Any, start: int, logs: Any) -> Any:
    """The block that begins with pattern `start`."""
    stop = min(start + WIDTH, len(origins.lengths))
    states = origins.lengths[stop - 1]
    ends, skips, final = np.full(WIDTH, -_ONE), _zeros(states - 1, logs), _zeros(1, logs)
    if len(epsilon) > 0:
        _read(epsilon, origins.main_path, origins.main_firsts, start, stop, skips)
    for j in range(stop - start):
        end = origins.lengths[start + j] - 1
        ends[j] = end
        if origins.final_epsilon:
            final[j] = skips[(end - 1) * WIDTH + j]
    main, loops = _zeros(states - 1, logs), _zeros(states, logs)
    return Block(start, stop, ends, skips, final, main, loops, _zeros(2, logs))


@_inlined
def _read_token(origins: Any, block: Any, row: Any) -> None:
    """Fills the block's arcs from a row of scores."""
    start, stop = block.start, block.stop
    _read(row, origins.main_path, origins.main_firsts, start, stop, block.main)
    _read(row, origins.loops, origins.loop_firsts, start, stop, block.loops)


@_inlined
def _consume(block: Any, before: Any, after: Any, logs: Any) -> None:
    """Takes the states `before` a token to those `after` it, `[2 * states]`.

    Behind the states, `before` gets what they and the epsilons reach.
    """
    main, loops, skips = address(block.main, 0), address(block.loops, 0), address(block.skips, 0)
    lanes = len(block.loops)
    g, e, new = address(before, 0), address(before, lanes), address(after, 0)
    store(e, 0, load(g, 0))
    one = splat(_ONE if logs is None else _ZERO)
    store(new, 0, _plus(one, _times(load(g, 0), load(loops, 0), logs), logs))
    # None of a loop's turns waits for another.
    for s in range(WIDTH, lanes, WIDTH):
        by_epsilon = _times(load(g, s - WIDTH), load(skips, s - WIDTH), logs)
        store(e, s, _plus(load(g, s), by_epsilon, logs))
    for s in range(WIDTH, lanes, WIDTH):
        by_main = _times(load(e, s - WIDTH), load(main, s - WIDTH), logs)
        store(new, s, _plus(by_main, _times(load(e, s), load(loops, s), logs), logs))


@_inlined
def _read_ends(origins: Any, block: Any, before: Any, after: Any, logs: Any) -> None:
    """Fills what ends at the token between these states."""
    ends, ended = load(address(block.ends, 0), 0), address(block.ended, 0)
    new, at_end = address(after, 0), load(ended, 0)
    # Where a match may not be empty, none begins with the epsilon that ends it.
    looped = _times(load(address(before, 0), 0), load(address(block.loops, 0), 0), logs)
    under = load(new, 0) if origins.empty_matches else looped
    for s in range(WIDTH, len(block.loops), WIDTH):
        here = ends == splat(np.float32(s // WIDTH))
        at_end = select(here, load(new, s), at_end)
        if s > WIDTH:
            under = select(here, load(new, s - WIDTH), under)
    store(ended, 0, at_end)
    store(ended, WIDTH, _times(under, load(address(block.final, 0), 0), logs))


@_inlined
def _run(origins: Any, arcs: Any, b: int, block: Any, g: Any, total: Any, logs: Any) -> bool:
    """Fills `total [WIDTH]` with the scores of document `b`; False where a row is out of range.

    What `_consume` makes of the states after t tokens is left in `g[t % len(g)]`.
    """
    scores, index, offsets, _ = arcs
    ends, ended, sums = block.ends, address(block.ended, 0), address(total, 0)
    zero, one = (_ZERO, _ONE) if logs is None else (_NEVER, _ZERO)
    g[0] = zero
    for j in range(WIDTH):
        g[0, j] = one
        total[j] = block.final[j] if origins.empty_matches and ends[j] == 1 else zero
        block.ended[j] = zero
    for t in range(offsets[b + 1] - offsets[b]):
        n = index[offsets[b] + t]
        if n < 0 or n >= len(scores):
            return False
        before, after = g[t % len(g)], g[(t + 1) % len(g)]
        _read_token(origins, block, scores[n])
        _consume(block, before, after, logs)
        _read_ends(origins, block, before, after, logs)
        read = _plus(load(ended, 0), load(ended, WIDTH), logs)
        store(sums, 0, _plus(load(sums, 0), read, logs))
    return True


@njit(nogil=True)
def _forward(origins: Any, arcs: Any, first: int, last: int, scores: Any, logs: Any) -> bool:
    offsets = arcs.offsets
    for b in range(first, last):
        if offsets[b] < 0 or offsets[b] > offsets[b + 1] or offsets[b + 1] > len(arcs.index):
            return False
    total = np.empty(WIDTH, np.float32)
    for start in range(0, len(origins.lengths), WIDTH):
        block = _block(origins, arcs.epsilon, start, logs)
        g = np.empty((2, 2 * len(block.loops)), np.float32)
        for b in range(first, last):
            if not _run(origins, arcs, b, block, g, total, logs):
                return False
            for p in range(start, block.stop):
                scores[b, p] = total[p - start]
    return True


class Gradients(NamedTuple):
    """Those of what one token brings a block; arrays of vectors."""

    states: Any  # of the states after the token; then of those before it, [states]
    reached: Any  # room for that of what the epsilons reach, [states]
    main: Any  # of the token's main-path arcs, [states - 1]
    loops: Any  # of its self-loops, [states]
    skips: Any  # of the epsilons, added up over the tokens, [states - 1]


@_inlined
def _take_back(
    origins: Any,
    block: Any,
    before: Any,  # what `_consume` has made, [2 * states]
    after: Any,
    scores: Any,  # the document's, [1]
    grad: Any,  # their gradient, [1]
    to: Any,  # filled, as `Gradients` says
    logs: Any,
) -> None:
    """The gradients of what `_consume` and `_read_ends` have computed."""
    main, loops, skips = address(block.main, 0), address(block.loops, 0), address(block.skips, 0)
    g, e, new = address(before, 0), address(before, len(block.loops)), address(after, 0)
    ends, ended = load(address(block.ends, 0), 0), address(block.ended, 0)
    final, zero = load(address(block.final, 0), 0), splat(_ZERO)
    to_g, to_e, to_skips = address(to.states, 0), address(to.reached, 0), address(to.skips, 0)
    to_main, to_loops = address(to.main, 0), address(to.loops, 0)

    # What ends here: by itself, and by an epsilon.
    total, amount = load(address(scores, 0), 0), load(address(grad, 0), 0)
    at_end = amount * _share(load(ended, 0), total, logs)
    by_epsilon = zero
    if origins.final_epsilon:
        by_epsilon = amount * _share(load(ended, WIDTH), total, logs)
    looped = _times(load(g, 0), load(loops, 0), logs)
    from_start = zero
    for s in range(WIDTH, len(block.loops), WIDTH):
        here = ends == splat(np.float32(s // WIDTH))
        below = load(new, s - WIDTH)
        store(to_g, s, load(to_g, s) + select(here, at_end, zero))
        skipped = select(here, by_epsilon, zero)
        if s == WIDTH and not origins.empty_matches:
            below, from_start = looped, skipped * _slope(final, logs)
        else:
            store(to_g, s - WIDTH, load(to_g, s - WIDTH) + skipped * _slope(final, logs))
        added = skipped * _slope(below, logs)
        store(to_skips, s - WIDTH, load(to_skips, s - WIDTH) + added)

    # The token, from START's self-loop on.
    one = splat(_ONE if logs is None else _ZERO)
    amount = load(to_g, 0) * _shares(one, looped, logs)[1] + from_start
    store(to_loops, 0, amount * _slope(load(e, 0), logs))
    store(to_e, 0, amount * _slope(load(loops, 0), logs))
    for s in range(WIDTH, len(block.loops), WIDTH):
        amount = load(to_g, s)
        by_main = _times(load(e, s - WIDTH), load(main, s - WIDTH), logs)
        by_loop = _times(load(e, s), load(loops, s), logs)
        of_main, of_loop = _shares(by_main, by_loop, logs)
        by_main, by_loop = amount * of_main, amount * of_loop
        store(to_main, s - WIDTH, by_main * _slope(load(e, s - WIDTH), logs))
        store(to_loops, s, by_loop * _slope(load(e, s), logs))
        earlier = by_main * _slope(load(main, s - WIDTH), logs)
        store(to_e, s - WIDTH, load(to_e, s - WIDTH) + earlier)
        store(to_e, s, by_loop * _slope(load(loops, s), logs))

    # The epsilons before it.
    store(to_g, 0, load(to_e, 0))
    for s in range(WIDTH, len(block.loops), WIDTH):
        amount = load(to_e, s)
        by_epsilon = _times(load(g, s - WIDTH), load(skips, s - WIDTH), logs)
        of_stay, of_epsilon = _shares(load(g, s), by_epsilon, logs)
        by_epsilon = amount * of_epsilon
        store(to_g, s, amount * of_stay)
        earlier = by_epsilon * _slope(load(skips, s - WIDTH), logs)
        store(to_g, s - WIDTH, load(to_g, s - WIDTH) + earlier)
        added = by_epsilon * _slope(load(g, s - WIDTH), logs)
        store(to_skips, s - WIDTH, load(to_skips, s - WIDTH) + added)


@njit(nogil=True)
def _backward(
    origins: Any,
    arcs: Any,
    grad: Any,
    first: int,
    last: int,
    grad_scores: Any,
    grad_epsilon: Any,
    logs: Any,
) -> None:
    index, offsets, main, loops = arcs.index, arcs.offsets, origins.main_path, origins.loops
    main_firsts, loop_firsts = origins.main_firsts, origins.loop_firsts
    longest = 0
    for b in range(len(grad)):
        longest = max(longest, offsets[b + 1] - offsets[b])
    total, amount = np.empty(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    for start in range(first * WIDTH, min(last * WIDTH, len(origins.lengths)), WIDTH):
        block = _block(origins, arcs.epsilon, start, logs)
        stop, lanes = block.stop, len(block.loops)
        g = np.empty((longest + 1, 2 * lanes), np.float32)
        to = Gradients(
            np.empty(lanes, np.float32),
            np.empty(lanes, np.float32),
            np.empty(lanes - WIDTH, np.float32),
            np.empty(lanes, np.float32),
            np.zeros(lanes - WIDTH, np.float32),
        )
        for b in range(len(grad)):
            _run(origins, arcs, b, block, g, total, logs)
            for p in range(start, stop):
                amount[p - start] = grad[b, p]
            if origins.empty_matches and origins.final_epsilon:
                at, here = address(to.skips, 0), load(address(block.ends, 0), 0) == splat(_ONE)
                empty = _share(load(address(block.final, 0), 0), load(address(total, 0), 0), logs)
                empty = select(here, load(address(amount, 0), 0) * empty, splat(_ZERO))
                store(at, 0, load(at, 0) + empty)
            to.states[:] = _ZERO
            for t in range(offsets[b + 1] - offsets[b] - 1, -1, -1):
                n = index[offsets[b] + t]
                _read_token(origins, block, arcs.scores[n])
                _read_ends(origins, block, g[t], g[t + 1], logs)
                _take_back(origins, block, g[t], g[t + 1], total, amount, to, logs)
                _add(grad_scores[n], main, main_firsts, start, stop, to.main)
                _add(grad_scores[n], loops, loop_firsts, start, stop, to.loops)
        if len(grad_epsilon) > 0:
            _add(grad_epsilon, main, main_firsts, start, stop, to.skips)


@Compiled
def sum_scores(origins: Any, arcs: Any, first: int, last: int, scores: Any) -> bool:
    """Fills `scores [B, K]` of documents `first` to `last - 1`; False where one does not fit."""
    return _forward(origins, arcs, first, last, scores, None)


@Compiled
def log_scores(origins: Any, arcs: Any, first: int, last: int, scores: Any) -> bool:
    """As `sum_scores`, in log space."""
    return _forward(origins, arcs, first, last, scores, True)


@Compiled
def sum_gradients(
    origins: Any, arcs: Any, grad: Any, first: int, last: int, grad_scores: Any, grad_epsilon: Any
) -> None:
    """Adds the gradients of blocks `first` to `last - 1`; `grad [B, K]` is that of the scores.

    Each block has columns of its own in `grad_scores [N, R]` and `grad_epsilon [Q]`, so blocks may
    run in threads, and every sum is taken in the order of documents and tokens.
    """
    _backward(origins, arcs, grad, first, last, grad_scores, grad_epsilon, None)


@Compiled
def log_gradients(
    origins: Any, arcs: Any, grad: Any, first: int, last: int, grad_scores: Any, grad_epsilon: Any
) -> None:
    """As `sum_gradients`, in log space."""
    _backward(origins, arcs, grad, first, last, grad_scores, grad_epsilon, True)
