from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch

from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.leave_one_out import LeaveOneOut, log_odds
from sopa_plugin.interpret.matching import ArcScores


def test_log_odds_of_two_classes_are_the_difference_of_scores() -> None:
    assert log_odds(torch.tensor([[1.0, 3.5]])).tolist() == [[-2.5, 2.5]]


def test_log_odds_of_three_classes_are_those_of_the_probability() -> None:
    logits = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    p = logits.softmax(-1)
    assert torch.allclose(log_odds(logits), (p / (1 - p)).log())


def test_log_odds_stay_finite_where_the_probability_is_one() -> None:
    assert log_odds(torch.tensor([[200.0, 0.0, 0.0]])).isfinite().all()


@pytest.mark.parametrize("normalization", ["none", "layer"])
@pytest.mark.parametrize("replacement", ["zero", "mean", "no_match"])
def test_equal_to_running_the_head_again(
    normalization: str,
    replacement: str,
    make_explainer: Callable[..., Explainer],
    documents: list[list[str]],
) -> None:
    explainer = make_explainer(normalization=normalization)
    subject, encoder = explainer.subject, explainer.subject.encoder
    encoded = subject.read(documents)
    scores = ArcScores.of(subject, encoded).scores
    vectors = encoder.forward_packed(*encoded[:3])
    means = vectors.mean(dim=0)
    found = LeaveOneOut(subject, replacement, means)(scores)

    base = subject.logits(vectors).detach().numpy()
    for pattern in range(5):
        if replacement == "no_match":
            # The same encoder with a pattern that can match nothing.
            blocked = copy.deepcopy(encoder)
            layout = blocked.layout
            with torch.no_grad():
                for block, values in (
                    (layout.main_path[0], blocked.arcs.bias),
                    (layout.epsilon_arcs[0], blocked.arcs.epsilon),
                ):
                    values[block.start + pattern - block.first_pattern] = -torch.inf
            changed = blocked.forward_packed(*encoded[:3])
        else:
            changed = vectors.detach().clone()
            # A score of 0 is 2^-arcs less than arcs of one half, times the scale.
            half = -(2 ** (1 - encoder.layout.lengths[pattern])) * encoder.document_vector.scale
            zero = half if normalization == "none" else 0.0
            changed[:, pattern] = zero if replacement == "zero" else means[pattern]
        again = subject.logits(changed).detach().numpy()
        for label in range(3):
            others = [each for each in range(3) if each != label]
            expected = odds(base, label, others) - odds(again, label, others)
            assert np.allclose(found[:, pattern, label], expected, atol=1e-6)


def odds(logits: np.ndarray, label: int, others: list[int]) -> np.ndarray:
    return logits[:, label] - np.log(np.exp(logits[:, others].astype(np.float64)).sum(axis=1))


def test_a_pattern_that_does_not_match_contributes_nothing_against_no_match(
    make_explainer: Callable[..., Explainer],
) -> None:
    explainer = make_explainer(self_loops="none", epsilons=False)
    contributions = {c.pattern: c for c in explainer.document(["good"]).contributions}
    assert contributions["5-1"].match is None
    assert set(contributions["5-1"].effect.values()) == {0.0}
    assert contributions["2-1"].match is not None


@pytest.mark.parametrize("semiring", ["max_sum", "log", "sum_product"])
def test_other_semirings(
    semiring: str, make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explanation = make_explainer(semiring=semiring).document(documents[8])
    effects = [list(each.effect.values()) for each in explanation.contributions]
    assert np.isfinite(effects).all()
    assert np.abs(effects).max() > 0


def test_what_cannot_be_done_is_said(make_explainer: Callable[..., Explainer]) -> None:
    subject = make_explainer().subject
    with pytest.raises(UserError, match="needs a data set"):
        LeaveOneOut(subject, "mean")
    with pytest.raises(UserError, match="expected one of no_match, zero, mean"):
        LeaveOneOut(subject, "nothing")
    bare = Explainer.from_encoder(subject.encoder, {})
    with pytest.raises(UserError, match="no head"):
        bare.document(["good"])
