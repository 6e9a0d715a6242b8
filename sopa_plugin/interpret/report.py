"""A whole model read: figures, patterns by effect, documents right, wrong and undecided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sopa_plugin.errors import visible
from sopa_plugin.interpret.documents import DocumentExplanation
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.faithfulness import Faithfulness
from sopa_plugin.interpret.markup import (
    Picture,
    class_keys,
    columns,
    padded,
    paint,
    render,
)
from sopa_plugin.interpret.match import Concordance
from sopa_plugin.interpret.patterns import PatternsReading
from sopa_plugin.interpret.rules import RulesReading

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 340.0, 230.0, 46.0, 52.0, 22.0, 40.0
"""Of a chart, and what lies around its plane."""


class Line(NamedTuple):
    """A line of a chart: what stands at its end, its points, the sizes of dots and what they say.

    `look` is empty or `dashed`.
    """

    name: str
    look: str
    points: list[tuple[float, float]]
    dots: Sequence[tuple[float, str]] = ()


def chart(lines: Sequence[Line], across: str, up: str, note: tuple[float, str] | None) -> Picture:
    """Lines over two axes, whose names are `across` and `up`; a note at a place of the first."""
    places = [place for line in lines for place, _ in line.points]
    values = [value for line in lines for _, value in line.points]
    left, low, whole = min(places), min(values), all(place.is_integer() for place in places)
    right, high = max(*places, left + 1e-9), max(*values, low + 1e-9)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value: float) -> float:
        return LEFT + wide * (value - left) / (right - left)

    def y(value: float) -> float:
        return TOP + tall * (high - value) / (high - low)

    drawn = [(line, [(x(a), y(b)) for a, b in line.points]) for line in lines]
    elements = render(
        "chart.svg",
        lines=drawn,
        box=(LEFT, TOP, wide, tall),
        x_ticks=[(x(each), each) for each in _ticks(left, right, whole)],
        y_ticks=[(y(each), each) for each in _ticks(low, high)],
        names=(across, up),
        note=note and (x(note[0]), note[1]),
    )
    return Picture(WIDTH, HEIGHT, elements)


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers from `low` to `high`, five steps apart at most; `whole` ones if asked."""
    size = 10.0 ** math.floor(math.log10(high - low))
    step = next(size * each for each in (0.2, 0.5, 1, 2) if high - low <= 5.001 * size * each)
    step = max(step, 1.0) if whole else step
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step + 1e-6) + 1)]


