"""Explanations for a terminal: plain, or with ANSI colours besides the marks."""

from __future__ import annotations

import math
import unicodedata
from itertools import groupby
from typing import TYPE_CHECKING

from sopa_plugin.interpret.render.markup import (
    REPLACED,
    arc_cells,
    mark,
    number,
    percent,
    pieces,
    side,
    signed,
    state_name,
)
from sopa_plugin.interpret.render.spans import Span, key_of, lay_spans

if TYPE_CHECKING:
    from sopa_plugin.interpret.activations import StateActivations
    from sopa_plugin.interpret.documents import DocumentExplanation
    from sopa_plugin.interpret.match import Match
    from sopa_plugin.interpret.patterns import PatternReading, PatternsReading
    from sopa_plugin.interpret.report import ModelReport

WIDTH = 80
_CODES = {"for": "34;1", "against": "33", "muted": "2", "strong": "1", "loop": "35"}


_PICTURES = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}  # ␀ to ␟, ␡
_VISIBLE = _PICTURES | dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000)], 0xFFFD)


def visible(text: str) -> str:
    """`text` without the control characters that a terminal would obey: ␛ stands for ESC."""
    return text.translate(_VISIBLE)


class Paint:
    """Wraps text in ANSI codes where colour is wanted."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, text: str, kind: str) -> str:
        """`text` as `kind` looks."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.color and kind in _CODES else text


def patterns_text(reading: PatternsReading, color: bool) -> str:
    """Each pattern with its facts and its best phrases."""
    paint = Paint(color)
    head = f"{len(reading)} patterns read over {reading.documents:,} documents"
    if any(pattern.effect for pattern in reading):
        head += f"; effects against the same document {REPLACED[reading.replacement]}"
    legend = "word ↻word    consumed by a self-loop      [ε]  epsilon, no word consumed"
    patterns = [pattern_text(pattern, paint) for pattern in reading]
    return "\n\n".join([f"{head}\n{legend}", *patterns])


def automata_text(reading: PatternsReading, color: bool) -> str:
    """Each pattern's arcs, one a line."""
    paint = Paint(color)
    parts = []
    for pattern in reading:
        rows = [
            [visible(cell) for cell in arc_cells(arc, pattern.num_states)] for arc in pattern.arcs
        ]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)][:-1]
        lines = [paint(f"Pattern {pattern.name}", "strong")]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
            lines.append("  " + "  ".join([*cells, row[-1]]).rstrip())
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def pattern_text(reading: PatternReading, paint: Paint) -> str:
    """One pattern: a line of facts, a line a phrase."""
    side = "for" if reading.direction > 0 else "against"
    effect = ""
    if reading.label is not None:
        sign = mark(reading.direction if reading.strength else 0)
        effect = paint(f"  {sign} {visible(reading.label)} {signed(reading.strength)}", side)
    facts = f"  fires in {percent(reading.fires)}  best {number(reading.best)}"
    lines = [paint(f"Pattern {reading.name}", "strong") + effect + paint(facts, "muted")]
    lines += aligned(reading.matches, paint)
    if not reading.matches:
        lines.append("  no match in these documents")
    return "\n".join(lines)


def aligned(matches: tuple[Match, ...], paint: Paint) -> list[str]:
    """Phrases, one a line, states below one another."""
    rows = [
        {
            column.state: visible(
                " ".join(
                    (["[ε]"] if column.epsilon else [column.word] if column.word else [])
                    + [f"↻{word}" for word in column.loops]
                )
            )
            for column in match.columns()
        }
        for match in matches
    ]
    states = sorted({state for row in rows for state in row})
    widths = {state: max(columns(row.get(state, "")) for row in rows) for state in states}
    lines = []
    for match, row in zip(matches, rows, strict=True):
        cells = "  ".join(padded(row.get(state, ""), widths[state]) for state in states)
        repeats = f"  ×{match.count}" if match.count > 1 else ""
        lines.append(f"  {paint(f'{number(match.score):>8}', 'muted')}  {cells.rstrip()}{repeats}")
    return lines


def document_text(explanation: DocumentExplanation, color: bool) -> str:
    """The document with its spans below the words, and the table of contributions."""
    paint = Paint(color)
    target = explanation.target
    share = percent(explanation.probabilities[target])
    gold = f" (labelled {visible(explanation.gold)})" if explanation.gold is not None else ""
    lines = [
        f"{paint(visible(explanation.predicted), 'strong')}{gold}; explained: {visible(target)}, "
        f"probability {share}",
        "",
        _underlined(explanation, paint),
        "",
        f"  {'log-odds':>12}  {'pattern':8} {'score':>8}  phrase",
    ]
    for rank, item in enumerate(explanation.shown, start=1):
        value = item.effect[target]
        kind = "for" if value > 0 else "against"
        phrase = visible(item.match.phrase) if item.match else "(no match)"
        figure = paint(f"{mark(value)}{rank:<2} {signed(value):>9}", kind)
        lines.append(f"  {figure}  {item.pattern:8} {number(item.score):>8}  {phrase}")
    lines.append("")
    lines.append(
        f"comprehensiveness {signed(explanation.comprehensiveness)}"
        f"  sufficiency {signed(explanation.sufficiency)}"
        f"  contributions against the same document {REPLACED[explanation.replacement]}"
    )
    return "\n".join(lines)


