"""The k best phrases against exhaustive enumeration of every match of every document."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from sopa_plugin.data.ngrams import NewWords
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.matching import ArcScores, TopMatches
from sopa_plugin.wfsa import k_best_matches

OPTIONS: list[dict[str, Any]] = [
    {},
    {"epsilons": False, "self_loops": "none", "semiring": "max_sum"},
    {"boundary_tokens": True},
    {"boundary_tokens": "marked"},
    {"empty_matches": True},
    {"semiring": "boolean"},
]
Ranked = list[tuple[float, int, int, tuple[str, ...], int]]


def enumerate_all(explainer: Explainer, documents: Sequence[Sequence[str]]) -> list[Ranked]:
    """Every phrase of each pattern: score, document, end, arcs taken, how often it occurs."""
    subject = explainer.subject
    scored = ArcScores.of(subject, subject.read(documents))
    exact, width = k_best_matches(*scored.path_operands, k=999), scored.width
    padded = [["<"] * width + list(words) + [">"] * width for words in documents]
    result = []
    for pattern in range(len(subject.names)):
        phrases: dict[tuple[str, ...], list[tuple[float, int, int]]] = {}
        for document, patterns in enumerate(exact):
            for match in patterns[pattern]:
                if match.end:
                    phrase = tuple(padded[document][match.start : match.end])
                    phrases.setdefault(phrase, []).append((-match.score, document, match.end))
        ranked = [(*min(places), phrase, len(places)) for phrase, places in phrases.items()]
        result.append(sorted(ranked))
    return result


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("k", "chunk"), [(1, 7), (4, 1), (4, 100), (60, 11)])
def test_equal_to_exhaustive_enumeration(
    options: dict[str, Any],
    k: int,
    chunk: int,
    make_explainer: Callable[..., Explainer],
    documents: list[list[str]],
) -> None:
    explainer = make_explainer(**options)
    subject = explainer.subject
    top, words = TopMatches(subject, k), NewWords(0)
    for start in range(0, len(documents), chunk):
        some = documents[start : start + chunk]
        top.add(some, ArcScores.of(subject, subject.read(some, words)))
    width = subject.encoder.boundary_width
    for found, expected in zip(top.matches(), enumerate_all(explainer, documents), strict=True):
        assert len(found) == min(k, len(expected))
        for match, (score, document, _, phrase, count) in zip(found, expected, strict=False):
            value = subject.encoder.options.algebra.to_score(
                torch.tensor(-score, dtype=torch.float64)
            )
            assert match.score == pytest.approx(float(value), rel=1e-5)
            assert (match.document, match.count) == (document, count)
            if not width:
                assert match.tokens == phrase
                assert documents[document][match.start : match.end] == list(phrase)


def test_repeats_fold_and_ties_go_to_the_first(make_explainer: Callable[..., Explainer]) -> None:
    explainer = make_explainer(patterns={2: 1}, self_loops="none", epsilons=False)
    documents = [["bad"], ["good", "good"], ["good"], ["bad"]]
    (matches,) = (pattern.matches for pattern in explainer.patterns(documents, k=5, words=0))
    assert {match.phrase: (match.document, match.end, match.count) for match in matches} == {
        "good": (1, 1, 3),
        "bad": (0, 1, 2),
    }


def test_memory_holds_k_phrases_whatever_is_read(
    make_explainer: Callable[..., Explainer],
) -> None:
    subject = make_explainer().subject
    top = TopMatches(subject, 3)
    random, words = np.random.default_rng(0), NewWords(0)
    sizes = []
    for _ in range(30):
        some = [
            [str(w) for w in random.choice(["good", "bad", "a", ","], size=8)] for _ in range(20)
        ]
        top.add(some, ArcScores.of(subject, subject.read(some, words)))
        sizes.append(sum(len(table) for table in top._tables))
    assert set(sizes[1:]) == {3 * len(subject.names)}


def test_no_document_and_empty_documents(make_explainer: Callable[..., Explainer]) -> None:
    explainer = make_explainer()
    for documents in ([], [[]], [[], []]):
        reading = explainer.patterns(documents)
        assert all(pattern.matches == () for pattern in reading)
        assert all(pattern.fires == 0 for pattern in reading)
        read = json.loads(reading.to_json())["patterns"]
        assert all(each["best"] is each["mean"] is None for each in read)
        assert "no match" in str(reading)
        assert "no match" in reading.to_html()
        assert reading.to_svg()


def test_contextual_vectors_keep_the_best_of_a_phrase(
    make_explainer: Callable[..., Explainer], vectors: dict[str, np.ndarray]
) -> None:
    def embed(words: Sequence[str]) -> np.ndarray:
        return np.array([vectors[word] * (1 + place) for place, word in enumerate(words)])

    encoder = make_explainer(patterns={2: 1}, self_loops="none", epsilons=False).subject.encoder
    explainer = Explainer.from_encoder(encoder, embed)
    documents = [["good", "bad", "good"], ["bad", "good", "good", "bad"]]
    (reading,) = explainer.patterns(documents, k=2)
    for match in reading.matches:
        scores = [
            explainer.activations(words, "2-1").values[place][1]
            for words in documents
            for place, word in enumerate(words)
            if word == match.phrase
        ]
        assert match.score == pytest.approx(max(scores), rel=1e-5)
