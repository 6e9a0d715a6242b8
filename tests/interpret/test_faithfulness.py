"""Faithfulness by hand on a model of two patterns, and random spans of equal coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.faithfulness import (
    gradient_times_input,
    measure,
    random_spans,
    shared_out,
)

VECTORS = {"good": [1, 0], "bad": [0, 1], "x": [0, 0]}
WORDS = ["x", "x", "x", "good", "x", "x", "x", "bad", "x", "x"]


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


YES, NO = logistic(2), logistic(-2)
"""What the pattern of a word scores where that word is, and where it is not."""


def head(vectors: Tensor) -> Tensor:
    """Of the labels bad and good: 2 for *bad*, 4 for *good*."""
    return vectors[:, [1, 0]] * torch.tensor([2.0, 4.0])


@pytest.fixture
def explainer() -> Explainer:
    """Two patterns of one word each, *good* and *bad*."""
    encoder = SopaEncoder(2, {2: 2}, epsilons=False, output="score", output_scale=1.0)
    with torch.no_grad():
        encoder.arcs.weight.copy_(4 * torch.eye(2))
        encoder.arcs.bias.fill_(-2)
    return Explainer.from_encoder(encoder, VECTORS, head, ["bad", "good"], "no_match")


def test_by_hand(explainer: Explainer) -> None:
    """Of ten words the first 1, 1, 1, 2 and 5: always *good* and never *bad*."""
    found = measure(explainer, "tiny", [WORDS, []])
    assert found.documents == 1
    whole = logistic(4 * YES - 2 * YES)
    falls = whole - logistic(4 * NO - 2 * YES), whole - logistic(4 * YES - 2 * NO)
    for name in ("no_match", "gradient", "leave_one_word_out"):
        assert found.curves[name][0] == pytest.approx(np.repeat([falls], 5, axis=0).T, abs=1e-6)
        figures = found.to_dict()["rankings"][name]
        assert figures["comprehensiveness"] == pytest.approx(falls[0], abs=1e-6)
        assert figures["sufficiency"] == pytest.approx(falls[1], abs=1e-6)
    # Over one document, all variance is between patterns.
    assert found.pattern_share["no_match"] == pytest.approx(1)


def test_half_of_the_words_of_a_short_document(explainer: Explainer) -> None:
    """*bad good bad*: one word up to 20 %, then *good* and the *bad* that is not the match."""
    (curves,) = measure(explainer, "tiny", [["bad", "good", "bad"]]).curves["no_match"]
    whole, without = logistic(2 * YES), logistic(4 * NO - 2 * YES)
    assert curves[0] == pytest.approx([whole - without] * 5, abs=1e-6)
    alone = logistic(4 * YES - 2 * NO)
    assert curves[1] == pytest.approx([whole - alone] * 4 + [0], abs=1e-6)


def test_gradient_times_input_by_hand(explainer: Explainer) -> None:
    encoded = explainer.subject.read([WORDS, ["bad", "x"]])
    found = gradient_times_input(explainer.subject, encoded, np.array([1, 0]))
    slope = 4 * YES * (1 - YES)  # of a score by the word's own number
    expected = np.zeros(12)
    other = 1 - logistic(2 * YES)
    expected[[3, 7]] = other * 4 * slope, -other * 2 * slope
    expected[10] = (1 - logistic(2 * YES - 4 * NO)) * 2 * slope
    assert found == pytest.approx(expected, abs=1e-6)
    assert explainer.subject.encoder.arcs.weight.grad is None


def test_where_scores_are_true_or_false_the_gradient_is_zero() -> None:
    encoder = SopaEncoder(2, {2: 2}, epsilons=False, semiring="boolean")
    explainer = Explainer.from_encoder(encoder, VECTORS, head, ["bad", "good"], "no_match")
    encoded = explainer.subject.read([WORDS])
    assert not gradient_times_input(explainer.subject, encoded, np.array([1])).any()
    assert measure(explainer, "tiny", [WORDS]).documents == 1


def test_contributions_are_shared_out_among_the_words_of_their_phrases() -> None:
    inside = np.array([[True, False], [True, True], [False, False]])
    assert shared_out(np.array([3.0, -1.0]), inside).tolist() == [1.5, 0.5, 0]


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 2**31))
def test_random_spans_cover_as_many_words(chosen: list[bool], seed: int) -> None:
    mask = np.array(chosen)
    found = random_spans(mask, np.random.default_rng(seed))
    assert found.shape == mask.shape
    assert found.sum() == mask.sum()
    # Spans that come to lie side by side are one.
    starts = [int(np.diff(each, prepend=False).sum() + 1) // 2 for each in (found, mask)]
    assert starts[0] <= starts[1]


def test_random_spans_lie_anywhere() -> None:
    random = np.random.default_rng(0)
    counts = sum(random_spans(np.array([True, True, False, False]), random) for _ in range(600))
    assert np.abs(np.array(counts) / 600 - [1 / 3, 2 / 3, 2 / 3, 1 / 3]).max() < 0.08


def test_several_runs_are_one_table(explainer: Explainer) -> None:
    one, two = (measure(explainer, "tiny", [words]) for words in (WORDS, ["bad", "good", "bad"]))
    both = one.joined(two)
    assert both.about == "over 2 documents of 2 runs, mean ± standard deviation"
    (row,) = (row for row in both.rows if row[0] == "phrases: no match")
    aopc = [each.curves["no_match"].mean(axis=2)[0] for each in (one, two)]
    mean, spread = np.mean(aopc, axis=0)[1], np.std(aopc, axis=0, ddof=1)[1]
    assert row[2] == f"{mean:.3f} ± {spread:.3f}".replace("-", "−")
    lines = both.to_text().splitlines()
    assert lines[2].startswith("| words ranked by ")
    assert len({len(line) for line in lines[2:]}) == 1
    assert "gradient × input" in both.to_html()


def test_documents_without_a_word_have_no_ranking(explainer: Explainer) -> None:
    with pytest.raises(UserError, match="no document has a word"):
        measure(explainer, "tiny", [[], []])
