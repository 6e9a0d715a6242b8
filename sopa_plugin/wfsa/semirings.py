"""Semirings: the algebras in which arc scores are put together (paper, section 2)."""

from __future__ import annotations

from collections.abc import Set
from typing import ClassVar

import torch
from torch import Tensor

from sopa_plugin.registry import Registrable


class Semiring(Registrable):
    """How scores combine: `times` along a path, `plus` over paths.

    A user's own needs a registered name, the class attributes without a value here, `plus` and
    `times`; it runs on the reference recurrence, with gradients by torch. Semirings hold no state
    and take no arguments. Values are float tensors in whatever representation suits (max-product
    holds logarithms); `to_score` turns them into what users see.
    """

    zero: ClassVar[float]
    """The neutral element of `plus`, which `times` keeps: what no match scores."""

    one: ClassVar[float]
    """The neutral element of `times`: what a path of no arcs scores."""

    accepts: ClassVar[Set[str]]
    """Kinds of arc encodings (`ArcEncoding.kind`) whose scores are elements of this semiring."""

    reason: ClassVar[str]
    """Why only those: ends the message that refuses another encoding."""

    default_encoding: ClassVar[str]
    """The encoding used where none is named."""

    selects: ClassVar[bool] = False
    """Whether `plus` returns one of its operands, the first of equals: there is a best path."""

    differentiable: ClassVar[bool] = True
    """Whether scores have gradients, so that patterns can be trained."""

    logarithms: ClassVar[bool] = False
    """Whether values are held as the logarithms of the scores that users see."""

    @classmethod
    def named(cls, name: str) -> Semiring:
        """The registered semiring `name`."""
        return cls.by_name(name)()

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        """Combines the scores of alternative paths, elementwise."""
        raise NotImplementedError

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """Combines the scores along a path, elementwise."""
        raise NotImplementedError

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """`plus` over axis `dim`, which goes; `zero` where it is empty."""
        total = torch.full_like(values.sum(dim), self.zero)
        for value in values.unbind(dim):
            total = self.plus(total, value)
        return total

    def prod(self, values: Tensor, dim: int) -> Tensor:
        """`times` over axis `dim`, which goes; `one` where it is empty."""
        total = torch.full_like(values.sum(dim), self.one)
        for value in values.unbind(dim):
            total = self.times(total, value)
        return total

    def to_score(self, values: Tensor) -> Tensor:
        """Scores as users see them, from values as this semiring holds them."""
        return values.exp() if self.logarithms else values


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
        """The larger; the first of equals; NaN, if either is."""
        return torch.where((second > first) | second.isnan(), second, first)

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum."""
        return first + second


@Semiring.register("max_product")
class MaxProduct(MaxSum):
    """A path scores the product of its arcs, a document its best path (Viterbi; Eq. 6-8).

    Registered as `max_product`, the paper's main model. Values are logarithms, since products of
    many probabilities underflow, and so it is `max_sum` over them.
    """

    accepts = frozenset({"weight"})
    reason = "it multiplies scores and keeps the largest, so each must be a positive weight"
    default_encoding = "sigmoid"
    logarithms = True


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
        # Infinities are kept from logaddexp, whose gradients there, first and second, are not
        # numbers.
        no_first, no_second = first == self.zero, second == self.zero
        either = no_first | no_second
        total = torch.logaddexp(first.masked_fill(either, 0), second.masked_fill(either, 0))
        total = torch.where(no_first, second, torch.where(no_second, first, total))
        return total.masked_fill(no_first & no_second, self.zero)

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum."""
        return first + second


@Semiring.register("boolean")
class Boolean(MaxSum):
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
    differentiable = False

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        """And."""
        return first * second
