"""The sum-product semiring."""

from __future__ import annotations

from torch import Tensor

from sopa_plugin.wfsa.semirings.semiring import Semiring


@Semiring.register("sum_product")
class SumProduct(Semiring):
    """A path scores the product of its arcs, a document the sum over all paths of all its spans.

    Registered as `sum_product`: the Forward algorithm (paper, Eq. 1-2), whose document score is
    the pattern's expected count (section 3.2). Values are held as they are; `log` holds the same
    as logarithms.
    """

    zero = 0.0
    one = 1.0
    accepts = frozenset({"weight", "log_weight", "truth"})
    reason = "it adds and multiplies"
    default_encoding = "sigmoid"

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum."""
        return first + second

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """The product."""
        return first * second

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """The sum over axis `dim`."""
        return values.sum(dim)
