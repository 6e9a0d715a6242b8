"""The max-product semiring."""

from __future__ import annotations

import torch
from torch import Tensor

from sopa_plugin.wfsa.semirings.semiring import Semiring


@Semiring.register("max_product")
class MaxProduct(Semiring):
    """A path scores the product of its arcs, a document its best path (Viterbi; Eq. 6-8).

    Registered as `max_product`, the paper's main model. Values are logarithms, since products of
    many probabilities underflow: zero is -inf, one is 0, `times` adds. Of equal values `plus`
    keeps the first, and the gradient follows the one that was kept.
    """

    zero = float("-inf")
    one = 0.0
    accepts = frozenset({"weight"})
    reason = "it multiplies scores and keeps the largest, so each must be a positive weight"
    default_encoding = "sigmoid"
    selects = True
    logarithms = True

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        """The larger; the first of equals."""
        return torch.where(second > first, second, first)

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum of logarithms."""
        return first + second
