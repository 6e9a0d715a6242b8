"""A document with its matched spans, overlapping ones below one another, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from sopa_plugin.interpret.render.markup import (
    clean,
    is_right_to_left,
    mark,
    number,
    percent,
    side,
    signed,
    tag,
    text_width,
)
from sopa_plugin.interpret.render.page import LANE, MAX_LANES, picture

if TYPE_CHECKING:
    from sopa_plugin.interpret.documents import Contribution, DocumentExplanation
    from sopa_plugin.interpret.match import Match

LEGEND = (
    "▲ solid: speaks for {target}. ▼ dashed: speaks against it. The number beside the mark is the "
    "row of the table. A contribution is the change of {target}'s log-odds against the same "
    "document with the pattern's score replaced ({replacement})."
)


class Span(NamedTuple):
    """One drawn span: tokens `start <= i < end`, the line below the text that it lies on."""

    start: int
    end: int
    rank: int
    effect: float
    lane: int


def lay_spans(explanation: DocumentExplanation) -> list[Span]:
    """The spans of the shown contributions, each on the first line below the text that is free."""
    found = [
        (item.match, rank, item.effect[explanation.target])
        for rank, item in enumerate(explanation.shown, start=1)
        if item.match and item.match.end > item.match.start
    ]
    found.sort(key=lambda each: (each[0].start, -each[0].end, each[1]))
    free_from: list[int] = []
    spans = []
    for match, rank, effect in found:
        free = [lane for lane, position in enumerate(free_from) if position <= match.start]
        lane = free[0] if free else len(free_from)
        if not free:
            free_from.append(0)
        free_from[lane] = match.end
        spans.append(Span(match.start, match.end, rank, effect, lane))
    return spans


def document_html(explanation: DocumentExplanation, heading: str = "h1") -> str:
    """The text with its spans, and the table of contributions beside it."""
    text = tag("div", verdict_html(explanation), spans_html(explanation))
    table = tag("div", contributions_html(explanation), class_="scroll")
    legend = LEGEND.format(target=explanation.target, replacement=explanation.replacement)
    return (
        tag(heading, clean(f"Prediction: {explanation.predicted}"))
        + tag("div", text, table, class_="reading")
        + tag("p", clean(legend), class_="muted small")
    )


def verdict_html(explanation: DocumentExplanation) -> str:
    """What the model says and how faithful the phrases are."""
    said = " · ".join(f"{label} {percent(p)}" for label, p in explanation.probabilities.items())
    facts = [tag("b", clean(said))]
    if explanation.gold is not None:
        right = explanation.gold == explanation.predicted
        words = f"{'✓' if right else '✗'} labelled {explanation.gold}"
        facts.append(tag("span", clean(words), class_="for" if right else "against"))
    faithful = (
        f"without the phrases that speak for {explanation.target}: "
        f"{signed(-explanation.comprehensiveness)}; with them alone: "
        f"{signed(-explanation.sufficiency)} in probability"
    )
    facts.append(tag("span", clean(faithful), class_="muted small"))
    return tag("div", *facts, class_="facts")


def spans_html(explanation: DocumentExplanation) -> str:
    """The words, each within the spans that cover it; blanks within those of both neighbours."""
    tokens, spans = explanation.tokens, lay_spans(explanation)
    lanes = 1 + max((span.lane for span in spans), default=-1)
    covering: list[tuple[Span, ...]] = [()] * len(tokens)
    for span in spans:
        for position in range(span.start, span.end):
            covering[position] += (span,)
    mixed = any(map(is_right_to_left, tokens))
    pieces: list[tuple[str, tuple[Span, ...]]] = []
    for position, token in enumerate(tokens):
        here = covering[position]
        going_on = tuple(span for span in here if span.start < position)
        starting = sorted((span for span in here if span.start == position), key=_rank)
        keys = "".join(_key_html(span, token) for span in starting)
        pieces.append((" " * bool(position) + keys, going_on))
        pieces.append((clean(_bound(token) if mixed else token), here))
    parts = [
        _underlined("".join(text for text, _ in group), covered)
        for covered, group in groupby(pieces, key=lambda piece: piece[1])
    ]
    # Lines stand apart by what is drawn between them.
    style = f"line-height:calc(1.45em + {lanes * LANE + 2}px)"
    return tag("div", *parts, class_="spans", dir="auto", style=style)


def _rank(span: Span) -> int:
    return span.rank


def _bound(token: str, text: str | None = None) -> str:
    """`text` (by default the token) between marks that hold it to the token's direction."""
    if text is None and (token[:1].isalpha() and token[-1:].isalpha() or not _has_letters(token)):
        return token
    mark_of_direction = "\u200f" if is_right_to_left(token) else "\u200e"
    return f"{mark_of_direction}{token if text is None else text}{mark_of_direction}"


