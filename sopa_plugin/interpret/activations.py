"""A pattern's states while it reads a document (the paper's figure of state activations)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.match import Match, finite
from sopa_plugin.interpret.render.grid import activations_svg
from sopa_plugin.interpret.render.terminal import activations_text


@dataclass(frozen=True, repr=False)
class StateActivations(Explanation):
    """The score of the best path into each state of one pattern after each token.

    Arguments:
        pattern: the pattern's name.
        tokens: the document's tokens.
        values: by token, by state: `[h_t]_i` of the paper's Eq. 7 as users see scores; at END the
            score of the best match that ends at the token.
        match: the document's best match, None where there is none.
    """

    title: ClassVar[str] = "State activations"

    pattern: str
    tokens: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    match: Match | None

    @property
    def num_states(self) -> int:
        """States, START and END included."""
        return len(self.values[0]) if self.values else 2

    def to_dict(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "tokens": list(self.tokens),
            "values": [[finite(value) for value in row] for row in self.values],
            "match": self.match.to_dict() if self.match else None,
        }

    def to_text(self, color: bool = False) -> str:
        return activations_text(self, color)

    def html_body(self) -> str:
        return f'<div class="scroll">{activations_svg(self, alone=False)}</div>'

    def to_svg(self) -> str:
        """States over tokens, the best path outlined."""
        return activations_svg(self)
