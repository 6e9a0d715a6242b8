"""The exponential encoding."""

from __future__ import annotations

from torch import Tensor

from sopa_plugin.wfsa.encodings.encoding import ArcEncoding


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