@dataclass(frozen=True, repr=False)
class ModelReport(Explanation):
    """What there is to know of a model at a glance.

    Arguments:
        name: of the model.
        labels: the classes.
        metrics: accuracy, macro_f1, loss and the number of examples.
        confusion: documents by true and predicted label, `[labels][labels]`.
        patterns: all patterns, the most useful first.
        where: the places where each fires, by name.
        faithfulness: of the explanations of the predicted labels.
        errors: all documents given a wrong label, the surest first, with the contributions shown.
        wrong: the first of these with all contributions.
        unsure: documents of which the model is least sure.
        right: for each label, documents that most surely and rightly got it.
        bins: documents by the probability of their label (see `calibration`).
        read: what the documents are.
        losses: of the train and the dev set, epoch by epoch; none where they are not known.
        best_epoch: of these the one whose model it is.
        rules: what training made of them, where there are some.
    """

    template = "report.html"
    told = "labels", "metrics", "confusion", "faithfulness", "wrong", "unsure", "right"

    name: str
    labels: tuple[str, ...]
    metrics: dict[str, float]
    confusion: tuple[tuple[int, ...], ...]
    patterns: PatternsReading
    where: Mapping[str, Concordance]
    faithfulness: Faithfulness
    errors: tuple[DocumentExplanation, ...]
    wrong: tuple[DocumentExplanation, ...]
    unsure: tuple[DocumentExplanation, ...]
    right: tuple[DocumentExplanation, ...]
    bins: tuple[tuple[float, float, float], ...]
    read: str = "documents"
    losses: tuple[tuple[float, float], ...] = ()
    best_epoch: int | None = None
    rules: RulesReading | None = None

    def to_dict(self) -> dict[str, Any]:
        names = "documents", "probability", "right"
        bins = [dict(zip(names, each, strict=True)) for each in self.bins]
        errors = [
            {
                "document": each.document,
                "gold": each.gold,
                "predicted": each.predicted,
                "probability": each.probabilities[each.predicted],
                "phrases": {i.pattern: i.match.phrase for i in each.shown if i.match},
            }
            for each in self.errors
        ]
        found = {"model": self.name, **super().to_dict(), "calibration": bins, "errors": errors}
        rules = self.rules and self.rules.to_dict()["rules"]
        return {**found, **self.patterns.to_dict(), "rules": rules}

    @property
    def title(self) -> str:
        return f"Report on {self.name}"

    @property
    def confused(self) -> dict[str, dict[str, int]]:
        """The documents by label and label given, without labels that no document has or gets."""
        counts = zip(self.labels, zip(*self.confusion, strict=True), self.confusion, strict=True)
        met = {label for label, given, own in counts if any((*given, *own))}
        return {
            label: {
                each: count for each, count in zip(self.labels, row, strict=True) if each in met
            }
            for label, row in zip(self.labels, self.confusion, strict=True)
            if label in met
        }

    @property
    def training_curve(self) -> Picture | None:
        """Loss by epoch, where it is known of several."""
        sets = [
            [(float(epoch), loss) for epoch, loss in enumerate(losses) if math.isfinite(loss)]
            for losses in zip(*self.losses, strict=True)
        ]
        if not all(len(points) > 1 for points in sets) or not sets:
            return None
        lines = [Line("train", "dashed", sets[0]), Line("dev", "", sets[1])]
        kept = self.best_epoch
        note = None if kept is None else (float(kept), f"kept: epoch {kept}")
        return chart(lines, "epoch", "loss", note)

    @property
    def calibration_curve(self) -> Picture:
        """The share of right labels by their probability: a dot a bin, larger with more in it."""
        bins = [(count, p / count, right / count) for count, p, right in self.bins if count]
        most = max(count for count, _, _ in bins)
        dots = [
            (
                1.5 + 5.5 * math.sqrt(count / most),
                f"{count:,.0f} documents: {100 * p:.0f} % sure, {100 * right:.0f} % right",
            )
            for count, p, right in bins
        ]
        found = [(100 * p, 100 * right) for _, p, right in bins]
        lowest = min(100.0 / len(self.labels), *found[0])
        lines = [Line("", "dashed", [(lowest, lowest), (100.0, 100.0)])]
        lines.append(Line("", "", found, dots))
        return chart(lines, "probability of the label, %", "right, %", None)

    @property
    def examples(self) -> dict[str, tuple[DocumentExplanation, ...]]:
        """The documents by the headings that they stand under."""
        return {"Surely wrong": self.wrong, "Least sure": self.unsure, "Surely right": self.right}

    def painted(self) -> str:
        """Figures, confusion, faithfulness, patterns, documents."""
        metrics = self.metrics
        keys = {visible(label): key.letter for label, key in class_keys(self.labels).items()}
        wide = max(21, *map(columns, keys))  # as the heading
        lines = [
            paint(visible(self.name), "strong"),
            f"accuracy {metrics['accuracy']:.4f}  macro F1 {metrics['macro_f1']:.4f}  "
            f"loss {metrics['loss']:.4f}  on {int(metrics['examples']):,} documents",
            "",
            padded("labelled / predicted", wide + 4) + "".join(f"{k:>7}" for k in keys.values()),
        ]
        for (label, letter), counts in zip(keys.items(), self.confusion, strict=True):
            told = "".join(f"{count:>7,}" for count in counts)
            lines.append(f"{padded(label, wide)} {letter:>2} {told}")
        for part in (self.faithfulness, self.patterns, self.rules):
            lines += ["", part.painted()] if part else []
        for heading, documents in self.examples.items():
            lines += ["", paint(heading, "strong")]
            lines += [f"\n{document.painted()}" for document in documents]
        return "\n".join(lines)
