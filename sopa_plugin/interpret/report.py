"""A whole model read: figures, patterns by effect, documents right, wrong and undecided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.interpret.documents import DocumentExplanation
from sopa_plugin.interpret.explainer import Explainer
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.leave_one_out import faithfulness, random_spans
from sopa_plugin.interpret.markup import paint, signed, visible
from sopa_plugin.interpret.match import Concordance
from sopa_plugin.interpret.patterns import PatternsReading
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.training.metrics import classification_metrics

CHECKED = 100
"""Documents over which faithfulness is measured, spread evenly over the set."""


@dataclass(frozen=True)
class Faithfulness:
    """Mean comprehensiveness and sufficiency of the named phrases, and of random ones as long."""

    documents: int
    comprehensiveness: float
    sufficiency: float
    random_comprehensiveness: float
    random_sufficiency: float


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
        wrong: documents most surely given a wrong label.
        unsure: documents of which the model is least sure.
        right: for each label, documents that most surely and rightly got it.
    """

    template: ClassVar[str] = "report.html"

    name: str
    labels: tuple[str, ...]
    metrics: dict[str, float]
    confusion: tuple[tuple[int, ...], ...]
    patterns: PatternsReading
    where: Mapping[str, Concordance]
    faithfulness: Faithfulness
    wrong: tuple[DocumentExplanation, ...]
    unsure: tuple[DocumentExplanation, ...]
    right: tuple[DocumentExplanation, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "labels": list(self.labels),
            "metrics": self.metrics,
            "confusion": [list(row) for row in self.confusion],
            "faithfulness": vars(self.faithfulness),
            **self.patterns.to_dict(),
            **{
                kind: [each.to_dict() for each in getattr(self, kind)]
                for kind in ("wrong", "unsure", "right")
            },
        }

    @property
    def title(self) -> str:
        return f"Report on {self.name}"

    @property
    def tiles(self) -> dict[str, str]:
        """The figures that stand first, in words."""
        return {
            "accuracy": f"{100 * self.metrics['accuracy']:.1f} %",
            "macro F1": f"{self.metrics['macro_f1']:.3f}",
            "loss": f"{self.metrics['loss']:.3f}",
            "documents": f"{int(self.metrics['examples']):,}",
            "patterns": str(len(self.patterns)),
        }

    @property
    def examples(self) -> dict[str, tuple[DocumentExplanation, ...]]:
        """The documents by the headings that they stand under."""
        return {"Surely wrong": self.wrong, "Least sure": self.unsure, "Surely right": self.right}

    def to_text(self, color: bool = False) -> str:
        """Figures, confusion, faithfulness, patterns, documents."""
        metrics, found = self.metrics, self.faithfulness
        labels = [visible(label) for label in self.labels]
        lines = [
            paint(visible(self.name), "strong", color),
            f"accuracy {metrics['accuracy']:.4f}  macro F1 {metrics['macro_f1']:.4f}  "
            f"loss {metrics['loss']:.4f}  on {int(metrics['examples']):,} documents",
            "",
            "labelled / predicted  " + "  ".join(f"{label:>10}" for label in labels),
        ]
        for label, counts in zip(labels, self.confusion, strict=True):
            lines.append(f"{label:>20}  " + "  ".join(f"{count:>10,}" for count in counts))
        lines += [
            "",
            f"faithfulness over {found.documents} documents (random phrases in brackets): "
            f"comprehensiveness {signed(found.comprehensiveness)} "
            f"({signed(found.random_comprehensiveness)}), sufficiency {signed(found.sufficiency)} "
            f"({signed(found.random_sufficiency)})",
            "",
            self.patterns.to_text(color),
        ]
        for heading, documents in self.examples.items():
            lines += ["", paint(heading, "strong", color)]
            lines += [f"\n{document.to_text(color)}" for document in documents]
        return "\n".join(lines)


def read_model(
    explainer: Explainer,
    name: str,
    texts: Sequence[str],
    gold: Sequence[int],
    pattern_texts: Sequence[str],
    k: int = 5,
    examples: int = 5,
    shown: int = 10,
) -> ModelReport:
    """The report of a classifier.

    Arguments:
        explainer: of a `ModelSubject`.
        name: of the model.
        texts: documents to classify.
        gold: their labels' numbers.
        pattern_texts: documents over which patterns are read.
        k: phrases of each pattern.
        examples: documents wrong and unsure, at most so many of each, and as many right, shared
            out over the labels, at least one of each.
        shown: contributions drawn of each document.
    """
    assert isinstance(explainer.subject, ModelSubject)
    patterns = explainer.patterns(pattern_texts, k, labelled=(texts, gold))
    labels = explainer.subject.labels
    log_probabilities = explainer.subject.model.log_probabilities(texts)
    true, predicted = np.array(gold), log_probabilities.argmax(axis=1)
    confusion = np.zeros((len(labels), len(labels)), dtype=int)
    np.add.at(confusion, (true, predicted), 1)
    sure = log_probabilities.max(axis=1)

    def explain(numbers: NDArray[np.int64]) -> tuple[DocumentExplanation, ...]:
        return tuple(
            explainer.document(texts[n], gold=labels[true[n]], shown=shown, number=int(n))
            for n in numbers[:examples].tolist()
        )

    surest = np.argsort(-sure, kind="stable")
    right = [
        surest[(true == label)[surest] & (predicted == label)[surest]]
        for label in range(len(labels))
    ]
    per_label = max(1, examples // len(labels))
    return ModelReport(
        name,
        labels,
        classification_metrics(log_probabilities, true),
        tuple(tuple(row) for row in confusion.tolist()),
        patterns,
        explainer.where(texts, gold, {each.name: each.threshold for each in patterns}),
        _faithfulness(explainer, texts, shown),
        explain(surest[(true != predicted)[surest]]),
        explain(surest[::-1]),
        tuple(each for numbers in right for each in explain(numbers[:per_label])),
    )


def _faithfulness(explainer: Explainer, texts: Sequence[str], shown: int) -> Faithfulness:
    """Measured on documents spread evenly over the set."""
    subject, random = explainer.subject, np.random.default_rng(0)
    figures = []
    chosen = np.unique(np.linspace(0, len(texts) - 1, min(CHECKED, len(texts))).astype(int))
    for number in chosen.tolist():
        found = explainer.document(texts[number], shown=shown)
        ids = subject.read([texts[number]]).ids
        label = subject.labels.index(found.target)
        spans = random_spans(found.phrases, len(ids), random)
        figures.append(
            (
                found.comprehensiveness,
                found.sufficiency,
                *faithfulness(subject, ids, spans, label),
            )
        )
    return Faithfulness(len(figures), *np.mean(figures, axis=0).tolist())
