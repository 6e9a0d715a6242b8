"""Where matches begin, for many matches at once: compiled, max semirings only."""

from __future__ import annotations

from typing import Any

import numpy as np

from sopa_plugin.wfsa.kernels.compiled import Compiled
from sopa_plugin.wfsa.reference import EPSILON, SELF_LOOP


@Compiled
def find_starts(
    columns: Any,
    final_epsilon: bool,
    must_loop_at_start: bool,
    scores: Any,  # [N, R]
    index: Any,  # [M]
    epsilon: Any,  # [Q]
    steps: Any,  # [M, S]
    patterns: Any,  # [matches]
    tokens: Any,  # [matches]; the last of each
    firsts: Any,  # [matches]; the first of its document
    reached: Any,  # [matches]; its score
    starts: Any,  # [matches]; filled in
) -> None:
    """Follows each match back to its first token, as `paths.trace` does.

    Whether a match ends with an epsilon is told by its score: the path that adds up to it is the
    one; of two that do, the one without. `columns` are the rows of `plan.columns_of`.
    """
    lengths, main, loop, state_column = columns
    for match in range(len(patterns)):
        p, nearest = patterns[match], np.inf
        for final in range(2 if final_epsilon else 1):
            state, m, total = lengths[p] - 1 - final, tokens[match], 0.0
            if final:
                total += epsilon[main[state] + p]
            must_loop = must_loop_at_start and final == 1 and state == 0
            while m >= firsts[match]:
                if must_loop or steps[m, state_column[state] + p] & SELF_LOOP:
                    total += scores[index[m], loop[state] + p]
                elif state > 0:
                    state -= 1
                    total += scores[index[m], main[state] + p]
                else:
                    break
                must_loop = False
                if state > 0 and steps[m, state_column[state] + p] & EPSILON:
                    state -= 1
                    total += epsilon[main[state] + p]
                m -= 1
            difference = abs(total - reached[match])
            if state == 0 and (final == 0 or difference < nearest):
                starts[match], nearest = m + 1, difference
