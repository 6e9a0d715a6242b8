"""Two models side by side on the same documents: labels that flip, and patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from sopa_plugin.errors import UserError, counted, visible
from sopa_plugin.files import plain
from sopa_plugin.interpret.documents import DocumentExplanation
from sopa_plugin.interpret.editing import Edits, edits_of
from sopa_plugin.interpret.explainer import Explainer
from sopa_plugin.interpret.explanation import Explanation, Told
from sopa_plugin.interpret.markup import (
    SHOWN,
    aligned,
    columns,
    fold,
    number,
    paint,
    percent,
    side,
    signed,
)
from sopa_plugin.interpret.patterns import PatternReading
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.training.metrics import split_metrics

PHRASES = 5
"""Contributions to a document's label of which the phrases are told, at most."""

Way = tuple[str | None, str, str]
"""A document's own label, None where it has none, and those that the two models give it."""


@dataclass(frozen=True)
class Flip(Told):
    """A document to which two models give different labels, with why each gives its own."""

    text: str
    before: DocumentExplanation
    after: DocumentExplanation

    @property
    def way(self) -> Way:
        """The labels."""
        return self.before.gold, self.before.predicted, self.after.predicted

    def to_dict(self) -> dict[str, Any]:
        gold, before, after = self.way
        sides = {"before": self.before, "after": self.after}
        found: dict[str, Any] = plain(
            {
                "document": self.before.document,
                "text": self.text,
                "gold": gold,
                "before": before,
                "after": after,
                "probabilities": {name: each.probabilities for name, each in sides.items()},
                "phrases": {name: each.reasons for name, each in sides.items()},
            }
        )
        return found


@dataclass(frozen=True)
class PatternPair(Told):
    """A pattern of one model and that of the other which has its name and its length.

    Arguments:
        before, after: the two.
        agreement: the correlation of their numbers in the document vectors that the heads see, over
            all documents; None where one is constant, as one that is held.
        edits: what was done to each since it was trained, if anything.
    """

    told = "pattern", "agreement", "edits", "before", "after"

    before: PatternReading
    after: PatternReading
    agreement: float | None
    edits: tuple[float | str | None, float | str | None] = (None, None)

    @property
    def pattern(self) -> str:
        """The name of both."""
        return self.before.name

    @property
    def change(self) -> float:
        """The largest change of the effect on a class."""
        return max(
            abs(self.after.effect[label] - effect) for label, effect in self.before.effect.items()
        )

    @property
    def differs(self) -> bool:
        """Whether other edits were made, or that, agreement or how often it fires shows."""
        if self.edits[0] != self.edits[1]:
            return True
        fires = abs(self.after.fires - self.before.fires)
        apart = 0.0 if self.agreement is None else 1 - self.agreement
        return max(self.change, 100 * fires, apart) >= 0.005  # in two decimals

    @property
    def facts(self) -> tuple[str, ...]:
        """Agreement, effects, how often they fire and best phrases, in words."""
        sides = self.before, self.after
        found = [
            [each.verdict for each in sides],
            [
                f"held at {number(edit)}" if _holds(edit) else percent(each.fires)
                for each, edit in zip(sides, self.edits, strict=True)
            ],
            [each.matches[0].phrase if each.matches else "no match" for each in sides],
        ]
        agreement = "–" if self.agreement is None else signed(self.agreement)
        return agreement, *(a if a == b else f"{a} → {b}" for a, b in found)


