"""The recurrence over max and plus, compiled for the CPU: one token after another, in vectors.

`Plan` says how states lie in lanes and which vectors there are to compute. The functions here take
`Arcs`, and fill in `BestMatches` or `EndScores`, of arrays; False says that an offset or an index
is out of range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from sopa_plugin.wfsa.kernels.plan import WIDTH, Plan
from sopa_plugin.wfsa.kernels.threads import Compiled
from sopa_plugin.wfsa.kernels.vectors import (
    address,
    flag,
    hold,
    load,
    maximum,
    select,
    splat,
    store,
)
from sopa_plugin.wfsa.layout import EPSILON, SELF_LOOP

NEVER = np.float32(-np.inf)


@njit
def _in_lanes(plan: Plan, epsilon: Any, chosen: Any) -> Any:
    """The chosen epsilon scores (None: all), each in the lane of the state that it leads to."""
    lanes = np.empty(plan.num_lanes, np.float32)
    for lane in range(plan.num_lanes):
        lanes[lane] = NEVER
    for q in range(len(epsilon)):
        if chosen is None or chosen[q]:
            lanes[plan.epsilon_lanes[q]] = epsilon[q]
    return lanes


@njit(nogil=True)
def _run(
    plan: Plan,
    arcs: Any,
    first: int,
    last: int,
    document_scores: Any,  # [B, K]; or None
    paths: Any,  # BestMatches; or None
    by_end: Any,  # EndScores; or None
    steps: Any,  # [M, S], those of either; or None
) -> bool:
    """Runs documents `first` to `last - 1`. An output that is None is left out in compiling."""
    scores, index, offsets, epsilon = arcs
    stride, num_scores = plan.stride, scores.shape[1]
    # Scores of states after a token, and with the epsilons that may follow it.
    after, before = np.empty(plan.num_lanes, np.float32), np.empty(plan.num_lanes, np.float32)
    # The best score at END so far, and where: twice the number of tokens, plus 1 by an epsilon.
    best, where = np.empty(plan.num_lanes, np.float32), np.empty(plan.num_lanes, np.int32)
    # The score at END after a token, and whether it was reached by an epsilon.
    at_end, ended = np.empty(plan.num_lanes, np.float32), np.empty(plan.num_lanes, np.uint8)
    by_epsilon = np.zeros(plan.num_lanes, np.uint8)
    # Vectors may begin before the first column: in the first rows before the tensor, so these are
    # copied.
    first_rows = np.zeros(2 * WIDTH + num_scores, np.float32)
    for c in range(min(WIDTH + num_scores, scores.size)):
        first_rows[WIDTH + c] = scores[c // num_scores, c % num_scores]
    step_row = np.zeros(WIDTH + plan.num_states, np.uint8)
    inner = _in_lanes(plan, epsilon, None)
    final = _in_lanes(plan, epsilon, plan.final)
    empty = _in_lanes(plan, epsilon, plan.empty)

    g, e = address(after, 0), address(before, 0)
    inner_at, final_at, barred_at = address(inner, 0), address(final, 0), address(plan.barred, 0)
    best_at, where_at, read_at = address(best, 0), address(where, 0), address(at_end, 0)
    took_at, step_at = address(by_epsilon, 0), address(step_row, WIDTH)
    ended_at = address(ended, 0)
    one, never = splat(np.float32(0)), splat(NEVER)

    for b in range(first, last):
        for lane in range(plan.num_lanes):
            after[lane] = before[lane] = 0 if lane < stride else NEVER
            best[lane] = empty[lane]
            where[lane] = 1 if empty[lane] > NEVER else -1
        if offsets[b] < 0 or offsets[b] > offsets[b + 1] or offsets[b + 1] > len(index):
            return False
        for m in range(offsets[b], offsets[b + 1]):
            row = index[m]
            if row < 0 or row >= len(scores):
                return False
            at = row * num_scores
            x = address(first_rows, WIDTH + at) if at < WIDTH else address(scores, at)
            for k in range(len(plan.epsilon_steps)):
                s = plan.epsilon_steps[k]
                stay, skip = load(g, s), load(g, s - stride) + load(inner_at, s)
                store(e, s, maximum(skip, stay))
                if steps is not None:
                    store(took_at, s, flag(skip > stay, EPSILON))
            for k in range(len(plan.arc_steps)):
                s = plan.arc_steps[k]
                arrive = load(e, s - stride) + load(x, plan.main_columns[k])
                again = load(e, s) + load(x, plan.loop_columns[k])
                again = select(load(barred_at, s) > never, again, never)  # even if it is NaN
                store(g, s, maximum(again, arrive))
                if steps is not None:
                    step = load(took_at, s) | flag(again > arrive, SELF_LOOP)
                    store(step_at, plan.step_columns[k], step)
            for s in plan.start_steps:
                again = load(g, s) + load(x, plan.start_column + s)
                store(e, s, maximum(again, one))
                store(g, s, maximum(again, one) if plan.empty_matches else again)
                if steps is not None:
                    store(step_at, s - plan.padding, flag(again > one, SELF_LOOP))
            for k in range(len(plan.end_steps)):
                s = plan.end_steps[k]
                stay, skip = load(g, s), load(g, s - stride) + load(final_at, s)
                score, so_far = maximum(skip, stay), load(best_at, s)
                store(best_at, s, maximum(score, so_far))
                if paths is not None:
                    code = np.int32(2 * (m + 1 - offsets[b]))
                    here = select(skip > stay, splat(np.int32(code + 1)), splat(code))
                    store(where_at, s, select(score > so_far, here, load(where_at, s)))
                if by_end is not None:
                    store(read_at, s, score)
                    store(ended_at, s, flag(skip > stay, 1))
            for s in plan.start_steps:
                store(g, s, load(e, s))
            if steps is not None:
                for p in range(len(plan.end_lanes) if len(plan.start_steps) == 0 else 0):
                    step_row[WIDTH + p] = 0
                for c in range(plan.num_states):
                    steps[m, c] = step_row[WIDTH + c]
            if by_end is not None:
                for p in range(len(plan.end_lanes)):
                    by_end.scores[m, p] = at_end[plan.end_lanes[p]]
                    by_end.final[m, p] = ended[plan.end_lanes[p]]
        for p in range(len(plan.end_lanes)):
            lane = plan.end_lanes[p]
            if document_scores is not None:
                document_scores[b, p] = best[lane]
            if paths is not None:
                paths.ends[b, p] = where[lane] >> 1
                paths.final[b, p] = where[lane] & 1 if where[lane] >= 0 else 0
    hold(inner)
    hold(final)
    hold(at_end)
    hold(ended)
    hold(by_epsilon)
    return True


@Compiled
def best_scores(plan: Any, arcs: Any, first: int, last: int, document_scores: Any) -> bool:
    """Fills `document_scores [B, K]` for documents `first` to `last - 1`."""
    return _run(plan, arcs, first, last, document_scores, None, None, None)


@Compiled
def best_paths(plan: Any, arcs: Any, first: int, last: int, matches: Any) -> bool:
    """Fills `matches`, which are `BestMatches`, for documents `first` to `last - 1`."""
    return _run(plan, arcs, first, last, matches.scores, matches, None, matches.steps)


@Compiled
def scores_by_end(plan: Any, arcs: Any, first: int, last: int, found: Any) -> bool:
    """Fills `found`, which are `EndScores`, for documents `first` to `last - 1`."""
    return _run(plan, arcs, first, last, None, None, found, found.steps)


@njit(nogil=True)
def _match(
    origins: Any,
    arcs: Any,
    b: int,
    p: int,
    first: int,
    last: int,
    after: Any,
    begun: Any,
    floor: Any,
    found: Any,  # Spans to be filled from `count` on; or None
    count: int,
) -> Any:
    """What the best match of pattern `p` in document `b` scores, where it begins, and its end.

    The end is -1 where there is no match. Behind these stands `count`, and how many matches score
    `floor` at least. No token from `first` to `last - 1` is consumed. `after` and `begun` are room
    for the scores of states, and for where the paths to them begin. As `_run`, in the same order of
    sums and ties, but one pattern alone.
    """
    scores, index, offsets, epsilon = arcs
    main, loops, end_state = origins.main_path, origins.loops, origins.lengths[p] - 1
    skips = len(epsilon) > 0
    final = epsilon[main[end_state - 1] + p] if skips and origins.final_epsilon else NEVER
    best, start, end = NEVER, offsets[b], -1
    if origins.empty_matches and end_state == 1 and final > NEVER:
        best, end = final, start
    for i in range(end_state + 1):
        after[i], begun[i] = NEVER if i > 0 else np.float32(0), offsets[b]
    for m in range(offsets[b], offsets[b + 1]):
        row, closed = index[m], first <= m < last
        here, since = NEVER, m  # a state with the epsilon that may precede the token
        for i in range(end_state, -1, -1):
            before, by = after[i], begun[i]
            if skips and i > 0 and after[i - 1] + epsilon[main[i - 1] + p] > before:
                before, by = after[i - 1] + epsilon[main[i - 1] + p], begun[i - 1]
            if i < end_state:
                arrive = NEVER if closed else before + scores[row, main[i] + p]
                if not here > arrive:
                    here, since = arrive, by
                after[i + 1], begun[i + 1] = here, since
            here, since = NEVER, by
            if not closed and p >= origins.loop_firsts[i]:
                here = before + scores[row, loops[i] + p]
        # what START's own loop, if any, has made of it
        fresh = not here > 0
        skip, by = after[end_state - 1] + final, begun[end_state - 1]
        if end_state == 1:
            skip, by = here + final, since
            if origins.empty_matches and fresh:
                skip, by = final, m + 1
        score, from_ = after[end_state], begun[end_state]
        if skip > score:
            score, from_ = skip, by
        if score > best:
            best, start, end = score, from_, m + 1
        if score >= floor and score > NEVER:
            if found is not None:
                found.scores[count], found.firsts[count], found.ends[count] = score, from_, m + 1
            count += 1
        after[0], begun[0] = (np.float32(0), m + 1) if fresh else (here, since)
    return best, start, end, count


@njit
def _room(origins: Any) -> Any:
    states = origins.lengths.max()
    return np.empty(states, np.float32), np.empty(states, np.int64)


@Compiled
def next_scores(origins: Any, arcs: Any, documents: Any, patterns: Any, scores: Any) -> None:
    """Fills `scores [n]`: those of the next best matches of patterns in documents.

    `origins` are the layout's (`plan.origins_of`).
    """
    after, begun = _room(origins)
    for n in range(len(scores)):
        b, p = documents[n], patterns[n]
        best, first, last, _ = _match(origins, arcs, b, p, -1, -1, after, begun, np.inf, None, 0)
        if last >= 0:
            again = _match(origins, arcs, b, p, first, last, after, begun, np.inf, None, 0)
            best = again[0]
        scores[n] = best


@Compiled
def count_above(
    origins: Any, arcs: Any, documents: Any, patterns: Any, floors: Any, counts: Any
) -> None:
    """Fills `counts [n]`: how many matches of patterns in documents score `floors [n]` at least."""
    after, begun = _room(origins)
    for n in range(len(counts)):
        b, p = documents[n], patterns[n]
        counts[n] = _match(origins, arcs, b, p, -1, -1, after, begun, floors[n], None, 0)[3]


@Compiled
def spans_above(
    origins: Any, arcs: Any, documents: Any, patterns: Any, floors: Any, places: Any, found: Any
) -> None:
    """Fills `found`, which are `Spans`, with these matches, the n-th pair's from `places[n]` on."""
    after, begun = _room(origins)
    for n in range(len(places)):
        b, p = documents[n], patterns[n]
        _match(origins, arcs, b, p, -1, -1, after, begun, floors[n], found, places[n])


