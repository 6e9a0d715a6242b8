"""Pattern cards: the best phrases in state columns, as the paper's table of six patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sopa_plugin.interpret.render.automaton import automaton_svg
from sopa_plugin.interpret.render.markup import (
    REPLACED,
    clean,
    mark,
    number,
    percent,
    shorten,
    side,
    signed,
    state_name,
    tag,
    text_width,
)
from sopa_plugin.interpret.render.page import picture

if TYPE_CHECKING:
    from sopa_plugin.interpret.match import Match, StateColumn
    from sopa_plugin.interpret.patterns import PatternReading, PatternsReading

LEGEND = (
    "Columns are states. A word stands under the state that it leads to; ↻ marks words that a "
    "self-loop consumed, a dashed cell with ε a step that consumed none."
)
EFFECT = (
    "The effect on a class is the mean change of its log-odds that the pattern makes where it "
    "fires, against the same document {replacement}."
)


def headings(matches: tuple[Match, ...], num_states: int) -> list[tuple[int, str]]:
    """The states that have a column in any of `matches`, with their names."""
    first = min((match.columns()[0].state for match in matches), default=1)
    return [(state, state_name(state, num_states)) for state in range(first, num_states)]


def verdict(reading: PatternReading) -> tuple[str, str]:
    """The pattern's effect in words, and the class of its colour."""
    if reading.label is None:
        return "", "neither"
    sign = reading.direction if reading.strength else 0
    return f"{mark(sign)} {reading.label} {signed(reading.strength)}", side(sign)


def facts(reading: PatternReading) -> list[str]:
    """How often the pattern fires and what it scores."""
    found = [f"fires in {percent(reading.fires)}", f"best {number(reading.best)}"]
    found.append(f"mean {number(reading.mean)}")
    if reading.matched < 1:
        found.append(f"matches in {percent(reading.matched)}")
    return found


def cards_html(reading: PatternsReading) -> str:
    """One card a pattern."""
    about = LEGEND
    if any(pattern.effect for pattern in reading):
        about += " " + EFFECT.format(replacement=REPLACED[reading.replacement])
    heading = tag("h1", f"{len(reading)} patterns")
    read = tag(
        "p", clean(f"Read over {reading.documents:,} documents. {about}"), class_="muted small"
    )
    return heading + read + card_grid(reading)


def card_grid(patterns: PatternsReading) -> str:
    """The cards alone."""
    return tag("div", *(card_html(pattern) for pattern in patterns), class_="cards")


def card_html(reading: PatternReading) -> str:
    """One card: facts, phrases, the automaton behind a fold."""
    words, class_ = verdict(reading)
    header = tag(
        "div",
        tag("h3", clean(reading.name)),
        tag("b", clean(words), class_=class_) if words else "",
        *(tag("span", clean(fact), class_="muted small") for fact in facts(reading)),
        class_="facts",
    )
    body = tag("div", _table(reading), class_="scroll")
    if reading.arcs:
        drawing = tag("div", automaton_svg(reading, alone=False), class_="scroll")
        body += tag("details", tag("summary", "Automaton"), drawing)
    return tag("section", header, body, class_="card", id=f"pattern-{reading.name}")


def _table(reading: PatternReading) -> str:
    if not reading.matches:
        return tag("p", "No match in these documents.", class_="muted small")
    columns = headings(reading.matches, reading.num_states)
    head = tag("th", "score", scope="col")
    head += "".join(tag("th", name, scope="col") for _, name in columns)
    rows = "".join(_row(match, [state for state, _ in columns]) for match in reading.matches)
    return tag(
        "table", tag("thead", tag("tr", head)), tag("tbody", rows), class_="phrases rows small"
    )


def _row(match: Match, states: list[int]) -> str:
    by_state = {column.state: column for column in match.columns()}
    repeats = tag("span", f" ×{match.count}", class_="muted") if match.count > 1 else ""
    cells = tag("td", number(match.score), repeats, class_="num")
    return tag("tr", cells, *(_cell(by_state.get(state)) for state in states))


def _cell(column: StateColumn | None) -> str:
    if column is None:
        return tag("td")
    loops = "".join(tag("bdi", f"↻ {clean(word)}", class_="loop") for word in column.loops)
    if column.epsilon:
        return tag("td", tag("span", "ε", class_="eps", title="epsilon: no word consumed"), loops)
    return tag("td", tag("bdi", clean(column.word or "")), loops)


