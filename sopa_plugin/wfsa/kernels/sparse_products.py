"""Products with a matrix that is mostly zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from sopa_plugin.wfsa.kernels.compiled import Compiled

_ONE, _HALF, _SIXTH, _24TH = (np.float32(1 / n) for n in (1, 2, 6, 24))
_SMALL = np.float32(0.05)


@Compiled
def count_nonzero(grad: Any) -> int:
    """How many numbers of `grad [N, A]` are not zero."""
    count = 0
    for n in range(grad.shape[0]):
        for a in range(grad.shape[1]):
            count += grad[n, a] != 0
    return count


@njit
def _slope(log_sigmoid: Any) -> Any:
    """1 - exp(log_sigmoid), the slope of the log sigmoid, with an error of some 1e-6 of it.

    `expm1` would take as long as all the rest of the backward pass.
    """
    x = -log_sigmoid
    if x > _SMALL:
        return _ONE - np.exp(log_sigmoid)
    return x * (_ONE - x * (_HALF - x * (_SIXTH - x * _24TH)))  # its series


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
    factor = np.float32(scale)
    arcs = np.empty(last - first, np.int64)
    for n in range(len(rows)):
        count = 0
        for a in range(first, last):
            arcs[count] = a
            count += grad[n, a] != 0
        for i in range(count):
            a = arcs[i]
            amount = grad[n, a]
            if len(log_sigmoids):
                amount *= _slope(log_sigmoids[n, a])
            bias_grad[a] += amount
            if len(keep) and not keep[n, a]:
                continue
            amount *= factor
            for e in range(rows.shape[1]):
                weight_grad[a, e] += amount * rows[n, e]
