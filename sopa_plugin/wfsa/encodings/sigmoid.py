"""The sigmoid encoding."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from sopa_plugin.wfsa.encodings.encoding import ArcEncoding


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
