"""What one arc of a pattern takes: its nearest words, and how much of it is a wildcard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sopa_plugin.interpret.match import finite


@dataclass(frozen=True)
class ArcReading:
    """One arc read as a word or a wildcard (paper, section 3.1, "Words vs. wildcards").

    Arguments:
        arc: "main", "loop" or "epsilon".
        state: the state that the arc leaves.
        bias: what the arc scores for a word whose vector is zero; an epsilon's own score.
        wildcard: how much of it is a wildcard, from 0 (one word) to 1 (any word).
        words: the words of the vocabulary that score highest, with their scores.
    """

    arc: str
    state: int
    bias: float
    wildcard: float = 0.0
    words: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The arc as plain values."""
        values: dict[str, Any] = {"arc": self.arc, "state": self.state}
        if self.arc == "epsilon":
            return values | {"score": finite(self.bias)}
        words = [{"word": word, "score": finite(score)} for word, score in self.words]
        return values | {"bias": finite(self.bias), "wildcard": self.wildcard, "words": words}