def _underlined(explanation: DocumentExplanation, paint: Paint) -> str:
    """The words, and below each line of them its spans: `▲1━━━` for, `▼2╍╍╍` against."""
    spans, words = lay_spans(explanation), pieces(map(visible, explanation.tokens))
    lines: list[dict[int, int]] = [{}]  # by position, the column at which a word starts
    used = 0
    for position, (blank, text) in enumerate(words):
        if lines[-1] and used + blank + columns(text) > WIDTH:
            lines.append({})
            used = 0
        used += blank and bool(lines[-1])
        lines[-1][position] = used
        used += columns(text)
    parts = []
    for line in lines:
        shown = (" " * words[i][0] + words[i][1] for i in line)
        parts.append("".join(shown).removeprefix(" "))
        inside = [span for span in spans if any(i in line for i in range(span.start, span.end))]
        for lane in sorted({span.lane for span in inside}):
            below = [span for span in inside if span.lane == lane]
            ends = {i: at + columns(words[i][1]) for i, at in line.items()}
            parts += _lane(line, ends, below, paint)
    return "\n".join(parts)


def _lane(
    starts: dict[int, int], ends: dict[int, int], spans: list[Span], paint: Paint
) -> list[str]:
    """A line of spans below one line of words, given where the words start and end.

    Where a key is wider than its words, the next span stands on a further line.
    """
    lines, reached = [""], [0]
    for (start, end, _), same in groupby(
        sorted(spans), key=lambda s: (s.start, s.end, s.effect > 0)
    ):
        first, last = max(start, min(starts)), min(end - 1, max(starts))
        width = ends[last] - starts[first]
        keys = list(same)
        key = "".join(key_of(span) for span in keys) if start == first else ""
        stroke = "━" if keys[0].effect > 0 else "╍"
        bar = (key + stroke * width)[: max(width, len(key))]
        free = (number for number, column in enumerate(reached) if column <= starts[first])
        line = next(free, len(lines))
        if line == len(lines):
            lines, reached = [*lines, ""], [*reached, 0]
        lines[line] += " " * (starts[first] - reached[line]) + paint(bar, side(keys[0].effect))
        reached[line] = starts[first] + len(bar)
    return lines


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    return sum(
        0
        if unicodedata.category(c) in ("Mn", "Cf")
        else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def padded(text: str, width: int) -> str:
    """`text` with blanks after it up to `width` columns."""
    return text + " " * (width - columns(text))


_BLOCKS = " ░▒▓█"


def activations_text(activations: StateActivations, color: bool) -> str:
    """States down, tokens across; brackets around the best path."""
    paint = Paint(color)
    values = [value for row in activations.values for value in row if math.isfinite(value)]
    low, high = min([0.0, *values]), max([1e-9, *values])
    match, on_path = activations.match, set()
    if match:
        position = match.start - 1
        for step in match.steps:
            # An epsilon is taken where the token before it was read.
            position = position if step.position is None else step.position
            on_path.add((position, step.reaches))
    tokens = [visible(token) for token in activations.tokens]
    widths = [max(3, columns(token)) for token in tokens]
    pairs = zip(tokens, widths, strict=True)
    lines = [paint(f"Pattern {activations.pattern}", "strong")]
    lines.append(" " * 7 + " ".join(padded(token, width) for token, width in pairs))
    for state in range(activations.num_states):
        cells = []
        for position, (row, width) in enumerate(zip(activations.values, widths, strict=True)):
            value = row[state]
            full = (value - low) / (high - low) if math.isfinite(value) else 0.0
            block = _BLOCKS[min(4, math.ceil(4 * full - 0.05))]
            cell = f"[{block}]" if (position, state) in on_path else f" {block} "
            cells.append(cell.ljust(width))
        lines.append(f"{state_name(state, activations.num_states):>5}  " + " ".join(cells).rstrip())
    return "\n".join(lines)


def report_text(report: ModelReport, color: bool) -> str:
    """Figures, confusion, faithfulness, patterns, documents."""
    paint = Paint(color)
    metrics, found = report.metrics, report.faithfulness
    labels = [visible(label) for label in report.labels]
    lines = [
        paint(visible(report.name), "strong"),
        f"accuracy {metrics['accuracy']:.4f}  macro F1 {metrics['macro_f1']:.4f}  "
        f"loss {metrics['loss']:.4f}  on {int(metrics['examples']):,} documents",
        "",
        "labelled / predicted  " + "  ".join(f"{label:>10}" for label in labels),
    ]
    for label, counts in zip(labels, report.confusion, strict=True):
        lines.append(f"{label:>20}  " + "  ".join(f"{count:>10,}" for count in counts))
    lines += [
        "",
        f"faithfulness over {found.documents} documents (random phrases in brackets): "
        f"comprehensiveness {signed(found.comprehensiveness)} "
        f"({signed(found.random_comprehensiveness)}), sufficiency {signed(found.sufficiency)} "
        f"({signed(found.random_sufficiency)})",
        "",
        patterns_text(report.patterns, color),
    ]
    for heading, documents in (
        ("Surely wrong", report.wrong),
        ("Least sure", report.unsure),
        ("Surely right", report.right),
    ):
        lines += ["", paint(heading, "strong")]
        lines += [f"\n{document_text(document, color)}" for document in documents]
    return "\n".join(lines)