SIZE = 13.0
LINE = 17.0
PAD = 9.0
WIDTH = 1000.0
CARD = 280.0
GAP = 16.0
LETTERS = 22


def cards_svg(reading: PatternsReading) -> str:
    """The cards as one picture, as many beside each other as fit."""
    drawn = [_card(pattern) for pattern in reading]
    width = max([CARD, *(card[0] for card in drawn)])
    per_row = max(1, int((WIDTH - GAP) // (width + GAP)))
    elements, y = [], GAP
    for start in range(0, len(drawn), per_row):
        row = drawn[start : start + per_row]
        tallest = max(card[1] for card in row)
        for place, (_, _, inside) in enumerate(row):
            x = GAP + place * (width + GAP)
            frame = tag(
                "rect", x=0.5, y=0.5, width=width - 1, height=tallest - 1, rx=9, class_="card"
            )
            elements.append(tag("g", frame, *inside, transform=f"translate({x:.1f} {y:.1f})"))
        y += tallest + GAP
    columns = min(per_row, max(len(drawn), 1))
    whole = GAP + columns * (width + GAP)
    return picture(whole, y, f"{len(reading)} patterns and their best phrases", *elements)


def _card(reading: PatternReading) -> tuple[float, float, list[str]]:
    """Width, height and elements of one card."""
    words, class_ = verdict(reading)
    elements = [_at(PAD + 4, 24, reading.name, "strong", SIZE + 2)]
    after = PAD + 18 + text_width(reading.name, SIZE + 2)
    elements.append(_at(after, 24, words, f"strong {class_}"))
    note = " · ".join(facts(reading))
    elements.append(_at(PAD + 4, 43, note, "muted", SIZE - 2))
    columns = headings(reading.matches, reading.num_states)
    widths = [_column_width(reading.matches, state, name) for state, name in columns]
    scores = 62.0
    x = [PAD + 4 + scores + sum(widths[:i]) for i in range(len(widths))]
    y = 66.0
    elements.append(_at(PAD + 4, y, "score", "muted", SIZE - 2))
    elements += [
        _at(at, y, name, "muted", SIZE - 2) for at, (_, name) in zip(x, columns, strict=True)
    ]
    y += 8
    for match in reading.matches:
        line, height = _line(match, dict(zip((s for s, _ in columns), x, strict=True)), widths, y)
        elements += line
        y += height
    right = [
        after + text_width(words, SIZE),
        PAD + 4 + text_width(note, SIZE - 2),
        *(at + wide for at, wide in zip(x, widths, strict=True)),
    ]
    return max(right) + PAD, y + PAD, elements


def _column_width(matches: tuple[Match, ...], state: int, name: str) -> float:
    words = [name]
    for match in matches:
        for column in match.columns():
            if column.state == state:
                words += [column.word or "", *(f"↻ {loop}" for loop in column.loops)]
    return max(38.0, max(text_width(shorten(word, LETTERS), SIZE) for word in words) + 16)


def _line(
    match: Match, x: dict[int, float], widths: list[float], y: float
) -> tuple[list[str], float]:
    """One phrase and the height that it takes."""
    by_state = {column.state: column for column in match.columns()}
    depth = 1 + max(len(column.loops) for column in by_state.values())
    height = LINE * depth + 5
    base = y + LINE - 1
    left, right = PAD + 4, max(x.values()) + widths[-1]
    elements = [
        tag("line", x1=left, y1=y, x2=right, y2=y, class_="grid"),
        _at(left, base, number(match.score), "muted"),
    ]
    for (state, at), width in zip(x.items(), widths, strict=True):
        column = by_state.get(state)
        if column is None:
            continue
        if column.epsilon:
            box = tag(
                "rect", x=at - 4, y=y + 3, width=width - 12, height=LINE - 1, rx=3, class_="epsilon"
            )
            elements += [box, _at(at + (width - 20) / 2, base, "ε", "muted", anchor="middle")]
        elif column.word:
            elements.append(_at(at, base, shorten(column.word, LETTERS)))
        elements += [
            _at(at, base + LINE * (i + 1), f"↻ {shorten(word, LETTERS)}", "loop-word")
            for i, word in enumerate(column.loops)
        ]
    return elements, height


def _at(
    x: float, y: float, words: str, class_: str = "", size: float = SIZE, anchor: str | None = None
) -> str:
    place = {"x": x, "y": y, "font_size": size, "text_anchor": anchor}
    return tag("text", clean(words), class_=class_ or None, **place)
