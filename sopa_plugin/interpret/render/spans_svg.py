"""A document and its matched spans as one picture, its text laid out line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sopa_plugin.interpret.render.markup import (
    REPLACED,
    clean,
    has_letters,
    is_right_to_left,
    percent,
    side,
    tag,
    text_width,
)
from sopa_plugin.interpret.render.page import picture
from sopa_plugin.interpret.render.spans import Span, key_of, lay_spans, rank_of

if TYPE_CHECKING:
    from sopa_plugin.interpret.documents import DocumentExplanation

SIZE = 15.0
WIDTH = 760.0
MARGIN = 18.0
TEXT = 22.0
STRIPE = 8.0
KEY = 10.0
AFTER_KEY = 3.0
BLANK = 5.0


def document_svg(explanation: DocumentExplanation) -> str:
    """The words and the lines below them, wrapped at a fixed width."""
    spans = lay_spans(explanation)
    lines = _wrap(explanation.tokens, spans)
    lanes = 1 + max((span.lane for span in spans), default=-1)
    height = TEXT + STRIPE * lanes + 8
    elements = [_heading(explanation)]
    y = MARGIN + 46
    for line in lines:
        places = _place(
            line, explanation.tokens, spans, is_right_to_left(" ".join(explanation.tokens))
        )
        elements += _draw_line(places, explanation.tokens, spans, y)
        y += height
    legend = (
        f"▲ speaks for {explanation.target} · ▼ dashed: against · numbers rank contributions, "
        f"each against the same document {REPLACED[explanation.replacement]}"
    )
    elements.append(tag("text", clean(legend), x=MARGIN, y=y, font_size=11, class_="muted"))
    return picture(WIDTH, y + MARGIN, "A document and its matched spans", *elements)


def _heading(explanation: DocumentExplanation) -> str:
    share = percent(explanation.probabilities[explanation.predicted])
    words = f"{explanation.predicted} {share}"
    if explanation.gold is not None:
        words += f" (labelled {explanation.gold})"
    return tag("text", clean(words), x=MARGIN, y=MARGIN + 12, font_size=SIZE, class_="strong")


def _token_width(position: int, tokens: Sequence[str], spans: Sequence[Span]) -> float:
    keys = [key_of(span) for span in spans if span.start == position]
    return sum(text_width(key, KEY) + AFTER_KEY for key in keys) + text_width(
        tokens[position], SIZE
    )


def _wrap(tokens: Sequence[str], spans: Sequence[Span]) -> list[list[int]]:
    """Positions of the tokens of each line."""
    lines: list[list[int]] = [[]]
    room = WIDTH - 2 * MARGIN
    used = 0.0
    for position in range(len(tokens)):
        width = _token_width(position, tokens, spans)
        if lines[-1] and used + width > room:
            lines.append([])
            used = 0.0
        lines[-1].append(position)
        used += width + BLANK
    return lines


def _place(
    line: Sequence[int], tokens: Sequence[str], spans: Sequence[Span], mirrored: bool
) -> dict[int, tuple[float, float]]:
    """Left edge and width of each token of a line, in the order in which they are read."""
    places: dict[int, tuple[float, float]] = {}
    x = MARGIN
    for position in _visual_order(line, tokens, mirrored):
        width = min(_token_width(position, tokens, spans), WIDTH - 2 * MARGIN)
        places[position] = (WIDTH - x - width if mirrored else x, width)
        x += width + BLANK
    return places


def _visual_order(line: Sequence[int], tokens: Sequence[str], mirrored: bool) -> list[int]:
    """The tokens from the side where reading starts; runs in the other direction reversed."""
    order: list[int] = []
    run: list[int] = []
    waiting: list[int] = []  # tokens without letters, within a run if it goes on after them
    for position in line:
        token = tokens[position]
        if not has_letters(token):
            waiting.append(position)
        elif is_right_to_left(token) != mirrored:
            run += [*waiting, position] if run else [position]
            order += [] if len(run) > 1 else waiting
            waiting = []
        else:
            order += [*reversed(run), *waiting, position]
            run, waiting = [], []
    return [*order, *reversed(run), *waiting]


def _draw_line(
    places: dict[int, tuple[float, float]], tokens: Sequence[str], spans: Sequence[Span], y: float
) -> list[str]:
    elements = []
    for span in spans:
        inside = [places[i] for i in range(span.start, span.end) if i in places]
        if inside:
            left = min(x for x, _ in inside)
            right = max(x + width for x, width in inside)
            at = y + 8 + STRIPE * span.lane
            elements.append(
                tag(
                    "line",
                    x1=left,
                    y1=at,
                    x2=right,
                    y2=at,
                    stroke_width=3,
                    class_=side(span.effect),
                )
            )
    for position, (left, width) in places.items():
        here = [span for span in spans if span.start <= position < span.end]
        if here:
            goes_on = any(span.end > position + 1 for span in here) and position + 1 in places
            elements.append(_tint(here, left, width, places[position + 1] if goes_on else None, y))
        x = left
        for span in sorted(here, key=rank_of):
            if span.start == position:
                elements.append(
                    tag(
                        "text",
                        key_of(span),
                        x=x,
                        y=y - 4,
                        font_size=KEY,
                        class_=f"strong {side(span.effect)}",
                    )
                )
                x += text_width(key_of(span), KEY) + AFTER_KEY
        room = left + width - x
        elements.append(_word(tokens[position], x, y, room))
    return elements


def _tint(
    spans: Sequence[Span],
    left: float,
    width: float,
    following: tuple[float, float] | None,
    y: float,
) -> str:
    """The ground of a word, up to the following word where a span covers both."""
    right = left + width
    if following and abs(following[0] - right - BLANK) < 1:
        right += BLANK
    elif following and abs(left - following[0] - following[1] - BLANK) < 1:
        left -= BLANK
    tint = f"{side(sum(span.effect for span in spans))}-soft"
    return tag("rect", x=left, y=y - 14, width=right - left, height=19.0, class_=tint)


def _word(token: str, x: float, y: float, room: float) -> str:
    """One word, fitted to the room that was reckoned for it."""
    right_to_left = is_right_to_left(token)
    return tag(
        "text",
        clean(token),
        x=x,
        y=y,
        font_size=SIZE,
        text_length=room if len(token) > 1 else None,
        length_adjust="spacingAndGlyphs" if len(token) > 1 else None,
        direction="rtl" if right_to_left else None,
        text_anchor="end" if right_to_left else None,
    )
