"""A pattern drawn as the automaton that it is (the paper's first figure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sopa_plugin.interpret.render.markup import (
    arc_cells,
    clean,
    number,
    percent,
    shorten,
    state_name,
    tag,
    text_width,
)
from sopa_plugin.interpret.render.page import picture

if TYPE_CHECKING:
    from sopa_plugin.interpret.automaton import ArcReading
    from sopa_plugin.interpret.patterns import PatternReading

RADIUS = 19.0
SIZE = 12.0
LINE = 15.0
LOOP_HEIGHT = 44.0
MARGIN = 14.0
WORDS = 3
LETTERS = 15
WILDCARD_SHARE = 0.6
"""An arc that is a wildcard to this degree or more is drawn as one."""


LEGEND = (
    "Words above an arc are those that score highest on it, the best on top; ∗ stands first on an "
    "arc that passes almost any word, with how much of a wildcard it is: where scores lie between "
    "0 and 1, the mean score of a word, else how little scores differ from word to word. "
    "Self-loops stand above their states, epsilons dashed below, with their scores."
)


def automata_html(patterns: Sequence[PatternReading]) -> str:
    """Automata one below another, as a page."""
    drawn = [
        tag(
            "section",
            tag("h3", clean(pattern.name)),
            tag("div", automaton_svg(pattern, alone=False), class_="scroll"),
            tag("div", _arc_table(pattern), class_="scroll"),
            class_="card document",
        )
        for pattern in patterns
    ]
    note = tag("p", clean(LEGEND), class_="muted small")
    return tag("h1", f"{len(patterns)} patterns") + note + "".join(drawn)


def _arc_table(pattern: PatternReading) -> str:
    """Every arc with its bias, its share of a wildcard and its best words."""
    rows = [
        tag("tr", *(tag("td", clean(cell)) for cell in arc_cells(arc, pattern.num_states)))
        for arc in pattern.arcs
    ]
    return tag("table", tag("tbody", *rows), class_="rows small arcs")


def automata_svg(patterns: Sequence[PatternReading]) -> str:
    """Automata one below another, as a picture."""
    elements, y, width = [], MARGIN, 0.0
    for pattern in patterns:
        wide, high, drawn = automaton(pattern)
        name = tag("text", clean(pattern.name), x=MARGIN, y=14.0, font_size=14, class_="strong")
        elements.append(tag("g", name, *drawn, transform=f"translate(0 {y:.1f})"))
        y += high
        width = max(width, wide)
    return picture(width, y, f"{len(patterns)} patterns as automata", *elements)


def automaton_svg(reading: PatternReading, alone: bool = True) -> str:
    """START, states, END, self-loops above, epsilon arcs dashed below, top words on the arcs."""
    width, height, elements = automaton(reading)
    return picture(width, height, f"Pattern {reading.name}", *elements, alone=alone)


def automaton(reading: PatternReading) -> tuple[float, float, list[str]]:
    """Width, height and elements of the drawing."""
    arcs = {(arc.arc, arc.state): arc for arc in reading.arcs}
    labels = {key: _words(arc) for key, arc in arcs.items()}
    steps = [
        _gap(
            labels.get(("main_path", i), []),
            [labels.get(("self_loop", state), []) for state in (i, i + 1)],
        )
        for i in range(reading.num_states - 1)
    ]
    loops = [words for (kind, _), words in labels.items() if kind == "self_loop"]
    mains = [words for (kind, _), words in labels.items() if kind == "main_path"]
    above = max(
        max((LOOP_HEIGHT + LINE * len(words) for words in loops), default=0.0) + RADIUS,
        max((LINE * len(words) for words in mains), default=0.0) + 8,
    )
    level = MARGIN + above + 4
    x = [MARGIN + 26 + sum(steps[:i]) for i in range(reading.num_states)]
    below = RADIUS + 46 if any(kind == "epsilon" for kind, _ in arcs) else RADIUS + 4
    elements: list[str] = []
    for (kind, state), arc in arcs.items():
        if kind == "self_loop":
            elements += _loop(x[state], level, labels[kind, state])
        elif kind == "main_path":
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


def _gap(main: list[str], loops: list[list[str]]) -> float:
    """Distance between two states, wide enough for the words on the arc and on both loops."""
    beside = sum(_widest(words) for words in loops) / 2
    return max(104.0, _widest(main) + 2 * RADIUS + 14, beside + 14)


def _widest(words: list[str]) -> float:
    return max((text_width(word, SIZE) for word in words), default=0.0)


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
    path = (
        f"M{x - 9:.1f},{foot:.1f} C{x - 26:.1f},{top:.1f} {x + 26:.1f},{top:.1f} "
        f"{x + 9:.1f},{foot - 2:.1f}"
    )
    return [
        tag("path", d=path, class_="loop"),
        _arrow(x + 8.5, foot, "loop-arrow", -0.45, 0.89),
        *_stack(x, level - RADIUS - LOOP_HEIGHT + 10, words, "loop-word"),
    ]


def _epsilon(left: float, right: float, level: float, score: float) -> list[str]:
    foot = level + RADIUS - 4
    deep = foot + 30
    path = (
        f"M{left + 12:.1f},{foot:.1f} C{left + 30:.1f},{deep:.1f} {right - 30:.1f},{deep:.1f} "
        f"{right - 13:.1f},{foot + 4:.1f}"
    )
    return [
        tag("path", d=path, class_="epsilon"),
        _arrow(right - 12, foot + 1, "arrow", 0.62, -0.78),
        _text((left + right) / 2, deep + 10, f"ε {number(score, 2)}", "muted", SIZE - 1),
    ]


def _state(x: float, y: float, state: int, last: int) -> list[str]:
    name = state_name(state, last + 1)
    if 0 < state < last:
        return [
            tag("circle", cx=x, cy=y, r=RADIUS, class_="state"),
            _text(x, y + 4, name, "strong"),
        ]
    box = tag(
        "rect",
        x=x - 26,
        y=y - RADIUS + 3,
        width=52.0,
        height=2 * RADIUS - 6,
        rx=16.0,
        class_="state",
    )
    return [box, _text(x, y + 4, name, "strong", SIZE - 1)]
