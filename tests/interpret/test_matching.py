"""Alignments against the exact k best matches of `wfsa.paths`, and replayed to their scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.matching import ArcScores, spell
from sopa_plugin.wfsa import (
    Ends,
    Semiring,
    end_scores,
    first_tokens,
    k_best_matches,
    spell_out,
    trace,
)
from sopa_plugin.wfsa.semirings import SumProduct

OPTIONS: list[dict[str, Any]] = [
    {},
    {"epsilons": False},
    {"self_loops": "none"},
    {"self_loops": "shared"},
    {"final_epsilon": False},
    {"empty_matches": True},
    {"boundary_loops": True},
    {"boundary_tokens": True},
    {"boundary_tokens": "marked"},
    {"semiring": "max_sum"},
    {"semiring": "max_sum", "final_epsilon": False, "boundary_tokens": True},
    {"semiring": "boolean"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_match_is_aligned_as_the_exact_search_aligns_it(
    options: dict[str, Any],
    make_explainer: Callable[..., Explainer],
    documents: list[list[str]],
) -> None:
    subject = make_explainer(**options).subject
    scored = ArcScores.of(subject, subject.read(documents))
    layout, semiring, arcs = scored.path_operands
    exact, bounds = k_best_matches(layout, semiring, arcs, k=99), arcs.offsets.tolist()
    # A match that ends before the first token has no token at which it ends.
    expected = [
        (pattern, bounds[document] + match.end - 1, bounds[document] + match.start, match)
        for document, patterns in enumerate(exact)
        for pattern, matches in enumerate(patterns)
        for match in matches
        if match.end > 0
    ]
    assert len(expected) > 100
    *columns, wanted = zip(*expected, strict=True)
    numbers, tokens, starts = (np.array(column) for column in columns)
    found = end_scores(layout, semiring, arcs)
    steps, ends = found.steps.numpy(), Ends.at(found, arcs.offsets, tokens, numbers)
    assert trace(layout, arcs, steps, ends) == list(wanted)
    assert first_tokens(layout, steps, ends).tolist() == starts.tolist()
    best = [[next(iter(each), None) for each in patterns] for patterns in exact]
    assert spell_out(layout, arcs, scored.best_matches) == best


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_replay_to_exactly_the_score(
    options: dict[str, Any],
    make_explainer: Callable[..., Explainer],
    documents: list[list[str]],
) -> None:
    explainer = make_explainer(**options)
    combine = sum if options.get("semiring") == "max_sum" else math.prod
    found = [m for words in documents for m in explainer.matches(words).values() if m]
    assert len(found) > 50
    for match in found:
        assert combine(step.score for step in match.steps) == pytest.approx(match.score, rel=1e-5)
        assert match.steps[-1].reaches == match.num_states - 1
        assert match.steps[0].state == 0


def test_the_best_match_scores_what_the_encoder_scores(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer(output="score", output_scale=1.0, normalization="none")
    encoded = explainer.subject.read(documents)
    scores = explainer.subject.encoder.forward_packed(*explainer.subject.embed(encoded)).tolist()
    for words, row in zip(documents, scores, strict=True):
        found = explainer.matches(words).values()
        assert [match.score if match else 0.0 for match in found] == pytest.approx(row, abs=1e-6)


def test_sums_are_read_by_their_best_path(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    best = make_explainer(semiring="max_product", encoding="sigmoid", boundary_loops=True)
    for semiring, encoding, scale in (
        ("sum_product", "sigmoid", float),
        ("log", "log_sigmoid", math.log),
    ):
        summed = make_explainer(semiring=semiring, encoding=encoding, boundary_loops=True)
        for words in documents[5:15]:
            expected, found = best.matches(words), summed.matches(words)
            for name, match in expected.items():
                if match is None:
                    assert found[name] is None
                else:
                    assert found[name].phrase == match.phrase
                    assert found[name].score == pytest.approx(scale(match.score), rel=1e-4)


def test_positions_leave_boundary_tokens_out_and_words_name_them(
    make_explainer: Callable[..., Explainer],
) -> None:
    subject = make_explainer(boundary_tokens=True, self_loops="none", epsilons=False).subject
    words = ("good",)
    scored = ArcScores.of(subject, subject.read([words]))
    ((*_, path),) = spell_out(scored.layout, scored.path_arcs, scored.best_matches)
    (match,) = spell(subject, [path], [words], [0])
    assert len(match.steps) == 4
    assert 0 <= match.start <= match.end <= 1
    outside = [step for step in match.steps if step.position != 0]
    assert {step.token for step in outside} <= {"‹s›", "‹/s›"}
    assert all((step.token == "‹s›") == (step.position < 0) for step in outside)


@Semiring.register("sum_of_tests")
class SumOfTests(SumProduct):
    """A semiring of a user's own that sums."""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"semiring": "sum_of_tests"}, "'sum_of_tests' sums over paths"),
        ({"semiring": "sum_product", "encoding": "identity"}, "'identity' multiplies scores of"),
        ({"semiring": "sum_product", "encoding": "log_sigmoid"}, "'log_sigmoid' multiplies"),
    ],
    ids=str,
)
def test_an_encoder_without_best_paths_is_refused(
    options: dict[str, Any], message: str, make_explainer: Callable[..., Explainer]
) -> None:
    explainer = make_explainer(**options)
    with pytest.raises(UserError, match=message):
        explainer.matches(["good"])
    with pytest.raises(UserError, match=message):
        explainer.patterns([["good"]])
