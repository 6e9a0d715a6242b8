"""The base class of the algebras in which arc scores are put together."""

from __future__ import annotations

from collections.abc import Set
from typing import ClassVar

import torch
from torch import Tensor

from sopa_plugin.registry import Registrable


class Semiring(Registrable):
    """How scores combine (paper, section 2): `times` along a path, `plus` over paths.

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
