"""The log semiring."""

from __future__ import annotations

import torch
from torch import Tensor

from sopa_plugin.wfsa.semirings.semiring import Semiring


@Semiring.register("log")
class Log(Semiring):
    """Sum-product in log space: `plus` is logaddexp, `times` adds.

    Registered as `log`. Arc scores are log-weights; with `log_sigmoid` a document scores the
    logarithm of what `sum_product` over `sigmoid` gives, with no underflow. Zero is -inf, one is 0.
    """

    zero = float("-inf")
    one = 0.0
    accepts = frozenset({"log_weight"})
    reason = "it adds scores and sums their exponentials, so each must be a log-weight"
    default_encoding = "log_sigmoid"

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        """log(exp(first) + exp(second))."""
        # Two infinities are kept from logaddexp, whose gradient there is not a number.
        neither = (first == self.zero) & (second == self.zero)
        total = torch.logaddexp(first.masked_fill(neither, 0), second.masked_fill(neither, 0))
        return total.masked_fill(neither, self.zero)

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum."""
        return first + second