def _has_letters(token: str) -> bool:
    return any(character.isalpha() for character in token)


def _key_html(span: Span, token: str) -> str:
    """The mark and number before the first word of a span, bound to that word's direction."""
    return tag("span", _bound(token, _key(span)), class_=f"key {side(span.effect)}")


def _underlined(text: str, spans: Sequence[Span]) -> str:
    """`text` within one element a span, the lowest line outermost, tinted by the sum of effects."""
    if not spans or not text:
        return text
    for span in sorted(spans, key=lambda span: span.lane):
        text = tag("span", text, class_=f"u l{min(span.lane, MAX_LANES - 1)} {side(span.effect)}")
    return tag("span", text, class_=f"t {side(sum(span.effect for span in spans))}")


def phrase_html(match: Match | None) -> str:
    """A match's words in order, loop words and epsilons marked."""
    if match is None:
        return tag("span", "no match", class_="muted")
    words = []
    for step in match.steps:
        if step.arc == "epsilon":
            words.append(tag("span", "ε", class_="muted", title="epsilon: no word consumed"))
        elif step.arc == "loop":
            words.append(tag("span", f"↻{clean(step.token or '')}", class_="looped"))
        else:
            words.append(clean(step.token or ""))
    return tag("span", " ".join(words), dir="auto")


def contributions_html(explanation: DocumentExplanation) -> str:
    """The shown contributions as a table with bars."""
    target = explanation.target
    largest = max((abs(item.effect[target]) for item in explanation.shown), default=1.0)
    head = "".join(
        tag("th", name, scope="col") for name in ("", "", "log-odds", "pattern", "score", "phrase")
    )
    rows = [
        _contribution_row(rank, item, item.effect[target], largest)
        for rank, item in enumerate(explanation.shown, start=1)
    ]
    return tag("table", tag("thead", tag("tr", head)), tag("tbody", *rows), class_="rows small")


def _contribution_row(rank: int, item: Contribution, effect: float, largest: float) -> str:
    width = f"width:{100 * abs(effect) / largest:.0f}%"
    bar = tag("span", class_=f"bar {side(effect)}", style=width)
    half = tag("span", bar, class_="right" if effect > 0 else "left")
    return tag(
        "tr",
        tag("td", f"{mark(effect)}{rank}", class_=f"num {side(effect)}"),
        tag("td", half, class_="axis"),
        tag("td", signed(effect), class_="num"),
        tag("td", clean(item.pattern), class_="num"),
        tag("td", number(item.score), class_="num"),
        tag("td", phrase_html(item.match)),
    )


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
        places = _place(line, explanation.tokens, spans, is_right_to_left(" ".join(explanation.tokens)))
        elements += _draw_line(places, explanation.tokens, spans, y)
        y += height
    legend = (
        f"▲ solid: for {explanation.target}   ▼ dashed: against   "
        f"numbers: rank of the contribution ({explanation.replacement})"
    )
    elements.append(
        tag("text", clean(legend), x=MARGIN, y=y, font_size=11, class_="muted", xml_space="preserve")
    )
    return picture(WIDTH, y + MARGIN, "A document and its matched spans", *elements)


def _heading(explanation: DocumentExplanation) -> str:
    share = percent(explanation.probabilities[explanation.predicted])
    words = f"{explanation.predicted} {share}"
    if explanation.gold is not None:
        words += f" (labelled {explanation.gold})"
    return tag("text", clean(words), x=MARGIN, y=MARGIN + 12, font_size=SIZE, class_="strong")


def _token_width(position: int, tokens: Sequence[str], spans: Sequence[Span]) -> float:
    keys = [_key(span) for span in spans if span.start == position]
    return sum(text_width(key, KEY) + AFTER_KEY for key in keys) + text_width(tokens[position], SIZE)


def _key(span: Span) -> str:
    return f"{mark(span.effect)}{span.rank}"


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
        if not _has_letters(token):
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
                tag("line", x1=left, y1=at, x2=right, y2=at, stroke_width=3, class_=side(span.effect))
            )
    for position, (left, width) in places.items():
        here = [span for span in spans if span.start <= position < span.end]
        if here:
            goes_on = any(span.end > position + 1 for span in here) and position + 1 in places
            elements.append(_tint(here, left, width, places[position + 1] if goes_on else None, y))
        x = left
        for span in sorted(here, key=_rank):
            if span.start == position:
                elements.append(
                    tag("text", _key(span), x=x, y=y - 4, font_size=KEY, class_=f"strong {side(span.effect)}")
                )
                x += text_width(_key(span), KEY) + AFTER_KEY
        room = left + width - x
        elements.append(_word(tokens[position], x, y, room))
    return elements


def _tint(
    spans: Sequence[Span], left: float, width: float, following: tuple[float, float] | None, y: float
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
