"""Why one document got its label: what each pattern contributed and which words it matched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.match import Match, finite
from sopa_plugin.interpret.render.spans import document_html
from sopa_plugin.interpret.render.spans_svg import document_svg
from sopa_plugin.interpret.render.terminal import document_text


@dataclass(frozen=True)
class Contribution:
    """What one pattern contributed to the classes of one document.

    Arguments:
        pattern: the pattern's name.
        score: the pattern's document score; not finite where it does not match.
        match: its best match in the document, None where it does not match.
        effect: by label, the label's log-odds minus those with the pattern's score replaced.
    """

    pattern: str
    score: float
    match: Match | None
    effect: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The contribution as plain values."""
        return {
            "pattern": self.pattern,
            "score": finite(self.score),
            "effect": self.effect,
            "match": self.match.to_dict() if self.match else None,
        }


def spans_for(contributions: Sequence[Contribution], target: str) -> tuple[tuple[int, int], ...]:
    """Where the phrases are of those `contributions` that speak for `target`: `start, end`."""
    return tuple(
        (item.match.start, item.match.end)
        for item in contributions
        if item.match and item.effect[target] > 0
    )


@dataclass(frozen=True, repr=False)
class DocumentExplanation(Explanation):
    """One document explained by leave-one-out (paper, section 7, "Interpreting a document").

    Arguments:
        tokens: the document's tokens, as the patterns read them.
        probabilities: by label, the model's probability.
        target: the label that is explained; the predicted one unless asked otherwise.
        gold: the document's own label where it is known.
        contributions: every pattern's, the largest effect on `target` first, for or against.
        shown_patterns: how many of the largest are drawn and checked for faithfulness.
        replacement: what a contribution compares with: "no_match", "zero" or "mean".
        comprehensiveness: fall of the target's probability when the words of the shown phrases
            that speak for it are dropped; high where they mattered.
        sufficiency: fall of the same when those words alone are kept; low where they suffice.
        document: the document's number in its data set.
    """

    title: ClassVar[str] = "Document"

    tokens: tuple[str, ...]
    probabilities: dict[str, float]
    target: str
    gold: str | None
    contributions: tuple[Contribution, ...]
    shown_patterns: int
    replacement: str
    comprehensiveness: float
    sufficiency: float
    document: int = 0

    @property
    def predicted(self) -> str:
        """The label of highest probability."""
        return max(self.probabilities, key=lambda label: self.probabilities[label])

    @property
    def shown(self) -> tuple[Contribution, ...]:
        """The largest contributions other than none at all."""
        largest = self.contributions[: self.shown_patterns]
        return tuple(item for item in largest if item.effect[self.target] != 0)

    @property
    def phrases(self) -> tuple[tuple[int, int], ...]:
        """Where the shown phrases are that speak for the target: `start, end`."""
        return spans_for(self.shown, self.target)

    def to_dict(self) -> dict[str, Any]:
        return {
            "document": self.document,
            "tokens": list(self.tokens),
            "probabilities": self.probabilities,
            "predicted": self.predicted,
            "target": self.target,
            "gold": self.gold,
            "replacement": self.replacement,
            "comprehensiveness": self.comprehensiveness,
            "sufficiency": self.sufficiency,
            "contributions": [item.to_dict() for item in self.contributions],
        }

    def to_text(self, color: bool = False) -> str:
        return document_text(self, color)

    def html_body(self) -> str:
        return document_html(self)

    def to_svg(self) -> str:
        """The document with its matched spans, coloured by contribution."""
        return document_svg(self)


@dataclass(frozen=True, repr=False)
class DocumentExplanations(Explanation):
    """Several documents, one after another."""

    title: ClassVar[str] = "Documents"

    documents: tuple[DocumentExplanation, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"documents": [each.to_dict() for each in self.documents]}

    def to_text(self, color: bool = False) -> str:
        return "\n\n".join(each.to_text(color) for each in self.documents)

    def html_body(self) -> str:
        return "<hr/>".join(each.html_body() for each in self.documents)
