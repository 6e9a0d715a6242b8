"""Matches, aligned: which word each state consumed; and where a pattern fires, in context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from shutil import get_terminal_size
from typing import Any

from sopa_plugin.errors import UserError, visible
from sopa_plugin.interpret.explanation import Explanation, Told
from sopa_plugin.interpret.markup import (
    columns,
    fold,
    joined,
    number,
    padded,
    paint,
    pieces,
    shorten,
    side,
)

NEAREST = 5
"""Names of patterns that an error tells, at most."""


def pattern_names(lengths: Sequence[int]) -> tuple[str, ...]:
    """The name of each pattern: its number of states and its rank among those, `5-3` the third."""
    seen: dict[int, int] = {}
    names = []
    for length in lengths:
        seen[length] = seen.get(length, 0) + 1
        names.append(f"{length}-{seen[length]}")
    return tuple(names)


def unknown_pattern(name: str, names: Iterable[str]) -> UserError:
    """The error that says so, with the nearest of the `names` that there are."""
    near = get_close_matches(name, list(names), n=NEAREST, cutoff=0.0)
    return UserError(
        f"no pattern is called {name!r}; the nearest are {', '.join(near)} (a name is that of a "
        "rule, or the number of states and the rank among those)"
    )


@dataclass(frozen=True)
class Step(Told):
    """One arc taken.

    `arc` is "main_path", "self_loop" or "epsilon", `state` the state that the arc leaves. The
    scores of a match's steps, multiplied (in max-sum added), are the match's score. `token` and its
    `position` in the document are None for an epsilon; a boundary token's position lies outside.
    """

    arc: str
    state: int
    score: float
    position: int | None = None
    token: str | None = None

    @property
    def reaches(self) -> int:
        """The state that the arc leads to."""
        return self.state if self.arc == "self_loop" else self.state + 1

    @property
    def shown(self) -> str:
        """What stands under the state that the arc leads to."""
        return f"↻{self.token}" if self.arc == "self_loop" else self.token or "[ε]"

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"arc": self.arc, "state": self.state, "score": self.score}
        if self.arc != "epsilon":
            values |= {"position": self.position, "token": self.token}
        return values


@dataclass(frozen=True)
class Match(Told):
    """The best path of one pattern that ends at one token of one document.

    Arguments:
        pattern: the pattern's name.
        num_states: the pattern's number of states.
        score: the match's score, as the operator gives it.
        document: the document's number in its data set.
        start, end: the tokens matched, `start <= position < end`.
        steps: the arcs taken, in order.
        count: how often the phrase was met (see `TopMatches`).
    """

    told = "pattern", "score", "phrase", "document", "start", "end", "count", "steps"

    pattern: str
    num_states: int
    score: float
    document: int
    start: int
    end: int
    steps: tuple[Step, ...]
    count: int = 1

    @property
    def tokens(self) -> tuple[str, ...]:
        """The words matched."""
        return tuple(step.token for step in self.steps if step.token is not None)

    @property
    def phrase(self) -> str:
        """The words matched, as text."""
        return joined(self.tokens)

    @property
    def repeats(self) -> str:
        """How often the phrase was met, where that is more than once."""
        return f" ×{self.count}" if self.count > 1 else ""

    @property
    def spelt(self) -> tuple[tuple[str, bool, str], ...]:
        """Arc by arc: its kind, whether a blank stands before it, its text; `ε` for an epsilon."""
        texts = pieces("ε" if step.token is None else step.token for step in self.steps)
        return tuple((step.arc, *text) for step, text in zip(self.steps, texts, strict=True))

    def columns(self) -> dict[int, list[Step]]:
        """The steps by the state that they lead to, as in the paper's "Highest Scoring Phrases".

        One column a state from 1 to END; a column for START comes first where its loop was taken.
        """
        reached: dict[int, list[Step]] = {}
        for step in self.steps:
            reached.setdefault(step.reaches, []).append(step)
        states = range(0 if 0 in reached else 1, self.num_states)
        return {state: reached.get(state, []) for state in states}


CONTEXT = 12
"""Words shown on each side of a phrase."""


@dataclass(frozen=True)
class Place(Told):
    """Where a pattern fires: its best match in a document, the words around it, the labels.

    Arguments:
        match: the match.
        tokens: the document's tokens.
        gold: the document's own label, if it has one.
        predicted: the label that the model gives it.
    """

    match: Match
    tokens: tuple[str, ...]
    gold: str | None
    predicted: str

    @property
    def is_right(self) -> bool:
        """Whether the model gives the document no other label than its own."""
        return self.gold in (None, self.predicted)

    @property
    def verdict(self) -> str:
        """The label given and, where it is another, the document's own."""
        if self.gold is None:
            return self.predicted
        if self.is_right:
            return f"✓ {self.gold}"
        return f"✗ {self.predicted}, labelled {self.gold}"

    @property
    def before(self) -> str:
        """What stands before the phrase."""
        first = max(0, self.match.start - CONTEXT)
        return "… " * (first > 0) + joined(self.tokens[first : self.match.start])

    @property
    def after(self) -> str:
        """What stands behind the phrase."""
        last = self.match.end + CONTEXT
        return joined(self.tokens[self.match.end : last]) + " …" * (last < len(self.tokens))

    def to_dict(self) -> dict[str, Any]:
        labels = {"gold": self.gold, "predicted": self.predicted}
        return {**labels, **self.match.to_dict(), "before": self.before, "after": self.after}


@dataclass(frozen=True, repr=False)
class Concordance(Explanation):
    """Every place where a pattern fires, the highest score first.

    Arguments:
        pattern: the pattern's name.
        places: one a document.
        fires: in how many documents it does, of which places of some may be left out.
        documents: how many were read.
        labels: the classes.
    """

    template = "concordance.html"
    told = "pattern", "fires", "documents", "places"

    pattern: str
    places: tuple[Place, ...]
    fires: int
    documents: int
    labels: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"Where pattern {self.pattern} fires"

    @property
    def about(self) -> str:
        """In how many documents it fires, and how many of these are wrongly classified."""
        wrong = sum(not place.is_right for place in self.places)
        fires = f"fires in {self.fires:,} of {self.documents:,} documents"
        told = f", {wrong:,} of them wrongly classified"
        known = len(self.places) < self.fires or any(place.gold for place in self.places)
        return fires + told * known

    def wrong(self) -> Concordance:
        """Only the places in documents that got another label than their own."""
        places = (place for place in self.places if not place.is_right)
        return replace(self, places=tuple(places))

    def painted(self) -> str:
        """A line a place, the phrases below one another."""
        looks = [side(each.is_right - 0.5) for each in self.places]
        heads = [f"{number(each.match.score):>7} {visible(each.verdict)}" for each in self.places]
        phrases = [visible(place.match.phrase) for place in self.places]
        size, wide = (max(map(columns, each), default=0) for each in (heads, phrases))
        room = get_terminal_size().columns - size - 4
        wide = max(10, min(wide, 40, room // 3))
        room = max(10, (room - wide) // 2)
        lines = []
        for place, look, head, phrase in zip(self.places, looks, heads, phrases, strict=True):
            left, right = visible(place.before), shorten(visible(place.after), room)
            left = shorten(left[::-1], room)[::-1]
            left = " " * (room - columns(left)) + left
            middle = padded(paint(shorten(phrase, wide), "strong"), wide)
            head = padded(paint(head, look), size)
            lines.append(f"{head}  {left} {middle} {right}".rstrip())
        return "\n".join([fold(f"Pattern {self.pattern} {self.about}"), *lines])
