"""Whether the phrases that an explanation names are what the prediction rests on.

DeYoung et al. 2020 ("ERASER"), over the words of a set of spans.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.interpret.matching import arc_scores, scores_of_documents
from sopa_plugin.interpret.subject import Subject

Spans = Sequence[tuple[int, int]]


def comprehensiveness(subject: Subject, ids: NDArray[np.int64], spans: Spans, label: int) -> float:
    """By how much the probability of `label` falls when the words of `spans` are dropped."""
    if not spans:
        return 0.0
    return _fall(subject, ids, ~_covered(ids, spans), label)


def sufficiency(subject: Subject, ids: NDArray[np.int64], spans: Spans, label: int) -> float:
    """By how much it falls when they alone are kept."""
    return _fall(subject, ids, _covered(ids, spans), label)


def random_spans(spans: Spans, length: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Spans as long as the given ones at random places: what a faithful explanation must beat."""
    found = []
    for start, end in spans:
        begin = int(random.integers(0, length - (end - start) + 1))
        found.append((begin, begin + end - start))
    return found


def _covered(ids: NDArray[np.int64], spans: Spans) -> NDArray[np.bool_]:
    covered = np.zeros(len(ids), dtype=bool)
    for start, end in spans:
        covered[start:end] = True
    return covered


def _fall(subject: Subject, ids: NDArray[np.int64], kept: NDArray[np.bool_], label: int) -> float:
    kept = kept | subject.is_special(ids)
    encoded = subject.embed([ids, ids[kept]])
    scores = scores_of_documents(subject, encoded, arc_scores(subject, encoded))
    logits = subject.classify(encoded, scores)
    probabilities: list[float] = logits.double().softmax(dim=-1)[:, label].tolist()
    return probabilities[0] - probabilities[1]
