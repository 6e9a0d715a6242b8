"""A document with its matched spans, overlapping ones below one another, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from sopa_plugin.interpret.render.markup import (
    REPLACED,
    clean,
    has_letters,
    is_right_to_left,
    mark,
    number,
    percent,
    pieces,
    side,
    signed,
    tag,
)
from sopa_plugin.interpret.render.page import LANE, MAX_LANES

if TYPE_CHECKING:
    from sopa_plugin.interpret.documents import Contribution, DocumentExplanation
    from sopa_plugin.interpret.match import Match

LEGEND = (
    "▲ solid: speaks for {target}. ▼ dashed: speaks against it. The number beside the mark is the "
    "row of the table. A contribution is the change of {target}'s log-odds against the same "
    "document {replacement}."
)


class Span(NamedTuple):
    """One drawn span: tokens `start <= i < end`, the line below the text that it lies on."""

    start: int
    end: int
    rank: int
    effect: float
    lane: int


def lay_spans(explanation: DocumentExplanation) -> list[Span]:
    """The spans of the shown contributions, each on the first line below the text that is free.

    Spans of the same words that speak for the same side share a line.
    """
    found = [
        (item.match.start, -item.match.end, rank, item.effect[explanation.target])
        for rank, item in enumerate(explanation.shown, start=1)
        if item.match and item.match.end > item.match.start
    ]
    free_from: list[int] = []
    lanes: dict[tuple[int, int, bool], int] = {}
    spans = []
    for start, minus_end, rank, effect in sorted(found):
        extent = start, -minus_end, effect > 0
        if extent not in lanes:
            free = [lane for lane, position in enumerate(free_from) if position <= start]
            lanes[extent] = free[0] if free else len(free_from)
            free_from += [0] * (not free)
            free_from[lanes[extent]] = -minus_end
        spans.append(Span(start, -minus_end, rank, effect, lanes[extent]))
    return spans


def document_html(explanation: DocumentExplanation) -> str:
    """The text with its spans, and the table of contributions beside it."""
    text = tag("div", verdict_html(explanation), spans_html(explanation))
    table = tag("div", contributions_html(explanation), class_="scroll")
    legend = LEGEND.format(target=explanation.target, replacement=REPLACED[explanation.replacement])
    return (
        tag("h1", clean(f"Prediction: {explanation.predicted}"))
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
    parts: list[tuple[str, tuple[Span, ...]]] = []
    for position, (blank, text) in enumerate(pieces(tokens)):
        here = covering[position]
        going_on = tuple(span for span in here if span.start < position)
        starting = sorted((span for span in here if span.start == position), key=rank_of)
        keys = "".join(_key_html(span, text) for span in starting)
        parts.append((" " * blank + keys, going_on))
        parts.append((clean(_bound(text) if mixed else text), here))
    drawn = [
        _underlined("".join(text for text, _ in group), covered)
        for covered, group in groupby(parts, key=lambda part: part[1])
    ]
    # Lines stand apart by what is drawn between them.
    style = f"line-height:calc(1.45em + {lanes * LANE + 2}px)"
    return tag("div", *drawn, class_="spans", dir="auto", style=style)


def rank_of(span: Span) -> int:
    """Orders spans by the size of their contributions."""
    return span.rank


def _bound(token: str, text: str | None = None) -> str:
    """`text` (by default the token) between marks that hold it to the token's direction."""
    if text is None and ((token[:1].isalpha() and token[-1:].isalpha()) or not has_letters(token)):
        return token
    mark_of_direction = "\u200f" if is_right_to_left(token) else "\u200e"
    return f"{mark_of_direction}{token if text is None else text}{mark_of_direction}"


def key_of(span: Span) -> str:
    """The mark and the number that a span has in the table."""
    return f"{mark(span.effect)}{span.rank}"


def _key_html(span: Span, token: str) -> str:
    """The mark and number before the first word of a span, bound to that word's direction."""
    return tag("span", _bound(token, key_of(span)), class_=f"key {side(span.effect)}")


def _underlined(text: str, spans: Sequence[Span]) -> str:
    """`text` within one element a span, the lowest line outermost, tinted by the sum of effects."""
    if not spans or not text:
        return text
    lines = {(min(span.lane, MAX_LANES - 1), side(span.effect)) for span in spans}
    for lane, side_ in sorted(lines):
        text = tag("span", text, class_=f"u l{lane} {side_}")
    return tag("span", text, class_=f"t {side(sum(span.effect for span in spans))}")


def phrase_html(match: Match | None) -> str:
    """A match's words in order, loop words and epsilons marked."""
    if match is None:
        return tag("span", "no match", class_="muted")
    words = iter(pieces(match.tokens))
    parts: list[str] = []
    for step in match.steps:
        blank, text = (True, "ε") if step.token is None else next(words)
        if step.arc == "epsilon":
            text = tag("span", text, class_="muted", title="epsilon: no word consumed")
        elif step.arc == "self_loop":
            text = tag("span", f"↻{clean(text)}", class_="looped")
        else:
            text = clean(text)
        # The first word has none before it, unless an epsilon was taken before.
        parts.append(" " * (blank or step.position == match.start) + text)
    return tag("span", "".join(parts).strip(), dir="auto")


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
