"""A pattern's states while it reads a document (the paper's figure of state activations)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Any, ClassVar

from markupsafe import Markup

from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.markup import (
    Drawing,
    columns,
    joined,
    number,
    padded,
    paint,
    shorten,
    state_name,
    tag,
    text_at,
    text_width,
    visible,
    wrap,
)
from sopa_plugin.interpret.match import Match, finite

CELL, ROW, SIZE, LEFT, MARGIN, LETTERS = 34.0, 26.0, 12.0, 64.0, 12.0, 16

WINDOW = 12
"""Tokens drawn before and after the match; a longer document is cut there."""

_BLOCKS = " ░▒▓█"


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

    template: ClassVar[str] = "activations.html"

    pattern: str
    tokens: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    match: Match | None

    @property
    def num_states(self) -> int:
        """States, START and END included."""
        return len(self.values[0]) if self.values else 2

    @property
    def title(self) -> str:
        return f"States of pattern {self.pattern} over {shorten(joined(self.tokens), 60)}"

    @property
    def path(self) -> list[tuple[int, int, bool]]:
        """The best path: token read last, state reached, whether a word was consumed."""
        found: list[tuple[int, int, bool]] = []
        if self.match:
            position = self.match.start - 1
            for step in self.match.steps:
                position = position if step.position is None else step.position
                found.append((position, step.reaches, step.position is not None))
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "tokens": list(self.tokens),
            "values": [[finite(value) for value in row] for row in self.values],
            "match": self.match.to_dict() if self.match else None,
        }

    def to_text(self, color: bool = False) -> str:
        """States down, tokens across; brackets around the best path."""
        values = [value for row in self.values for value in row if math.isfinite(value)]
        low, high = min([0.0, *values]), max([1e-9, *values])
        on_path = {(position, state) for position, state, _ in self.path}
        tokens = [visible(token) for token in self.tokens]
        sizes = {i: (1, max(3, columns(token))) for i, token in enumerate(tokens)}
        parts = []
        for line in wrap(sizes, get_terminal_size().columns - 7):
            widths = [sizes[position][1] for position in line]
            words = map(padded, (tokens[position] for position in line), widths)
            lines = [" " * 7 + " ".join(words)]
            for state in range(self.num_states):
                cells = []
                for position in line:
                    value = self.values[position][state]
                    full = (value - low) / (high - low) if math.isfinite(value) else 0.0
                    block = _BLOCKS[min(4, math.ceil(4 * full - 0.05))]
                    cells.append(f"[{block}]" if (position, state) in on_path else f" {block} ")
                name = state_name(state, self.num_states)
                lines.append(f"{name:>5}  " + " ".join(map(str.ljust, cells, widths)).rstrip())
            parts.append("\n".join(lines))
        return paint(f"Pattern {self.pattern}", "strong", color) + "\n" + "\n\n".join(parts)

    def to_svg(self) -> str:
        """States over tokens, darker where a state is more active, the best path outlined."""
        return self.drawing().picture(self.title, alone=True)

    def drawing(self) -> Drawing:
        """The picture; of a long document, what lies around the match."""
        length, states = len(self.tokens), self.num_states
        start, end = (self.match.start, self.match.end) if self.match else (0, 0)
        first, last = max(0, start - WINDOW), min(length, max(end + WINDOW, 2 * WINDOW))
        tokens = [shorten(token, LETTERS) for token in self.tokens[first:last]]
        tilted = max((text_width(token, SIZE) for token in tokens), default=0.0) * math.sqrt(0.5)
        top, right = MARGIN + 26 + tilted, LEFT + CELL * len(tokens)
        score = number(self.match.score) if self.match else "no match"
        scale = self._scale()
        elements = [text_at(MARGIN, MARGIN + 8, f"Pattern {self.pattern}: {score}", "strong", SIZE)]
        if first > 0:
            elements.append(text_at(LEFT - 6, top - 6, "…", "muted", SIZE, "end"))
        if last < length:
            elements.append(text_at(right + 4, top - 6, "…", "muted", SIZE))
        for state in range(states):
            at = top + ROW * (state + 0.5) + 4
            elements.append(text_at(LEFT - 8, at, state_name(state, states), "muted", SIZE, "end"))
        for column, token in enumerate(tokens):
            turned = f"translate({LEFT + CELL * (column + 0.5):.1f} {top - 6:.1f}) rotate(-45)"
            elements.append(tag("text", token, font_size=SIZE, transform=turned))
            elements += self._cells(first + column, LEFT + CELL * column, top, scale)
        elements += self._outline(first, top)
        bottom = top + ROW * states + 8
        for step in range(5):  # what the shades stand for
            box = {"x": LEFT + CELL * step, "y": bottom, "width": CELL, "height": 8}
            elements.append(tag("rect", **box, class_="heat", fill_opacity=step / 4))
            elements.append(tag("rect", **box, class_="grid"))
        elements.append(text_at(LEFT, bottom + 22, number(scale[0]), "muted", 11))
        elements.append(text_at(LEFT + 5 * CELL, bottom + 22, number(scale[1]), "muted", 11, "end"))
        width = max(right + MARGIN + tilted, LEFT + 5 * CELL + MARGIN)
        return Drawing(width, bottom + 22 + MARGIN, elements)

    def _scale(self) -> tuple[float, float]:
        """What is drawn empty and full: 0 and 1 for probabilities, else the least and highest."""
        found = [value for row in self.values for value in row if math.isfinite(value)]
        low, high = min(found, default=0.0), max(found, default=1.0)
        return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)

    def _cells(
        self, position: int, x: float, top: float, scale: tuple[float, float]
    ) -> list[Markup]:
        """The cells of one token, filled by where their values lie on `scale`."""
        low, high = scale
        elements = []
        for state, value in enumerate(self.values[position]):
            full = (value - low) / (high - low) if math.isfinite(value) and high > low else 0.0
            place = {"x": x, "y": top + ROW * state, "width": CELL, "height": ROW}
            title = tag("title", number(value))
            elements.append(tag("rect", title, **place, class_="heat", fill_opacity=full))
            elements.append(tag("rect", **place, class_="grid"))
        return elements

    def _outline(self, first: int, top: float) -> list[Markup]:
        """The best path: outlined cells, lines between them, dashed where no word was consumed."""
        start = self.match.start - first if self.match else 0
        # A match at the first token drawn comes from the left of the grid.
        at = max(LEFT + CELL * (start - 0.5), LEFT - 4), top + ROW / 2
        cells, lines, dots = [], [], []
        for position, state, consumed in self.path:
            x, y = LEFT + CELL * (position - first), top + ROW * state
            to = max(x + CELL / 2, LEFT - 4), y + ROW / 2
            look = "best" if consumed else "best dashed"
            lines.append(tag("line", x1=at[0], y1=at[1], x2=to[0], y2=to[1], class_=look))
            if x >= LEFT:
                box = {"x": x + 1, "y": y + 1, "width": CELL - 2, "height": ROW - 2}
                cells.append(tag("rect", **box, rx=3, class_=look))
            if consumed:
                dots.append(tag("circle", cx=to[0], cy=to[1], r=3.5, class_="best"))
            at = to
        return cells + lines + dots
