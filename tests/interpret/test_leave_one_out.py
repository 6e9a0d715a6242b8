from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.leave_one_out import LeaveOneOut, fires_in, log_odds
from sopa_plugin.interpret.matching import ArcScores
from sopa_plugin.wfsa import spell_out


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
    vectors = encoder.forward_packed(*subject.embed(encoded))
    means = vectors.mean(dim=0)
    found = LeaveOneOut(subject, replacement, means)(ArcScores.of(subject, encoded))

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
            changed = blocked.forward_packed(*subject.embed(encoded))
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
    with pytest.raises(UserError, match="expected one of next, no_match, zero, mean"):
        LeaveOneOut(subject, "nothing")
    bare = Explainer.from_encoder(subject.encoder, {})
    with pytest.raises(UserError, match="no head"):
        bare.document(["good"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"semiring": "max_sum"},
        {"semiring": "log"},
        {"semiring": "sum_product"},
        {"boundary_loops": True},
        {"self_loops": "none", "epsilons": False},
    ],
    ids=str,
)
def test_the_next_best_match_lies_before_the_phrase_or_behind_it(
    options: dict[str, Any], make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    subject = make_explainer(**options).subject
    algebra = subject.encoder.options.algebra
    scored = ArcScores.of(subject, subject.read(documents))
    paths, others = (
        spell_out(each.layout, each.path_arcs, each.best_matches)
        for each in (scored, scored.without_phrases)
    )
    found = 0
    for number, words in enumerate(documents):
        for pattern, path in enumerate(paths[number]):
            if path is None:
                assert others[number][pattern] is None
                continue
            parts = subject.read([words[: path.start], words[path.end :]])
            expected = algebra.sum(ArcScores.of(subject, parts).scores[:, pattern], 0)
            score = scored.without_phrases.scores[number, pattern]
            assert scored.next_best(*np.array([[number], [pattern]])).equal(score[None])
            assert score.item() == pytest.approx(expected.item(), rel=1e-5)
            other = others[number][pattern]
            assert (other is None) == (expected.item() == algebra.zero)
            if other is not None:
                assert other.end <= path.start or other.start >= path.end
                found += 1
    assert found > 50


@pytest.mark.parametrize("normalization", ["none", "layer"])
@pytest.mark.parametrize("known", [True, False])
def test_a_pattern_makes_do_with_its_next_best_match(
    known: bool,
    normalization: str,
    make_explainer: Callable[..., Explainer],
    documents: list[list[str]],
) -> None:
    """Its mean stands in where none is left; without means, no match."""
    explainer = make_explainer("next", normalization=normalization)
    subject = explainer.subject
    if known:
        explainer.use_means_of(documents)
    left = set()
    for words in documents[:20]:
        found = explainer.document(words)
        scores = ArcScores.of(subject, subject.read([words])).scores
        (base,) = subject.logits(subject.document_vectors(scores)).detach().numpy()
        for each in found.contributions:
            column, changed = subject.number(each.pattern), scores.clone()
            changed[0, column] = -torch.inf if each.instead is None else np.log(each.instead.score)
            vectors = subject.document_vectors(changed)
            if known and each.instead is None:
                vectors = subject.document_vectors(scores)
                vectors[0, column] = explainer.means[column]
            (again,) = subject.logits(vectors).detach().numpy()
            for label, effect in enumerate(each.effect.values()):
                others = [n for n in range(3) if n != label]
                expected = odds(base[None], label, others) - odds(again[None], label, others)
                assert effect == pytest.approx(expected.item(), abs=1e-4)
            left.add(each.instead is None)
    assert left == {True, False}


def test_a_pattern_below_its_usual_score_is_no_evidence(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer("next", patterns={2: 3, 3: 3})
    explainer.use_means_of(documents)
    hidden = 0
    for words in filter(None, documents):
        found = explainer.document(words, shown=99)
        scores = ArcScores.of(explainer.subject, explainer.subject.read([words])).scores
        above = explainer.subject.document_vectors(scores)[0] >= explainer.means
        names = {explainer.subject.names[n] for n in above.nonzero().flatten().tolist()}
        assert {each.pattern for each in found.contributions if each.evidence} == names
        assert {each.pattern for each in found.shown} <= names
        hidden += len(found.contributions) - len(names)
        for each in found.shown:
            other = each.instead.phrase if each.instead else "– its mean"
            assert f"  {other}\n" in found.to_text().split("next best")[1]
    assert hidden > 20


@pytest.mark.parametrize("options", [{}, {"boundary_tokens": True}, {"semiring": "log"}], ids=str)
def test_use_is_what_one_by_one_gives(
    options: dict[str, Any], make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer(patterns={2: 3, 3: 3, 5: 3}, **options)
    subject, labelled = explainer.subject, documents[3:33]
    explainer.use_means_of(documents)
    gold = np.random.default_rng(1).integers(0, 3, len(labelled)).tolist()
    reading = explainer.patterns(documents, k=1, words=0, labelled=(labelled, gold))
    assert [each.use.loss for each in reading] == sorted(
        (p.use.loss for p in reading), reverse=True
    )
    vectors = subject.encoder.forward_packed(*subject.embed(subject.read(labelled))).detach()
    base = subject.logits(vectors).double().log_softmax(-1).detach().numpy()
    explained = [explainer.document(words) for words in labelled]
    rows = np.arange(len(labelled))
    for pattern in reading:
        use, column = pattern.use, subject.number(pattern.name)
        held = vectors.clone()
        held[:, column] = explainer.means[column]
        after = subject.logits(held).double().log_softmax(-1).detach().numpy()
        rise = (base[rows, gold] - after[rows, gold]).mean()
        assert use.loss == pytest.approx(rise, abs=1e-6)
        right = [(each.argmax(1) == gold).mean() for each in (base, after)]
        assert use.accuracy == pytest.approx(right[1] - right[0])
        fired = fires_in(subject, ArcScores.of(subject, subject.read(labelled)).scores,
                         np.full(9, (pattern.best + pattern.mean) / 2))[:, column]  # fmt: skip
        own = np.array(gold) == (subject.labels.index(pattern.label) if pattern.label else -1)
        assert use.fired == fired.sum()
        assert use.precision == pytest.approx((fired & own).sum() / max(fired.sum(), 1))
        assert use.recall == pytest.approx((fired & own).sum() / max(own.sum(), 1))
        largest = [[c.pattern for c in each.contributions[:5] if abs(c.effect[each.target]) > 1e-6]
                   for each in explained]  # fmt: skip
        assert use.share == pytest.approx(np.mean([pattern.name in names for names in largest]))
        matches = [explainer.matches(labelled[n])[pattern.name] for n in np.flatnonzero(fired)]
        for (kind, state), share in use.taken.items():
            steps = [[s for s in m.steps if (s.arc, s.state) == (kind, state)] for m in matches]
            assert share == pytest.approx(np.mean([bool(each) for each in steps]) if steps else 0)
            words = Counter(s.token for each in steps for s in each if s.token is not None)
            assert dict(use.consumed[kind, state]) == dict(words)


def test_order_and_figures_without_labelled_documents(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer()
    reading = explainer.patterns(documents, k=1, words=0)
    assert reading.order == "influence"
    with pytest.raises(UserError, match="cannot be sorted by share: no labelled documents"):
        reading.sorted("share")
    measured = explainer.patterns(documents, k=1, words=0, labelled=(documents, [0] * 40))
    precise = [each.use.precision for each in measured.sorted("precision")]
    assert precise == sorted(precise, reverse=True)
    assert [each.name for each in measured.sorted("influence")] == [each.name for each in reading]
    assert "precision" in measured.to_text()
    assert measured.sorted_by in measured.to_html()


@pytest.mark.parametrize("order", ["accuracy", "recall"])
def test_patterns_are_sorted_by_what_is_asked(
    order: str, make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    gold = [n % 3 for n in range(len(documents))]
    reading = make_explainer().patterns(documents, 1, 0, (documents, gold)).sorted(order)
    figures = [getattr(each.use, order) for each in reading]
    assert figures == sorted(figures, reverse=order == "recall")  # accuracy falls the most first


def test_arcs_have_the_words_that_they_consumed(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    """And the vocabulary's nearest, which alone stand on them where no labels are known."""
    explainer = make_explainer()
    gold = [n % 3 for n in range(len(documents))]
    measured = explainer.patterns(documents, 1, 2, (documents, gold))
    differs = 0
    for pattern in measured:
        for arc in pattern.arcs:
            key = arc.arc, arc.state
            if not pattern.use.fired:
                assert arc.consumed is None
            elif arc.arc != "epsilon":
                assert list(arc.consumed) == pattern.use.consumed[key][:2]
                assert [word for word, _ in arc.consumed] == arc.label[arc.wildcard >= 0.6 :][:2]
                differs += [word for word, _ in arc.consumed] != [word for word, _ in arc.words]
    assert differs
    assert "consumed: " in measured.automata().to_text()
    unlabelled = explainer.patterns(documents, 1, 2).automata()
    assert all(arc.consumed is None for each in unlabelled for arc in each.arcs)
    assert "nearest: " in unlabelled.to_text()
    assert "consumed: " not in unlabelled.to_text()
