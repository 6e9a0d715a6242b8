"""The positive-score encoding."""

from __future__ import annotations

from torch import Tensor

from sopa_plugin.wfsa.encodings.encoding import ArcEncoding


@ArcEncoding.register("positive")
class Positive(ArcEncoding):
    """1 where the raw score is above 0, else 0: whether the arc takes the word. No gradient.

    Registered as `positive`.
    """

    kind = "truth"
    at_most_one = True

    def encode(self, raw: Tensor) -> Tensor:
        """1.0 or 0.0."""
        return (raw > 0).to(raw.dtype)
