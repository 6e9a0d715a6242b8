"""The logarithm of the logistic function, several numbers at once.

Compilers have no vector version of `exp` and `log1p`, so both are spelt out, in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types

from sopa_plugin.wfsa.kernels.compiled import Compiled
from sopa_plugin.wfsa.kernels.vectors import intrinsic

_ZERO, _ONE, _TWO, _HALF = (np.float32(number) for number in (0, 1, 2, 0.5))
_LOWEST = np.float32(-87)  # e to the power of less is no normal float32
_PER_LN2 = np.float32(1 / math.log(2))
# ln 2 in two parts, of which the first has so few bits that its multiples are exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(math.log(2) - 0.693359375)
_BIAS, _FRACTION_BITS = np.int32(127), np.int32(23)  # of the exponent in a float32
_E2, _E3, _E4, _E5, _E6 = (np.float32(1 / math.factorial(n)) for n in range(2, 7))
_L3, _L5, _L7, _L9, _L11, _L13 = (np.float32(2 / n) for n in range(3, 14, 2))


@intrinsic
def _as_float32(typing: Any, bits: Any) -> Any:
    """The float32 with these bits, an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


# A product may be fused with a sum, and a division by zero (there is none) need not raise: only so
# does the loop become one over vectors.
@njit(fastmath={"contract"}, error_model="numpy")
def _run(numbers: Any) -> None:
    for i in range(len(numbers)):
        x = numbers[i]
        # log sigmoid(x) = min(x, 0) - log(1 + exp(-|x|))
        power = -abs(x)
        power = power if power > _LOWEST else _LOWEST
        # exp(power) = 2 ** twos * exp(r), |r| <= ln 2 / 2, the latter by its series
        twos = np.int32(power * _PER_LN2 - _HALF)
        r = (power - np.float32(twos) * _LN2_HIGH) - np.float32(twos) * _LN2_LOW
        series = _ONE + r * (_ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * _E6)))))
        e = series * _as_float32(np.int32((twos + _BIAS) << _FRACTION_BITS))
        # log(1 + e) = 2 artanh(s), s = e / (2 + e) <= 1 / 3, by its series
        s = e / (_TWO + e)
        q = s * s
        series = _TWO + q * (_L3 + q * (_L5 + q * (_L7 + q * (_L9 + q * (_L11 + q * _L13)))))
        numbers[i] = (_ZERO if x > _ZERO else x) - s * series


@Compiled
def log_sigmoid(numbers: Any) -> None:
    """Replaces each of `numbers`, float32 `[.]`, by its log sigmoid.

    The error is at most 4e-7 of the result (of numbers above 87, 2e-38); NaN stays NaN.
    """
    _run(numbers)
