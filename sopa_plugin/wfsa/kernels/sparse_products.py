"""Products with a matrix that is mostly zeros."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
    keep: Any,
    scale: float,
    log_sigmoids: Any,
    first: int,
    last: int,
    weight_grad: Any,
    bias_grad: Any,
) -> None:
    """Adds the gradients that columns `first` to `last - 1` of `grad [N, A]` mean.

    `grad` is the gradient of `log_sigmoids [N, A]` of arc scores, or of the scores themselves where
    that has no rows; scores are `scale` times the products of `rows [N, E]` and weights, if
    `keep [N, A]` has no rows or keeps them, plus the bias. Each column has its own row in
    `weight_grad [A, E]` and place in `bias_grad [A]`, so columns may run in threads, and every sum
    is taken in the order of the rows.
    """
    for n in range(len(rows)):
        for a in range(first, last):
            amount = grad[n, a]
            if amount != 0:
                if len(log_sigmoids):  # times the slope, 1 - sigmoid
                    amount *= -math.expm1(log_sigmoids[n, a])
                bias_grad[a] += amount
                if len(keep) and not keep[n, a]:
                    continue
                amount *= np.float32(scale)
                for e in range(rows.shape[1]):
                    weight_grad[a, e] += amount * rows[n, e]
