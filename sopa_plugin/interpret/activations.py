"""A pattern's states while it reads a document (the paper's figure of state activations)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from shutil import get_terminal_size

from sopa_plugin.errors import visible
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.markup import (
    Picture,
    columns,
    joined,
    number,
    padded,
    paint,
    render,
    shorten,
    state_name,
    text_width,
    wrap,
)
from sopa_plugin.interpret.match import Match

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

    template = "activations.html"
    told = "pattern", "tokens", "values", "match"

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

    def painted(self) -> str:
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
                    block = _BLOCKS[min(4, math.ceil(4 * _full(value, low, high) - 0.05))]
                    cells.append(f"[{block}]" if (position, state) in on_path else f" {block} ")
                name = state_name(state, self.num_states)
                lines.append(f"{name:>5}  " + " ".join(map(str.ljust, cells, widths)).rstrip())
            parts.append("\n".join(lines))
        return paint(f"Pattern {self.pattern}", "strong") + "\n" + "\n\n".join(parts)

    def to_svg(self) -> str:
        """States over tokens, darker where a state is more active, the best path outlined."""
        return self.picture().svg(self.title, alone=True)

    def picture(self) -> Picture:
        """The picture; of a long document, what lies around the match."""
        length = len(self.tokens)
        start, end = (self.match.start, self.match.end) if self.match else (0, 0)
        first, last = max(0, start - WINDOW), min(length, max(end + WINDOW, 2 * WINDOW))
        words = [shorten(token, LETTERS) for token in self.tokens[first:last]]
        tilted = max((text_width(word, SIZE) for word in words), default=0.0) * math.sqrt(0.5)
        top, right = MARGIN + 26 + tilted, LEFT + CELL * len(words)
        low, high = self._scale()
        tokens = [
            (word, [(value, _full(value, low, high)) for value in row])
            for word, row in zip(words, self.values[first:last], strict=True)
        ]
        # A match at the first token drawn comes from the left of the grid.
        path = [
            (max(LEFT + CELL * (position - first + 0.5), LEFT - 4), top + ROW * (state + 0.5), word)
            for position, state, word in [(start - 1, 0, False), *self.path]
        ]
        score = number(self.match.score) if self.match else "no match"
        elements = render(
            "activations.svg",
            heading=f"Pattern {self.pattern}: {score}",
            cuts=[(LEFT - 6, "end")] * (first > 0) + [(right + 4, "start")] * (last < length),
            states=self.num_states,
            tokens=tokens,
            path=path,
            scale=(low, high),
            top=top,
            left=LEFT,
            cell=CELL,
            row=ROW,
            size=SIZE,
        )
        width = max(right + MARGIN + tilted, LEFT + 5 * CELL + MARGIN)
        return Picture(width, top + ROW * self.num_states + 30 + MARGIN, elements)

    def _scale(self) -> tuple[float, float]:
        """What is drawn empty and full: 0 and 1 for probabilities, else the least and highest."""
        found = [value for row in self.values for value in row if math.isfinite(value)]
        low, high = min(found, default=0.0), max(found, default=1.0)
        return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def _full(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1."""
    return (value - low) / (high - low) if math.isfinite(value) and high > low else 0.0
