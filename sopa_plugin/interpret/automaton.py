"""The arcs of a pattern: read as words and wildcards, drawn as the automaton that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from sopa_plugin.interpret.markup import (
    Drawing,
    number,
    padded,
    percent,
    shorten,
    state_name,
    tag,
    text_at,
    text_width,
    visible,
)
from sopa_plugin.interpret.match import finite

WORDS, LETTERS = 3, 15
"""Words that stand on an arc, and letters of each."""

WILDCARD_SHARE = 0.6
"""An arc that is a wildcard to this degree or more is drawn as one."""

RADIUS, SIZE, LINE, LOOP_HEIGHT, MARGIN = 19.0, 12.0, 15.0, 44.0, 14.0


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

    def cells(self, num_states: int) -> tuple[str, str, str, str]:
        """In words: where the arc leads, its bias, how much of a wildcard it is, its best words."""
        to = self.state if self.arc == "self_loop" else self.state + 1
        way = f"{state_name(self.state, num_states)} → {state_name(to, num_states)}"
        if self.arc == "epsilon":
            return way, f"ε {number(self.bias)}", "", ""
        words = ", ".join(f"{word} {number(score)}" for word, score in self.words)
        return way, f"bias {number(self.bias)}", f"∗ {percent(self.wildcard)}", words

    @property
    def label(self) -> list[str]:
        """What stands on the arc: how much of a wildcard it is where it is one, its best words."""
        words = [shorten(word, LETTERS) for word, _ in self.words[:WORDS]]
        if self.arc != "epsilon" and self.wildcard >= WILDCARD_SHARE:
            return [f"∗ {percent(self.wildcard)}", *words[: WORDS - 1]]
        return words


def arcs_text(arcs: Sequence[ArcReading], num_states: int) -> list[str]:
    """The arcs for a terminal, one a line."""
    rows = [[visible(cell) for cell in arc.cells(num_states)] for arc in arcs]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    widths[-1:] = [0]
    return ["  " + "  ".join(map(padded, row, widths)).rstrip() for row in rows]


def automaton(arcs: Sequence[ArcReading], num_states: int) -> Drawing:
    """START, states, END, self-loops above, epsilons dashed below, best words on the arcs.

    The paper's first figure.
    """
    labels = {(arc.arc, arc.state): arc.label for arc in arcs}

    def widest(arc: str, state: int) -> float:
        return max((text_width(word, SIZE) for word in labels.get((arc, state), [])), default=0.0)

    # Between two states, room for the words on the arc and half of those on both loops.
    gaps = [
        max(
            104.0,
            widest("main_path", state) + 2 * RADIUS + 14,
            (widest("self_loop", state) + widest("self_loop", state + 1)) / 2 + 14,
        )
        for state in range(num_states - 1)
    ]
    x = list(accumulate(gaps, initial=MARGIN + 26))
    heights = [
        LINE * len(words) + (LOOP_HEIGHT + RADIUS if arc == "self_loop" else 8.0)
        for (arc, _), words in labels.items()
    ]
    y = MARGIN + max([RADIUS, *heights]) + 4
    elements: list[Markup] = []
    for arc in arcs:
        left = x[arc.state]
        if arc.arc == "self_loop":
            elements += _loop(left, y, arc.label)
        elif arc.arc == "main_path":
            elements += _main(left, x[arc.state + 1], y, arc.label)
        else:
            elements += _epsilon(left, x[arc.state + 1], y, arc.bias)
    for state, center in enumerate(x):
        half, high, size = (RADIUS, RADIUS, SIZE) if 0 < state < num_states - 1 else (26, 16, 11)
        box = {"x": center - half, "y": y - high, "width": 2 * half, "height": 2 * high}
        elements.append(tag("rect", **box, rx=high, class_="state"))
        name = state_name(state, num_states)
        elements.append(text_at(center, y + 4, name, "strong", size, "middle"))
    has_epsilons = any(arc.arc == "epsilon" for arc in arcs)
    below = RADIUS + (46 if has_epsilons else 4) + MARGIN
    return Drawing(x[-1] + 26 + MARGIN, y + below, elements)


def _stack(x: float, bottom: float, words: list[str], class_: str) -> list[Markup]:
    """Words above one another, the best on top, the last on `bottom`."""
    top = bottom - LINE * (len(words) - 1)
    return [
        text_at(x, top + LINE * i, word, f"{class_} strong" if i == 0 else class_, SIZE, "middle")
        for i, word in enumerate(words)
    ]


def _arrow(x: float, y: float, class_: str, dx: float = 1.0, dy: float = 0.0) -> Markup:
    """An arrow head with its tip at (x, y), pointing along (dx, dy)."""
    back_x, back_y = x - 8 * dx, y - 8 * dy
    corners = ((x, y), (back_x - 4 * dy, back_y + 4 * dx), (back_x + 4 * dy, back_y - 4 * dx))
    return tag("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in corners), class_=class_)


def _main(left: float, right: float, y: float, words: list[str]) -> list[Markup]:
    line = tag("line", x1=left + RADIUS, y1=y, x2=right - RADIUS - 6, y2=y, class_="arc")
    words_above = _stack((left + right) / 2, y - 8, words, "")
    return [line, _arrow(right - RADIUS, y, "arrow"), *words_above]


def _loop(x: float, y: float, words: list[str]) -> list[Markup]:
    foot, top = y - RADIUS + 2, y - RADIUS - LOOP_HEIGHT + 8
    path = (
        f"M{x - 9:.1f},{foot:.1f} C{x - 26:.1f},{top:.1f} {x + 26:.1f},{top:.1f} "
        f"{x + 9:.1f},{foot - 2:.1f}"
    )
    arrow = _arrow(x + 8.5, foot, "looped", -0.45, 0.89)
    return [tag("path", d=path, class_="loop"), arrow, *_stack(x, top + 2, words, "looped")]


def _epsilon(left: float, right: float, y: float, score: float) -> list[Markup]:
    foot = y + RADIUS - 4
    deep = foot + 30
    path = (
        f"M{left + 12:.1f},{foot:.1f} C{left + 30:.1f},{deep:.1f} {right - 30:.1f},{deep:.1f} "
        f"{right - 13:.1f},{foot + 4:.1f}"
    )
    return [
        tag("path", d=path, class_="epsilon"),
        _arrow(right - 12, foot + 1, "arrow", 0.62, -0.78),
        text_at((left + right) / 2, deep + 10, f"ε {number(score, 2)}", "muted", 11, "middle"),
    ]