@Compiled
def walk_back(
    origins: Any,
    arcs: Any,
    grad: Any,
    paths: Any,
    first: int,
    last: int,
    grad_scores: Any,
    grad_epsilon: Any,
) -> None:
    """Adds the gradients of patterns `first` to `last - 1` along their best paths.

    Each pattern has columns of its own in `grad_scores [N, R]` and `grad_epsilon [Q]`, so patterns
    may run in threads, and every sum is taken in the order of documents and tokens.

    `origins` are the layout's (`plan.origins_of`), `paths` the last three of `BestMatches`.
    """
    lengths, main, loop = origins.lengths, origins.main_path, origins.loops
    state_column, (ends, final, steps) = origins.states, paths
    index, offsets = arcs.index, arcs.offsets
    for b in range(len(ends)):
        for p in range(first, last):
            amount, end = grad[b, p], ends[b, p]
            if amount == 0 or end < 0:
                continue
            state = lengths[p] - 1
            if final[b, p]:
                state -= 1
                grad_epsilon[main[state] + p] += amount
            # An epsilon from START to END follows a token that START's loop consumed, if no match
            # is empty.
            must_loop = final[b, p] and state == 0 and not origins.empty_matches
            for m in range(offsets[b] + end - 1, offsets[b] - 1, -1):
                if must_loop or steps[m, state_column[state] + p] & SELF_LOOP:
                    grad_scores[index[m], loop[state] + p] += amount
                elif state > 0:
                    state -= 1
                    grad_scores[index[m], main[state] + p] += amount
                else:
                    break
                must_loop = False
                if steps[m, state_column[state] + p] & EPSILON:
                    state -= 1
                    grad_epsilon[main[state] + p] += amount
