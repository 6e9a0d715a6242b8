"""State activations over tokens, darker where a state is more active, the best path outlined."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sopa_plugin.interpret.render.markup import clean, number, shorten, state_name, tag, text_width
from sopa_plugin.interpret.render.page import picture

if TYPE_CHECKING:
    from sopa_plugin.interpret.activations import StateActivations

CELL = 34.0
ROW = 26.0
SIZE = 12.0
LEFT = 64.0
MARGIN = 12.0
LETTERS = 16
WINDOW = 12
"""Tokens drawn before and after the match; a longer document is cut there."""


def activations_svg(activations: StateActivations, alone: bool = True) -> str:
    """The picture."""
    first, last = _window(activations)
    tokens = [shorten(token, LETTERS) for token in activations.tokens[first:last]]
    tilted = max((text_width(token, SIZE) for token in tokens), default=0.0) * math.sin(math.pi / 4)
    top = MARGIN + 26 + tilted
    states = activations.num_states
    width = LEFT + CELL * len(tokens) + MARGIN + tilted
    height = top + ROW * states + MARGIN + 4
    elements = [_text(MARGIN, MARGIN + 8, _heading(activations), "strong")]
    for state in range(states):
        at = top + ROW * (state + 0.5) + 4
        elements.append(_text(LEFT - 8, at, state_name(state, states), "muted", anchor="end"))
    if first > 0:
        elements.append(_text(LEFT - 6, top - 6, "…", "muted", anchor="end"))
    if last < len(activations.tokens):
        elements.append(_text(LEFT + CELL * len(tokens) + 4, top - 6, "…", "muted"))
    shade = _shades(activations)
    for column, token in enumerate(tokens):
        x = LEFT + CELL * (column + 0.5)
        turned = tag(
            "text",
            clean(token),
            font_size=SIZE,
            transform=f"translate({x:.1f} {top - 6:.1f}) rotate(-45)",
        )
        elements.append(turned)
        for state, value in enumerate(activations.values[first + column]):
            elements.append(_cell(column, state, top, value, shade))
    elements += _path(activations, first, top)
    return picture(
        width, height, f"State activations of pattern {activations.pattern}", *elements, alone=alone
    )


def _heading(activations: StateActivations) -> str:
    if activations.match is None:
        return f"Pattern {activations.pattern}: no match"
    return f"Pattern {activations.pattern}: {number(activations.match.score)}"


def _window(activations: StateActivations) -> tuple[int, int]:
    length = len(activations.tokens)
    match = activations.match
    start, end = (match.start, match.end) if match else (0, 0)
    return max(0, start - WINDOW), min(length, max(end + WINDOW, 2 * WINDOW))


def _shades(activations: StateActivations) -> tuple[float, float]:
    """The values drawn empty and full: 0 and 1 for probabilities, else the lowest and highest."""
    found = [value for row in activations.values for value in row if math.isfinite(value)]
    low, high = min(found, default=0.0), max(found, default=1.0)
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def _cell(column: int, state: int, top: float, value: float, shade: tuple[float, float]) -> str:
    low, high = shade
    full = (value - low) / (high - low) if math.isfinite(value) and high > low else 0.0
    place = {"x": LEFT + CELL * column, "y": top + ROW * state, "width": CELL, "height": ROW}
    title = tag("title", number(value))
    inked = tag("rect", title, **place, class_="heat", fill_opacity=round(full, 3))
    return inked + tag("rect", **place, class_="grid")


def _path(activations: StateActivations, first: int, top: float) -> list[str]:
    """The best path: outlined cells, arrows between them, dashed where no word was consumed."""
    match = activations.match
    if match is None:
        return []
    at = (match.start - 1, 0)
    cells, arrows = [], []
    for step in match.steps:
        column = at[0] if step.position is None else step.position
        to = (column, step.reaches)
        begin, end = _center(at, first, top), _center(to, first, top)
        class_ = "best-arc"
        dashes = "4 3" if step.arc == "epsilon" else None
        arrows.append(
            tag(
                "line",
                x1=begin[0],
                y1=begin[1],
                x2=end[0],
                y2=end[1],
                class_=class_,
                stroke_dasharray=dashes,
            )
        )
        x, y = LEFT + CELL * (to[0] - first), top + ROW * to[1]
        outline = "best" if step.position is not None else "best-epsilon"
        if x >= LEFT:
            box = tag(
                "rect", x=x + 1, y=y + 1, width=CELL - 2, height=ROW - 2, rx=3, class_=outline
            )
            cells.append(box)
        at = to
    dots = [
        tag("circle", cx=x, cy=y, r=3.5, class_="best-arrow")
        for x, y in (
            _center((step.position, step.reaches), first, top)
            for step in match.steps
            if step.position is not None
        )
    ]
    return cells + arrows + dots


def _center(place: tuple[int, int], first: int, top: float) -> tuple[float, float]:
    column, state = place
    # A match at the first token drawn comes from the left of the grid.
    return max(LEFT + CELL * (column - first + 0.5), LEFT - 4), top + ROW * (state + 0.5)


def _text(x: float, y: float, words: str, class_: str, anchor: str = "start") -> str:
    return tag("text", clean(words), x=x, y=y, font_size=SIZE, class_=class_, text_anchor=anchor)
