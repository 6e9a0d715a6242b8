"""Explanations for a terminal: plain, or with ANSI colours besides the marks."""

from __future__ import annotations


import math
from typing import TYPE_CHECKING

from sopa_plugin.interpret.render.markup import mark, number, percent, signed

if TYPE_CHECKING:
    from sopa_plugin.interpret.activations import StateActivations
    from sopa_plugin.interpret.documents import DocumentExplanation
    from sopa_plugin.interpret.match import Match
    from sopa_plugin.interpret.patterns import PatternReading, PatternsReading

_CODES = {"for": "34;1", "against": "33", "muted": "2", "strong": "1", "loop": "35"}


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
        head += f"; effects compare with: {reading.replacement}"
    parts = [head, f"word ↻word{'':4}consumed by a self-loop      [ε]  epsilon, no word consumed"]
    parts += [pattern_text(pattern, paint) for pattern in reading]
    return "\n\n".join(["\n".join(parts[:2]), *parts[2:]])


def pattern_text(reading: PatternReading, paint: Paint) -> str:
    """One pattern: a line of facts, a line a phrase, a line an arc."""
    side = "for" if reading.direction > 0 else "against"
    effect = ""
    if reading.label is not None:
        sign = mark(reading.direction if reading.strength else 0)
        effect = paint(f"  {sign} {reading.label} {signed(reading.strength)}", side)
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
            column.state: " ".join(
                (["[ε]"] if column.epsilon else [column.word] if column.word else [])
                + [f"↻{word}" for word in column.loops]
            )
            for column in match.columns()
        }
        for match in matches
    ]
    states = sorted({state for row in rows for state in row})
    widths = {state: max(len(row.get(state, "")) for row in rows) for state in states}
    lines = []
    for match, row in zip(matches, rows, strict=True):
        cells = "  ".join(row.get(state, "").ljust(widths[state]) for state in states)
        repeats = f"  ×{match.count}" if match.count > 1 else ""
        lines.append(f"  {paint(f'{number(match.score):>8}', 'muted')}  {cells.rstrip()}{repeats}")
    return lines


def document_text(explanation: DocumentExplanation, color: bool) -> str:
    """The document with its spans bracketed, and the table of contributions."""
    paint = Paint(color)
    target = explanation.target
    share = percent(explanation.probabilities[target])
    gold = f" (labelled {explanation.gold})" if explanation.gold is not None else ""
    lines = [
        f"{paint(explanation.predicted, 'strong')}{gold}; explained: {target}, probability {share}",
        "",
        _bracketed(explanation, paint),
        "",
        f"     {target:>8}  {'pattern':8} {'score':>8}  phrase",
    ]
    for rank, item in enumerate(explanation.shown, start=1):
        value = item.effect[target]
        kind = "for" if value > 0 else "against"
        phrase = item.match.phrase if item.match else "(no match)"
        figure = paint(f"{mark(value)}{rank:<2} {signed(value):>9}", kind)
        lines.append(f"  {figure}  {item.pattern:8} {number(item.score):>8}  {phrase}")
    lines.append("")
    lines.append(
        f"comprehensiveness {signed(explanation.comprehensiveness)}"
        f"  sufficiency {signed(explanation.sufficiency)}"
        f"  replaced by: {explanation.replacement}"
    )
    return "\n".join(lines)


def _bracketed(explanation: DocumentExplanation, paint: Paint) -> str:
    """The words, `▲1[ … ]` around the span of the first contribution, and so on."""
    opens: dict[int, list[str]] = {}
    closes: dict[int, int] = {}
    for rank, item in enumerate(explanation.shown, start=1):
        if item.match:
            value = item.effect[explanation.target]
            kind = "for" if value > 0 else "against"
            opens.setdefault(item.match.start, []).append(paint(f"{mark(value)}{rank}[", kind))
            closes[item.match.end - 1] = closes.get(item.match.end - 1, 0) + 1
    words = [
        "".join(opens.get(i, [])) + token + "]" * closes.get(i, 0)
        for i, token in enumerate(explanation.tokens)
    ]
    return " ".join(words)


_BLOCKS = " ░▒▓█"


def activations_text(activations: StateActivations, color: bool) -> str:
    """States down, tokens across; brackets around the best path."""
    paint = Paint(color)
    values = [value for row in activations.values for value in row if math.isfinite(value)]
    low, high = min([0.0, *values]), max([1e-9, *values])
    on_path = set()
    if activations.match:
        on_path = {(step.position, step.reaches) for step in activations.match.steps}
    widths = [max(3, len(token)) for token in activations.tokens]
    pairs = zip(activations.tokens, widths, strict=True)
    lines = [paint(f"Pattern {activations.pattern}", "strong")]
    lines.append(" " * 7 + " ".join(token.ljust(width) for token, width in pairs))
    for state in range(activations.num_states):
        name = "START" if state == 0 else "END" if state == activations.num_states - 1 else str(state)
        cells = []
        for position, (row, width) in enumerate(zip(activations.values, widths, strict=True)):
            value = row[state]
            full = (value - low) / (high - low) if math.isfinite(value) else 0.0
            block = _BLOCKS[min(4, math.ceil(4 * full - 0.05))]
            cell = f"[{block}]" if (position, state) in on_path else f" {block} "
            cells.append(cell.ljust(width))
        lines.append(f"{name:>5}  " + " ".join(cells).rstrip())
    return "\n".join(lines)
