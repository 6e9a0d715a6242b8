"""A pattern drawn as the automaton that it is (the paper's first figure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sopa_plugin.interpret.render.markup import (
    clean,
    number,
    percent,
    shorten,
    tag,
    text_width,
)
from sopa_plugin.interpret.render.page import picture

if TYPE_CHECKING:
    from sopa_plugin.interpret.arcs import ArcReading
    from sopa_plugin.interpret.patterns import PatternReading

RADIUS = 19.0
SIZE = 12.0
LINE = 15.0
LOOP_HEIGHT = 44.0
MARGIN = 14.0
WORDS = 3
LETTERS = 15
WILDCARD_SHARE = 0.5
"""An arc that passes this share of words or more is drawn as a wildcard."""


def automaton_svg(reading: PatternReading, alone: bool = True) -> str:
    """START, states, END, self-loops above, epsilon arcs dashed below, top words on the arcs."""
    width, height, elements = automaton(reading)
    return picture(width, height, f"Pattern {reading.name}", *elements, alone=alone)


def automaton(reading: PatternReading) -> tuple[float, float, list[str]]:
    """Width, height and elements of the drawing."""
    arcs = {(arc.arc, arc.state): arc for arc in reading.arcs}
    labels = {key: _words(arc) for key, arc in arcs.items()}
    steps = [
        _gap([labels.get(("main", i), []), labels.get(("loop", i), []), labels.get(("loop", i + 1), [])])
        for i in range(reading.num_states - 1)
    ]
    loops = [words for (kind, _), words in labels.items() if kind == "loop"]
    mains = [words for (kind, _), words in labels.items() if kind == "main"]
    above = max(
        max((LOOP_HEIGHT + LINE * len(words) for words in loops), default=0.0) + RADIUS,
        max((LINE * len(words) for words in mains), default=0.0) + 8,
    )
    level = MARGIN + above + 4
    x = [MARGIN + 26 + sum(steps[:i]) for i in range(reading.num_states)]
    below = RADIUS + 46 if any(kind == "epsilon" for kind, _ in arcs) else RADIUS + 4
    elements: list[str] = []
    for (kind, state), arc in arcs.items():
        if kind == "loop":
            elements += _loop(x[state], level, labels[kind, state])
        elif kind == "main":
            elements += _main(x[state], x[state + 1], level, labels[kind, state])
        else:
            elements += _epsilon(x[state], x[state + 1], level, arc.bias)
    for state, center in enumerate(x):
        elements += _state(center, level, state, reading.num_states - 1)
    return x[-1] + 26 + MARGIN, level + below + MARGIN, elements


def _words(arc: ArcReading) -> list[str]:
    """What stands on an arc: a wildcard's share of words first, then its best words."""
    if arc.arc == "epsilon":
        return []
    words = [shorten(word, LETTERS) for word, _ in arc.words[:WORDS]]
    if arc.wildcard >= WILDCARD_SHARE:
        return [f"∗ {percent(arc.wildcard)}", *words[: WORDS - 1]]
    return words


def _gap(groups: list[list[str]]) -> float:
    """Distance between two states, wide enough for the words on and beside the arc."""
    widest = max((text_width(word, SIZE) for words in groups for word in words), default=0.0)
    return max(104.0, widest + 24, widest + 2 * RADIUS + 4 if groups[0] else 0.0)


def _text(x: float, y: float, words: str, class_: str = "", size: float = SIZE) -> str:
    return tag(
        "text", clean(words), x=x, y=y, class_=class_ or None, font_size=size, text_anchor="middle"
    )


def _stack(x: float, bottom: float, words: list[str], class_: str) -> list[str]:
    """Words above one another, the best on top, the last on `bottom`."""
    top = bottom - LINE * (len(words) - 1)
    return [
        _text(x, top + LINE * i, word, f"{class_} strong" if i == 0 else class_)
        for i, word in enumerate(words)
    ]


def _arrow(x: float, y: float, class_: str, dx: float = 1.0, dy: float = 0.0) -> str:
    """An arrow head with its tip at (x, y), pointing along (dx, dy)."""
    back, half = 8.0, 4.0
    base_x, base_y = x - back * dx, y - back * dy
    corners = (
        (x, y),
        (base_x - half * dy, base_y + half * dx),
        (base_x + half * dy, base_y - half * dx),
    )
    return tag("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in corners), class_=class_)


def _main(left: float, right: float, level: float, words: list[str]) -> list[str]:
    line = tag("line", x1=left + RADIUS, y1=level, x2=right - RADIUS - 6, y2=level, class_="arc")
    return [
        line,
        _arrow(right - RADIUS, level, "arrow"),
        *_stack((left + right) / 2, level - 8, words, ""),
    ]


def _loop(x: float, level: float, words: list[str]) -> list[str]:
    foot, top = level - RADIUS + 2, level - RADIUS - LOOP_HEIGHT + 8
    path = f"M{x - 9:.1f},{foot:.1f} C{x - 26:.1f},{top:.1f} {x + 26:.1f},{top:.1f} {x + 9:.1f},{foot - 2:.1f}"
    return [
        tag("path", d=path, class_="loop"),
        _arrow(x + 8.5, foot, "loop-arrow", -0.45, 0.89),
        *_stack(x, level - RADIUS - LOOP_HEIGHT + 10, words, "loop-word"),
    ]


def _epsilon(left: float, right: float, level: float, score: float) -> list[str]:
    foot = level + RADIUS - 4
    deep = foot + 30
    path = f"M{left + 12:.1f},{foot:.1f} C{left + 30:.1f},{deep:.1f} {right - 30:.1f},{deep:.1f} {right - 13:.1f},{foot + 4:.1f}"
    return [
        tag("path", d=path, class_="epsilon"),
        _arrow(right - 12, foot + 1, "arrow", 0.62, -0.78),
        _text((left + right) / 2, deep + 10, f"ε {number(score, 2)}", "muted", SIZE - 1),
    ]


def _state(x: float, y: float, state: int, last: int) -> list[str]:
    if 0 < state < last:
        return [
            tag("circle", cx=x, cy=y, r=RADIUS, class_="state"),
            _text(x, y + 4, str(state), "strong"),
        ]
    name = "START" if state == 0 else "END"
    box = tag("rect", x=x - 26, y=y - RADIUS + 3, width=52.0, height=2 * RADIUS - 6, rx=16.0, class_="state")
    return [box, _text(x, y + 4, name, "strong", SIZE - 1)]
