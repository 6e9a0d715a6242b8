"""The base class of what turns a raw arc score into a semiring's."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from sopa_plugin.registry import Registrable


class ArcEncoding(Registrable):
    """The encoding function E of the paper (Eq. 3-4), applied to `w·v + b` and to epsilons.

    `kind` says what its scores are, and so which semirings take it: a `weight` is positive and
    multiplied, a `log_weight` of either sign and added, a `truth` 0 or 1. An encoding of kind
    `weight` also gives its logarithm, for semirings that hold logarithms.
    """

    kind: ClassVar[str]

    at_most_one: ClassVar[bool] = False
    """Whether no score exceeds its semiring's `one`, so that no arc can better a path."""

    @classmethod
    def named(cls, name: str) -> ArcEncoding:
        """The registered encoding `name`."""
        return cls.by_name(name)()

    def encode(self, raw: Tensor) -> Tensor:
        """Arc scores from raw ones, elementwise."""
        raise NotImplementedError

    def encode_log(self, raw: Tensor) -> Tensor:
        """Logarithms of the same scores, computed without loss (kind `weight` only)."""
        raise NotImplementedError
