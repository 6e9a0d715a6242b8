"""Encodings: what turns the raw score of an arc into an element of a semiring."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from sopa_plugin.registry import Registrable


class ArcEncoding(Registrable):
    """The encoding function E of the paper (Eq. 3-4), applied to `w·v + b` and to epsilons.

    `kind` says what its scores are, and so which semirings take it: a `weight` is positive and
    multiplied, a `log_weight` of either sign and added, a `truth` 0 or 1. An encoding of kind
    `weight` also gives its logarithm, for semirings that hold logarithms.
    """

    kind: ClassVar[str]

    differentiable: ClassVar[bool] = True
    """Whether scores have gradients, so that patterns can be trained."""

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


@ArcEncoding.register("sigmoid")
class Sigmoid(ArcEncoding):
    """A probability: every arc costs, so self-loops are taken only where they pay (section 3.4).

    Registered as `sigmoid`.
    """

    kind = "weight"
    at_most_one = True

    def encode(self, raw: Tensor) -> Tensor:
        """1 / (1 + exp(-raw))."""
        return raw.sigmoid()

    def encode_log(self, raw: Tensor) -> Tensor:
        """-log(1 + exp(-raw))."""
        return functional.logsigmoid(raw)


@ArcEncoding.register("exp")
class Exp(ArcEncoding):
    """A weight above 0 with no upper bound; max-product over it is exp of max-sum over `identity`.

    Registered as `exp`.
    """

    kind = "weight"

    def encode(self, raw: Tensor) -> Tensor:
        """exp(raw)."""
        return raw.exp()

    def encode_log(self, raw: Tensor) -> Tensor:
        """The raw score itself."""
        return raw


@ArcEncoding.register("identity")
class Identity(ArcEncoding):
    """The raw score itself, as a CNN's filters have it (paper, section 4).

    Registered as `identity`.
    """

    kind = "log_weight"

    def encode(self, raw: Tensor) -> Tensor:
        """The raw score itself."""
        return raw


@ArcEncoding.register("log_sigmoid")
class LogSigmoid(ArcEncoding):
    """The logarithm of a probability, for semirings that add.

    Registered as `log_sigmoid`.
    """

    kind = "log_weight"
    at_most_one = True

    def encode(self, raw: Tensor) -> Tensor:
        """-log(1 + exp(-raw))."""
        return functional.logsigmoid(raw)


@ArcEncoding.register("positive")
class Positive(ArcEncoding):
    """1 where the raw score is above 0, else 0: whether the arc takes the word. No gradient.

    Registered as `positive`.
    """

    kind = "truth"
    differentiable = False
    at_most_one = True

    def encode(self, raw: Tensor) -> Tensor:
        """1.0 or 0.0."""
        return (raw > 0).to(raw.dtype)