@dataclass(frozen=True, repr=False)
class Comparison(Explanation):
    """What two models make of the same documents.

    Arguments:
        names: of the models.
        split: of which set the documents are; figures are called after it (`dev_accuracy`).
        before, after: figures of the one and the other; without labels, how many documents.
        changed: the documents whose label differs.
        patterns: those of the same name and length, those first whose effects differ most.
        alone: names of the patterns that only the one or only the other has.
        edits: where the second model is the first one edited, by pattern what was done.
        folder: where that was saved.
    """

    template = "comparison.html"
    told = "names", "split", "before", "after", "changed", "patterns", "alone"

    names: tuple[str, str]
    split: str
    before: dict[str, Any]
    after: dict[str, Any]
    changed: tuple[Flip, ...]
    patterns: tuple[PatternPair, ...]
    alone: tuple[tuple[str, ...], tuple[str, ...]]
    edits: Edits = field(default_factory=dict)
    folder: str | None = None

    def to_dict(self) -> dict[str, Any]:
        edited = {"edits": self.edits, "warning": self.warning, "folder": self.folder}
        return super().to_dict() | (edited if self.edits else {})

    @property
    def title(self) -> str:
        return f"{self.names[0]} → {self.names[1]}"

    @property
    def figures(self) -> dict[str, tuple[float, float]]:
        """Accuracy, macro-F1 and loss of both, by name."""
        keys = (f"{self.split}_{name}" for name in ("accuracy", "macro_f1", "loss"))
        return {
            key.replace("_", " "): (self.before[key], self.after[key])
            for key in keys
            if key in self.before
        }

    @property
    def flips(self) -> list[Flip]:
        """The documents whose label differs, those first to which `after` gives a wrong one."""
        return sorted(self.changed, key=lambda flip: flip.way[2] == flip.way[0])

    @property
    def directions(self) -> list[tuple[Way, int]]:
        """How often labels differ in which way, the most frequent first."""
        return Counter(flip.way for flip in self.changed).most_common()

    @property
    def about_flips(self) -> str:
        """How many labels differ, and how many of them are right."""
        of = f"{len(self.changed):,} of {self.before[f'{self.split}_examples']:,}"
        right = [sum(flip.way[each] == flip.way[0] for flip in self.changed) for each in (2, 1)]
        becomes, was = "become" + "s" * (right[0] == 1), "was" if right[1] == 1 else "were"
        told = f": {right[0]:,} {becomes} right, {right[1]:,} {was} right before"
        told = told if self.changed and self.figures else ""
        return f"another label for {of} {self.split} documents{told}"

    @property
    def differing(self) -> tuple[PatternPair, ...]:
        """The pairs of patterns that differ."""
        return tuple(pair for pair in self.patterns if pair.differs)

    @property
    def about_pairs(self) -> str:
        """How many patterns correspond, and how many of these differ."""
        every, some = len(self.patterns), len(self.differing)
        told = f"{counted(every, 'pattern')} correspond{'s' * (every == 1)} by name and length"
        told += f", {some} of them differ{'s' * (some == 1)}"
        for name, alone in zip(self.names, self.alone, strict=True):
            told += f"; {name} alone has {len(alone)}" if alone else ""
        return told

    @property
    def warning(self) -> str:
        """Said where the dev set's accuracy falls by more than a point."""
        before, after = self.figures.get("dev accuracy", (0.0, 0.0))
        points = 100 * (after - before)
        if not self.edits or round(points, 6) >= -1:
            return ""
        needed = "" if self._is_rewritten else ": these patterns are needed"
        if "no_match" in self.edits.values():
            needed = "; no match is far from any document that occurs (--replacement mean is not)"
        return f"WARNING: dev accuracy falls by {-points:.1f} points{needed}"

    @property
    def done(self) -> list[str]:
        """What was done, in words."""
        told = {"no_match": "matches nothing"}
        return [
            f"{name} {told.get(edit, edit) if isinstance(edit, str) else f'held at {edit:g}'}"
            for name, edit in self.edits.items()
        ]

    def painted(self) -> str:
        lines = [paint(self.warning, "against")] * bool(self.warning)
        if self.edits:
            edited = counted(len(self.edits), "pattern")
            lines.insert(0, fold(visible(f"{edited} edited: {', '.join(self.done)}"), 2))
        lines.append(paint(visible(self.title), "strong"))
        for name, (one, two) in self.figures.items():
            lines.append(f"{name:>14}  {one:.4f} -> {two:.4f}  ({signed(two - one, 4)})")
        lines.append(self.about_flips)
        for (gold, before, after), count in self.directions:
            way = f"{visible(before)} -> {visible(after)}"
            way += f", labelled {visible(gold)}" if gold else ""
            lines.append(f"  {count:>5,}  {paint(way, _look(after, gold))}")
        for flip in self.flips:
            gold, before, after = flip.way
            way = f"{visible(before)} -> {visible(after)}"
            way = f"{'right' if after == gold else 'wrong'}: {way}" if gold else way
            own = "" if gold in (None, before, after) else f" (labelled {visible(gold or '')})"
            way = paint(way, _look(after, gold))
            lines.append(fold(f"  {way}{own}  {visible(flip.text)}", 4))
            for each in (flip.before, flip.after):
                told = f"{each.predicted} {percent(each.probabilities[each.predicted])}: "
                behind = [
                    f"{item.match.phrase} ({item.pattern})" for item in each.reasons if item.match
                ]
                told += " · ".join(behind) or "no phrase speaks for it"
                lines.append(paint(fold(f"      {visible(told)}", 8), "muted"))
        lines += ["", visible(self.about_pairs)]
        rows = [(pair.pattern, *map(visible, pair.facts)) for pair in self.differing[:SHOWN]]
        if rows:
            rows.insert(0, ("pattern", "agreement", "speaks for", "fires in", "best phrase"))
            indent = 4 + max(columns(name) for name, *_ in rows)
            for line, (*_, phrase) in zip(aligned([row[:-1] for row in rows]), rows, strict=True):
                lines += [line, fold(" " * indent + phrase, indent + 2)]
            if (left_out := len(self.differing) - SHOWN) > 0:
                lines.append(f"  … and {left_out} that differ{'s' * (left_out == 1)} less")
        lines += [f"saved in {self.folder}"] * (self.folder is not None)
        return "\n".join(lines)

    def card(self) -> str:
        """The edited model's card."""
        edits, original = "\n".join(f"- {each}" for each in self.done), self.names[0]
        what = "what these patterns match changes no prediction"
        what = "patterns were edited by hand" if self._is_rewritten else what
        changed = f"{self.about_flips[:1].upper()}{self.about_flips[1:]}.\n"
        for before, after in [*self.figures.values()][:1]:
            points = signed(100 * (after - before))
            changed = f"Dev accuracy: {before:.4f} before, {after:.4f} after ({points} points).\n"
        return (
            f"# {original}, edited\n\nA copy of `{original}` in which {what}:\n\n{edits}\n\n"
            f"{changed}"
        )

    @property
    def _is_rewritten(self) -> bool:
        """Whether patterns were added or their arcs changed."""
        return any(isinstance(each, str) and each != "no_match" for each in self.edits.values())


