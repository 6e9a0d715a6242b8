"""The arcs of a pattern, read as words and wildcards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sopa_plugin.interpret.match import finite


@dataclass(frozen=True)
class ArcReading:
    """One arc read as a word or a wildcard (paper, section 3.1, "Words vs. wildcards").

    Arguments:
        arc: "main_path", "self_loop" or "epsilon".
        state: the state that the arc leaves.
        bias: what the arc scores for a word whose vector is zero; an epsilon's own score.
        wildcard: how much of it is a wildcard, from 0 (one word) to 1 (any word): where scores lie
            between 0 and 1, the mean score of a word; else how little scores differ from word to
            word, against the arc of the same pattern where they differ most.
        words: the words that score highest, with their scores.

    Words are those of the vocabulary or, where vectors depend on context, of the documents read
    first.
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
