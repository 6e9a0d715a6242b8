"""The max-sum semiring."""

from __future__ import annotations

import torch
from torch import Tensor

from sopa_plugin.wfsa.semirings.semiring import Semiring


@Semiring.register("max_sum")
class MaxSum(Semiring):
    """A path scores the sum of its arcs, a document its best path (paper, section 4).

    Registered as `max_sum`. Zero is -inf, one is 0. With the identity encoding and neither
    self-loops nor epsilons a pattern is one filter of a max-pooled CNN. Of equal values `plus`
    keeps the first, and the gradient follows the one that was kept.
    """

    zero = float("-inf")
    one = 0.0
    accepts = frozenset({"log_weight"})
    reason = "it adds scores, so each must be a log-weight, of either sign"
    default_encoding = "identity"
    selects = True

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        """The larger; the first of equals."""
        return torch.where(second > first, second, first)

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum."""
        return first + second
