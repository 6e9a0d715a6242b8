"""A document and its matched spans as one picture, its text laid out line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sopa_plugin.interpret.render.markup import (
    REPLACED,
    clean,
    has_letters,
    is_right_to_left,
    percent,
    pieces,
    side,
    tag,
    text_width,
)
from sopa_plugin.interpret.render.page import picture
from sopa_plugin.interpret.render.spans import Span, key_of, lay_spans, rank_of

if TYPE_CHECKING:
    from sopa_plugin.interpret.documents import DocumentExplanation

SIZE = 15.0
KEY = 10.0
AFTER_KEY = 3.0
BLANK = 5.0
WIDTH = 760.0
MARGIN = 18.0
ROOM = WIDTH - 2 * MARGIN
TEXT = 22.0
STRIPE = 8.0
LEGEND = 11.0


class Word(NamedTuple):
    """A token to be drawn."""

    text: str
    spans: tuple[Span, ...]  # those that cover it
    keys: tuple[Span, ...]  # those that begin with it
    width: float  # with its keys
    gap: float  # before it


Places = dict[int, tuple[float, float]]
"""Left edge and width of tokens by position."""


def document_svg(explanation: DocumentExplanation) -> str:
    """The words and the lines below them, wrapped at a fixed width."""
    spans = lay_spans(explanation)
    words = [
        _word(position, blank, text, spans)
        for position, (blank, text) in enumerate(pieces(explanation.tokens))
    ]
    mirrored = is_right_to_left(" ".join(explanation.tokens))
    lanes = 1 + max((span.lane for span in spans), default=-1)
    elements, y = [_heading(explanation)], MARGIN + 46
    for line in _wrap(words):
        elements += _draw_line(words, _place(line, words, mirrored), spans, y)
        y += TEXT + STRIPE * lanes + 8
    legend = (
        f"▲ speaks for {explanation.target} · ▼ dashed: against · numbers rank contributions, "
        f"each against the same document {REPLACED[explanation.replacement]}"
    )
    for part in _broken(legend, LEGEND):
        elements.append(tag("text", clean(part), x=MARGIN, y=y, font_size=LEGEND, class_="muted"))
        y += 1.4 * LEGEND
    return picture(WIDTH, y, "A document and its matched spans", *elements)


def _heading(explanation: DocumentExplanation) -> str:
    share = percent(explanation.probabilities[explanation.predicted])
    words = f"{explanation.predicted} {share}"
    if explanation.gold is not None:
        words += f" (labelled {explanation.gold})"
    return tag("text", clean(words), x=MARGIN, y=MARGIN + 12, font_size=SIZE, class_="strong")


def _broken(text: str, size: float) -> list[str]:
    """Running text in lines that fit."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > ROOM:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _word(position: int, blank: bool, text: str, spans: Sequence[Span]) -> Word:
    here = tuple(span for span in spans if span.start <= position < span.end)
    keys = tuple(sorted((span for span in here if span.start == position), key=rank_of))
    width = text_width(text, SIZE) + sum(_key_width(span) for span in keys)
    return Word(text, here, keys, min(width, ROOM), BLANK if blank else 0.0)


def _key_width(span: Span) -> float:
    return text_width(key_of(span), KEY) + AFTER_KEY


def _wrap(words: Sequence[Word]) -> list[list[int]]:
    """Positions of the tokens of each line."""
    lines: list[list[int]] = [[]]
    used = 0.0
    for position, word in enumerate(words):
        if lines[-1] and used + word.gap + word.width > ROOM:
            lines.append([])
            used = 0.0
        used += word.width + (word.gap if lines[-1] else 0.0)
        lines[-1].append(position)
    return lines


def _place(line: Sequence[int], words: Sequence[Word], mirrored: bool) -> Places:
    """Where the tokens of a line stand."""
    places: Places = {}
    x = MARGIN
    for position in _visual_order(line, words, mirrored):
        word = words[position]
        x += word.gap if places else 0.0
        places[position] = (WIDTH - x - word.width if mirrored else x, word.width)
        x += word.width
    return places


def _visual_order(line: Sequence[int], words: Sequence[Word], mirrored: bool) -> list[int]:
    """The tokens from the side where reading starts; runs in the other direction reversed."""
    order: list[int] = []
    run: list[int] = []
    waiting: list[int] = []  # tokens without letters, within a run if it goes on after them
    for position in line:
        text = words[position].text
        if not has_letters(text):
            waiting.append(position)
        elif is_right_to_left(text) != mirrored:
            run, order = ([*run, *waiting], order) if run else ([], [*order, *waiting])
            run.append(position)
            waiting = []
        else:
            order += [*reversed(run), *waiting, position]
            run, waiting = [], []
    return [*order, *reversed(run), *waiting]


def _draw_line(words: Sequence[Word], places: Places, spans: Sequence[Span], y: float) -> list[str]:
    """The stripes of a line of text, then its words on their grounds."""
    elements = []
    for span in spans:
        inside = [places[i] for i in range(span.start, span.end) if i in places]
        if inside:
            ends = {
                "x1": min(left for left, _ in inside),
                "x2": max(left + width for left, width in inside),
            }
            at = y + 8 + STRIPE * span.lane
            stroke = {"stroke_width": 3, "class_": side(span.effect)}
            elements.append(tag("line", **ends, y1=at, y2=at, **stroke))
    for position, (left, width) in places.items():
        word = words[position]
        if word.spans:
            goes_on = any(span.end > position + 1 for span in word.spans)
            following = places.get(position + 1) if goes_on else None
            elements.append(_tint(word, left, width, following, y))
        x = left
        for span in word.keys:
            look = {"font_size": KEY, "class_": f"strong {side(span.effect)}"}
            elements.append(tag("text", key_of(span), x=x, y=y - 4, **look))
            x += _key_width(span)
        elements.append(_text(word.text, x, y, left + width - x))
    return elements


def _tint(
    word: Word, left: float, width: float, following: tuple[float, float] | None, y: float
) -> str:
    """The ground of a word, up to the following word where a span covers both."""
    right = left + width
    if following and abs(following[0] - right - BLANK) < 1:
        right += BLANK
    elif following and abs(left - following[0] - following[1] - BLANK) < 1:
        left -= BLANK
    tint = f"{side(sum(span.effect for span in word.spans))}-soft"
    return tag("rect", x=left, y=y - 14, width=right - left, height=19.0, class_=tint)


def _text(text: str, x: float, y: float, room: float) -> str:
    """One word, fitted to the room that was reckoned for it."""
    fitted: dict[str, object] = {}
    if len(text) > 1:
        fitted = {"text_length": room, "length_adjust": "spacingAndGlyphs"}
    if is_right_to_left(text):
        fitted |= {"direction": "rtl", "text_anchor": "end"}
    return tag("text", clean(text), x=x, y=y, font_size=SIZE, **fitted)
