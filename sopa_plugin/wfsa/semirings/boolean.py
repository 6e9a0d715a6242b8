"""The boolean semiring."""

from __future__ import annotations

import torch
from torch import Tensor

from sopa_plugin.wfsa.semirings.semiring import Semiring


@Semiring.register("boolean")
class Boolean(Semiring):
    """Whether a pattern matches at all: a hard pattern, or a regular expression.

    Registered as `boolean`. An arc may consume a word where its raw score is above 0 (encoding
    `positive`); values are 1.0 and 0.0, `plus` is or, `times` is and. It has no gradient, so it
    reads patterns that were trained otherwise or written by hand.
    """

    zero = 0.0
    one = 1.0
    accepts = frozenset({"truth"})
    reason = "its values are true and false"
    default_encoding = "positive"
    selects = True
    differentiable = False

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        """Or; the first of equals."""
        return torch.where(second > first, second, first)

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """And."""
        return first * second
