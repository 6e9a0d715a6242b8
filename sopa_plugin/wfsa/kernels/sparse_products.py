"""Products with a matrix that is mostly zeros."""

from __future__ import annotations

import math
from typing import Any

from sopa_plugin.wfsa.kernels.compiled import Compiled


@Compiled
def count_nonzero(grad: Any) -> int:
    """How many numbers of `grad [N, A]` are not zero."""
    count = 0
    for n in range(grad.shape[0]):
        for a in range(grad.shape[1]):
            count += grad[n, a] != 0
    return count


@Compiled
def add_products(
    grad: Any,
    rows: Any,
    log_sigmoids: Any,
    first: int,
    last: int,
    weight_grad: Any,
    bias_grad: Any,
) -> None:
    """Adds columns `first` to `last - 1` of `grad [N, A]`, transposed, times `rows [N, E]`.

    To `weight_grad [A, E]`, and the columns' sums to `bias_grad [A]`. Each column has a row of its
    own there, so columns may run in threads, and every sum is taken in the order of the rows.

    `log_sigmoids [N, A]`, if not empty, are log sigmoids of what `grad` is to be the gradient of,
    and it is theirs; their slope, `1 - sigmoid`, is put in.
    """
    for n in range(len(rows)):
        for a in range(first, last):
            amount = grad[n, a]
            if amount != 0:
                if len(log_sigmoids):
                    amount *= -math.expm1(log_sigmoids[n, a])
                bias_grad[a] += amount
                for e in range(rows.shape[1]):
                    weight_grad[a, e] += amount * rows[n, e]
