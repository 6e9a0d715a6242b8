"""The log-sigmoid encoding."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from sopa_plugin.wfsa.encodings.encoding import ArcEncoding


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
