"""Elementwise work on arc scores: log sigmoids, and products with a gradient of mostly zeros.

There is no vector version of `exp` and `log1p` to call, so both are spelt out, in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from sopa_plugin.wfsa.kernels.plan import WIDTH
from sopa_plugin.wfsa.kernels.threads import Compiled
from sopa_plugin.wfsa.kernels.vectors import (
    address,
    load,
    power_of_two,
    select,
    splat,
    store,
    truncated,
)

_ZERO, _ONE, _TWO, _HALF = (np.float32(number) for number in (0, 1, 2, 0.5))
_LOWEST = np.float32(-87)  # e to the power of less is no normal float32
_PER_LN2 = np.float32(1 / math.log(2))
# ln 2 in two parts, of which the first has so few bits that its multiples are exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(math.log(2) - 0.693359375)
_SMALL = np.float32(0.05)
_ROWS_AT_ONCE = 16
_E2, _E3, _E4, _E5, _E6 = (np.float32(1 / math.factorial(n)) for n in range(2, 7))
_L3, _L5, _L7, _L9, _L11, _L13 = (np.float32(2 / n) for n in range(3, 14, 2))


@njit
def exp(power: Any) -> Any:
    """e to the power of a vector of numbers of at most about 0; of less than -87, as of -87."""
    power = select(power > _LOWEST, power, splat(_LOWEST))  # of NaN, as of -87
    # exp(power) = 2 ** twos * exp(r), |r| <= ln 2 / 2, the latter by its series
    twos = truncated(power * _PER_LN2 - _HALF)
    r = (power - twos * _LN2_HIGH) - twos * _LN2_LOW
    series = _ONE + r * (_ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * _E6)))))
    return series * power_of_two(twos)


@njit
def log_one_plus(e: Any) -> Any:
    """log(1 + e) of a vector of numbers from 0 to 1."""
    # 2 artanh(s), s = e / (2 + e) <= 1 / 3, by its series
    s = e / (_TWO + e)
    q = s * s
    series = _TWO + q * (_L3 + q * (_L5 + q * (_L7 + q * (_L9 + q * (_L11 + q * _L13)))))
    return s * series


@njit
def _log_sigmoid(pointer: Any, offset: int) -> None:
    x, zero = load(pointer, offset), splat(_ZERO)
    positive = x > zero
    lowered = log_one_plus(exp(select(positive, zero - x, x)))
    store(pointer, offset, select(positive, zero, x) - lowered)


@njit
def _log_sigmoids(numbers: Any) -> None:
    whole = len(numbers) // WIDTH * WIDTH
    for i in range(0, whole, WIDTH):
        _log_sigmoid(address(numbers, 0), i)
    rest = np.zeros(WIDTH, np.float32)
    for i in range(len(numbers) - whole):
        rest[i] = numbers[whole + i]
    _log_sigmoid(address(rest, 0), 0)
    for i in range(len(numbers) - whole):
        numbers[whole + i] = rest[i]


@Compiled
def log_sigmoid(numbers: Any) -> None:
    """Replaces each of `numbers`, float32 `[.]`, by its log sigmoid.

    The error is at most 4e-7 of the result (of numbers above 87, 2e-38); NaN stays NaN.
    """
    _log_sigmoids(numbers)


@Compiled
def finish_products(
    products: Any, bias: Any, keep: Any, scale: float, take_log_sigmoid: bool, first: int, last: int
) -> None:
    """Makes rows `first` to `last - 1` of `products [N, A]` arc scores, some at a time in cache.

    What `keep [N, A]` drops, if it has rows, is 0, the rest times `scale`, and `bias [A]` is added;
    then comes the log sigmoid.
    """
    factor = np.float32(scale)
    for start in range(first, last, _ROWS_AT_ONCE):
        some = products[start : min(start + _ROWS_AT_ONCE, last)]
        for n in range(len(some) if len(keep) else 0):
            for a in range(len(bias)):
                some[n, a] = some[n, a] * (factor * np.float32(keep[start + n, a])) + bias[a]
        if take_log_sigmoid:
            _log_sigmoids(some.reshape(-1))


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
    return x * (_ONE - x * (_E2 - x * (_E3 - x * _E4)))  # its series


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


@Compiled
def add_row_products(
    grad: Any,
    weight: Any,
    keep: Any,
    scale: float,
    log_sigmoids: Any,
    first: int,
    last: int,
    rows_grad: Any,
) -> None:
    """Adds the gradients of rows `first` to `last - 1` of `rows_grad [N, E]`; see `add_products`.

    Each row has its own, so rows may run in threads.
    """
    factor = np.float32(scale)
    arcs = np.empty(grad.shape[1], np.int64)
    for n in range(first, last):
        count = 0
        for a in range(grad.shape[1]):
            arcs[count] = a
            count += grad[n, a] != 0
        for i in range(count):
            a = arcs[i]
            if len(keep) and not keep[n, a]:
                continue
            amount = grad[n, a] * factor
            if len(log_sigmoids):
                amount *= _slope(log_sigmoids[n, a])
            for e in range(weight.shape[1]):
                rows_grad[n, e] += amount * weight[a, e]
