"""The page of a whole model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sopa_plugin.interpret.render.cards import EFFECT, LEGEND, card_grid, verdict
from sopa_plugin.interpret.render.markup import REPLACED, clean, percent, side, signed, tag
from sopa_plugin.interpret.render.spans import (
    LEGEND as SPANS_LEGEND,
)
from sopa_plugin.interpret.render.spans import contributions_html, spans_html, verdict_html

if TYPE_CHECKING:
    from sopa_plugin.interpret.documents import DocumentExplanation
    from sopa_plugin.interpret.patterns import PatternReading
    from sopa_plugin.interpret.report import ModelReport

FAITHFUL = (
    "Comprehensiveness: how much the probability of the predicted label falls when the phrases "
    "that speak for it are dropped (higher is better). Sufficiency: how much it falls when they "
    "alone are kept (lower is better). Measured on {documents} documents, beside phrases of the "
    "same lengths at random places."
)


def report_html(report: ModelReport) -> str:
    """All of it: figures, patterns, documents."""
    parts = [
        tag("h1", clean(report.name)),
        _tiles(report),
        tag("h2", "What is confused"),
        _confusion(report),
        tag("h2", "How faithful the explanations are"),
        _faithfulness(report),
        tag("h2", f"{len(report.patterns)} patterns, the strongest effect first"),
        _about_patterns(report),
        _overview(report.patterns),
        tag("h2", "Pattern by pattern"),
        card_grid(report.patterns),
        *_documents("Surely wrong", report.wrong, report),
        *_documents("Least sure", report.unsure, report),
        *_documents("Surely right", report.right, report),
    ]
    return "".join(parts)


def _tiles(report: ModelReport) -> str:
    figures = [
        ("accuracy", f"{100 * report.metrics['accuracy']:.1f} %"),
        ("macro F1", f"{report.metrics['macro_f1']:.3f}"),
        ("loss", f"{report.metrics['loss']:.3f}"),
        ("documents", f"{int(report.metrics['examples']):,}"),
        ("patterns", str(len(report.patterns))),
    ]
    tiles = [
        tag("div", tag("b", figure), tag("span", name, class_="muted small"), class_="card tile")
        for name, figure in figures
    ]
    return tag("div", *tiles, class_="tiles")


def _confusion(report: ModelReport) -> str:
    head = tag("th", "labelled ↓ predicted →")
    head += "".join(tag("th", clean(label), scope="col") for label in report.labels)
    rows = []
    for label, counts in zip(report.labels, report.confusion, strict=True):
        cells = [
            tag("td", tag("b", f"{count:,}") if label == other else f"{count:,}", class_="num")
            for other, count in zip(report.labels, counts, strict=True)
        ]
        rows.append(tag("tr", tag("th", clean(label), scope="row"), *cells))
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", *rows), class_="rows")
    return tag("div", table, class_="scroll")


def _faithfulness(report: ModelReport) -> str:
    found = report.faithfulness
    head = "".join(tag("th", name) for name in ("", "named phrases", "random phrases"))
    pairs = [
        ("comprehensiveness", found.comprehensiveness, found.random_comprehensiveness),
        ("sufficiency", found.sufficiency, found.random_sufficiency),
    ]
    rows = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", tag("b", signed(named)), class_="num"),
            tag("td", signed(random), class_="num"),
        )
        for name, named, random in pairs
    ]
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", *rows), class_="rows")
    note = tag("p", FAITHFUL.format(documents=found.documents), class_="muted small")
    return tag("div", table, class_="scroll") + note


def _about_patterns(report: ModelReport) -> str:
    effect = EFFECT.format(replacement=REPLACED[report.patterns.replacement])
    read = f"Read over {report.patterns.documents:,} documents. {effect} {LEGEND}"
    return tag("p", clean(read), class_="muted small")


def _overview(patterns: Sequence[PatternReading]) -> str:
    """A line a pattern, linked to its card."""
    largest = max((pattern.strength for pattern in patterns), default=0.0) or 1.0
    rows = []
    for pattern in patterns:
        words, class_ = verdict(pattern)
        width = f"width:{100 * max(pattern.strength, 0.0) / largest:.0f}%"
        bar = tag("span", class_=f"bar {side(pattern.direction)}", style=width)
        half = tag("span", bar, class_="right" if pattern.direction > 0 else "left")
        best = pattern.matches[0].phrase if pattern.matches else "no match"
        rows.append(
            tag(
                "tr",
                tag("td", tag("a", clean(pattern.name), href=f"#pattern-{pattern.name}")),
                tag("td", half, class_="axis"),
                tag("td", clean(words), class_=class_),
                tag("td", percent(pattern.fires), class_="num"),
                tag("td", tag("bdi", clean(best))),
            )
        )
    names = ("pattern", "effect", "speaks for", "fires in", "best phrase")
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="rows small")
    return tag("div", table, class_="scroll")


def _documents(
    heading: str, documents: Sequence[DocumentExplanation], report: ModelReport
) -> list[str]:
    if not documents:
        return []
    legend = SPANS_LEGEND.format(
        target="the predicted label", replacement=REPLACED[report.patterns.replacement]
    )
    cards = [
        tag(
            "section",
            verdict_html(document),
            tag(
                "div",
                tag("div", spans_html(document)),
                tag("div", contributions_html(document), class_="scroll"),
                class_="reading",
            ),
            class_="card document",
        )
        for document in documents
    ]
    return [tag("h2", heading), tag("p", clean(legend), class_="muted small"), *cards]
