"""Patterns read one by one: best phrases, effect on the classes, how often they fire, arcs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sopa_plugin.interpret.automaton import ArcReading
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.match import Match, finite, unknown_pattern
from sopa_plugin.interpret.render.automaton import automata_html, automata_svg
from sopa_plugin.interpret.render.cards import cards_html, cards_svg
from sopa_plugin.interpret.render.terminal import automata_text, patterns_text


@dataclass(frozen=True)
class PatternReading:
    """One pattern, read over a data set.

    Arguments:
        name: the pattern's name, `5-3` for the third pattern of five states.
        num_states: states, START and END included.
        matches: the best matches, best first, each phrase once.
        best, mean: the highest and the mean document score, among documents with a match;
            not finite where there are none.
        matched: share of documents with a match.
        fires: share of documents whose score lies nearer to `best` than to `mean`.
        effect: by label, the mean contribution over the documents in which the pattern fires;
            empty where no head is read.
        arcs: every arc.
    """

    name: str
    num_states: int
    matches: tuple[Match, ...]
    best: float
    mean: float
    matched: float
    fires: float
    effect: dict[str, float]
    arcs: tuple[ArcReading, ...] = ()

    @property
    def label(self) -> str | None:
        """The label that the pattern speaks for most."""
        return max(self.effect, key=lambda label: self.effect[label]) if self.effect else None

    @property
    def strength(self) -> float:
        """The effect on that label."""
        return self.effect[self.label] if self.label is not None else 0.0

    @property
    def direction(self) -> int:
        """Of two labels, 1 where the pattern speaks for the second and -1 for the first; else 1."""
        return -1 if len(self.effect) == 2 and self.label == next(iter(self.effect)) else 1

    def to_dict(self) -> dict[str, Any]:
        """The pattern as plain values."""
        return {
            "pattern": self.name,
            "states": self.num_states,
            "best": finite(self.best),
            "mean": finite(self.mean),
            "matched": self.matched,
            "fires": self.fires,
            "effect": self.effect,
            "matches": [match.to_dict() for match in self.matches],
            "arcs": [arc.to_dict() for arc in self.arcs],
        }


@dataclass(frozen=True, repr=False)
class PatternsReading(Explanation, Sequence[PatternReading]):
    """Several patterns read over one data set, the strongest effect first.

    `documents` counts the documents read, `replacement` says what an effect compares with.
    """

    title: ClassVar[str] = "Patterns"

    patterns: tuple[PatternReading, ...]
    documents: int
    replacement: str

    def __len__(self) -> int:
        return len(self.patterns)

    def __getitem__(self, key: Any) -> Any:
        """A pattern by its place or by its name."""
        if not isinstance(key, str):
            return self.patterns[key]
        for pattern in self.patterns:
            if pattern.name == key:
                return pattern
        raise KeyError(key)

    def __iter__(self) -> Iterator[PatternReading]:
        return iter(self.patterns)

    def only(self, names: Sequence[str]) -> PatternsReading:
        """The reading of the patterns named, in that order.

        Raises:
            UserError: A name is not among them.
        """
        known = {pattern.name: pattern for pattern in self.patterns}
        for name in names:
            if name not in known:
                raise unknown_pattern(name, known)
        chosen = tuple(known[name] for name in names)
        return PatternsReading(chosen, self.documents, self.replacement)

    def first(self, count: int | None) -> PatternsReading:
        """The first `count` patterns; all without one."""
        return PatternsReading(self.patterns[:count], self.documents, self.replacement)

    def automata(self) -> Automata:
        """The same patterns drawn as automata."""
        return Automata(self.patterns, self.documents, self.replacement)

    def to_dict(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "replacement": self.replacement,
            "patterns": [pattern.to_dict() for pattern in self.patterns],
        }

    def to_text(self, color: bool = False) -> str:
        return patterns_text(self, color)

    def html_body(self) -> str:
        return cards_html(self)

    def to_svg(self) -> str:
        """The cards, phrases in state columns."""
        return cards_svg(self)


class Automata(PatternsReading):
    """The same, drawn as automata: states, arcs, and the nearest words on each arc."""

    title: ClassVar[str] = "Automata"

    def to_text(self, color: bool = False) -> str:
        return automata_text(self, color)

    def html_body(self) -> str:
        return automata_html(self)

    def to_svg(self) -> str:
        """The automata, one below another."""
        return automata_svg(self)