def _holds(edit: float | str | None) -> TypeGuard[float]:
    """Whether an edit holds a pattern at a number, whatever its documents say."""
    return isinstance(edit, int | float)


def _look(given: str, gold: str | None) -> str:
    """How a label given to a document is painted: as right, as wrong, or as neither."""
    return "muted" if gold is None else side((given == gold) - 0.5)


def compare(
    before: Explainer,
    after: Explainer,
    texts: Sequence[str],
    gold: Sequence[int],
    names: tuple[str, str],
    split: str = "dev",
) -> Comparison:
    """Two classifiers on the same documents, labelled all or none.

    Arguments:
        before, after: explainers of a `ModelSubject` each.
        texts: the documents.
        gold: the numbers of their labels, as `before` has them; -1 of those that have none.
        names: of the models.
        split: of which set the documents are.

    Raises `UserError` if the models have not the same labels.
    """
    labels, sides = before.subject.labels, (before, after)
    if set(labels) != set(after.subject.labels):
        other = ", ".join(after.subject.labels)
        raise UserError(
            f"{names[1]} has other labels ({other}) than {names[0]}: {', '.join(labels)}"
        )
    same = [after.subject.labels.index(label) for label in labels]
    found, vectors, done = [], [], []
    for each, order in zip(sides, (slice(None), same), strict=True):
        assert isinstance(each.subject, ModelSubject)
        model = each.subject.model
        done.append(edits_of(each.subject))
        found.append(model.log_probabilities(texts)[:, order])
        documents = model.document_vectors(model.encode_texts(texts)).double().cpu().numpy()
        vectors.append(documents[:, list(each.subject.columns)])
    differ = found[0].argmax(axis=1) != found[1].argmax(axis=1)
    numbers = np.flatnonzero(differ).tolist()
    some = [texts[n] for n in numbers]
    own = [labels[gold[n]] if gold[n] >= 0 else None for n in numbers]
    told = (each.documents(some, None, own, PHRASES, numbers) for each in sides)
    flips = [Flip(text, *both) for text, *both in zip(some, *told, strict=True)]
    readings = [{it.name: it for it in each.patterns(texts, k=1, words=0)} for each in sides]
    pairs = []
    for name, pattern in readings[0].items():
        twin = readings[1].get(name)
        if twin is not None and twin.num_states == pattern.num_states:
            scores = [
                each[:, explainer.subject.number(name)]
                for each, explainer in zip(vectors, sides, strict=True)
            ]
            edits = done[0].get(name), done[1].get(name)
            constant = any(map(_holds, edits)) or min(np.ptp(scores, axis=1)) == 0
            agreement = None if constant else float(np.corrcoef(*scores)[0, 1])
            pairs.append(PatternPair(pattern, twin, agreement, edits))
    pairs.sort(key=lambda pair: -pair.change)
    paired = {pair.before.name for pair in pairs}
    one, two = (tuple(name for name in each.subject.names if name not in paired) for each in sides)
    figures: list[dict[str, Any]] = [
        split_metrics(split, each, gold) if min(gold) >= 0 else {f"{split}_examples": len(texts)}
        for each in found
    ]
    return Comparison(names, split, figures[0], figures[1], tuple(flips), tuple(pairs), (one, two))
