"""The identity encoding."""

from __future__ import annotations

from torch import Tensor

from sopa_plugin.wfsa.encodings.encoding import ArcEncoding


@ArcEncoding.register("identity")
class Identity(ArcEncoding):
    """The raw score itself, as a CNN's filters have it (paper, section 4).

    Registered as `identity`.
    """

    kind = "log_weight"

    def encode(self, raw: Tensor) -> Tensor:
        """The raw score itself."""
        return raw
