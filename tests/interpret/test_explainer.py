from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.automaton import arcs_of
from sopa_plugin.interpret.leave_one_out import LeaveOneOut, faithfulness
from sopa_plugin.interpret.matching import ArcScores
from sopa_plugin.models import TextClassifier


def probabilities(explainer: Explainer, words: list[str]) -> np.ndarray:
    encoded = explainer.subject.read([words])
    vectors = explainer.subject.encoder.forward_packed(*explainer.subject.embed(encoded))
    return explainer.subject.logits(vectors).softmax(-1).detach().numpy()[0]


def test_a_document(make_explainer: Callable[..., Explainer]) -> None:
    explainer = make_explainer()
    words = ["the", "film", "is", "not", "funny", ",", "never", "dull"]
    found = explainer.document(words, gold="neutral", shown=2)
    p = probabilities(explainer, words)
    assert list(found.probabilities.values()) == pytest.approx(p.tolist(), abs=1e-6)
    assert found.predicted == found.target == list(found.probabilities)[p.argmax()]
    sizes = [abs(each.effect[found.target]) for each in found.contributions]
    assert sizes == sorted(sizes, reverse=True)
    assert len(found.shown) == 2
    assert found.tokens == tuple(words)
    for each in found.contributions:
        if each.match:
            assert each.match.tokens == tuple(words[each.match.start : each.match.end])
    assert json.loads(found.to_json())["gold"] == "neutral"


@pytest.mark.parametrize("replacement", ["next", "no_match"])
def test_many_documents_have_the_contributions_of_each(
    replacement: str, make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer(replacement)
    explainer.use_means_of(documents)
    encoded = explainer.subject.read(documents)
    every = zip(documents, explainer.contributions(encoded, documents, 3), strict=True)
    for words, (probabilities, found) in every:
        alone = explainer.document(words)
        assert probabilities == pytest.approx(alone.probabilities, abs=1e-6)
        shown = [
            each
            for each in alone.contributions
            if each.match and each.evidence and abs(each.effect[alone.target]) > 1e-6
        ]
        assert [each.pattern for each in found] == [each.pattern for each in shown[:3]]
        for mine, theirs in zip(found, shown, strict=False):
            assert mine.match is not None
            assert theirs.match is not None
            assert mine.match.tokens == theirs.match.tokens
            assert mine.score == pytest.approx(theirs.score, rel=1e-5)
            assert mine.effect == pytest.approx(theirs.effect, abs=1e-5)


def test_another_label_can_be_explained(make_explainer: Callable[..., Explainer]) -> None:
    explainer = make_explainer()
    found = explainer.document(["bad", "film"], target="neutral")
    assert found.target == "neutral"
    with pytest.raises(UserError, match="no label 'good'; expected one of negative, neutral"):
        explainer.document(["bad"], target="good")


@pytest.mark.parametrize("replacement", ["next", "no_match"])
def test_one_label_rather_than_another(
    replacement: str, make_explainer: Callable[..., Explainer]
) -> None:
    explainer = make_explainer(replacement)
    words = ["the", "film", "is", "not", "funny"]
    found = explainer.document(words, target="neutral", against="negative")
    scores = ArcScores.of(explainer.subject, explainer.subject.read([words]))
    leave_one_out = LeaveOneOut(explainer.subject, replacement)
    pairs = torch.zeros(5, dtype=torch.long), torch.arange(5)
    vectors = explainer.subject.document_vectors(scores.scores)
    whole = explainer.subject.logits(vectors)[0].tolist()
    instead = scores.next_best(*np.indices((1, 5)).reshape(2, -1))
    without = leave_one_out.logits_without(scores.scores, *pairs, instead).tolist()
    for each in found.contributions:
        again = without[explainer.subject.number(each.pattern)]
        expected = whole[1] - whole[0] - (again[1] - again[0])
        assert each.effect == pytest.approx({"neutral": expected, "negative": -expected}, abs=1e-5)
    share = list(found.probabilities.values())
    told = f"; explained: neutral {share[1]:.0%} rather than negative {share[0]:.0%}"
    assert told.replace("%", " %") in found.to_text().splitlines()[0]
    assert "█" in found.to_text()
    assert found.html_body().count('class="bar class"') == 3
    with pytest.raises(UserError, match="neutral is explained against itself"):
        explainer.document(words, target="neutral", against="neutral")
    with pytest.raises(UserError, match="no label 'other'"):
        explainer.document(words, against="other")


@pytest.mark.parametrize("against", [None, "neutral"])
def test_the_way_from_the_prior_to_the_decision(
    against: str | None, make_model: Callable[..., TextClassifier]
) -> None:
    model = make_model()
    model.class_log_prior.copy_(torch.tensor([0.5, 0.3, 0.2]).log())
    explainer = Explainer.from_model(model)
    text = "a very dull film , never funny"
    found = explainer.document(text, "positive", shown=2, against=against)
    p = found.probabilities
    rest, prior_rest = (1 - p["positive"], 0.8) if against is None else (p[against], 0.3)
    assert found.log_odds == pytest.approx(np.log(p["positive"] / rest), abs=1e-4)
    assert found.prior == pytest.approx(np.log(0.2 / prior_rest), abs=1e-5)
    steps = [end - start for start, end in found.way]
    effects = [each.effect["positive"] for each in found.contributions]
    assert steps[1:3] == pytest.approx([each.effect["positive"] for each in found.shown])
    assert steps[3] == pytest.approx(sum(effects) - sum(steps[1:3]))
    assert sum(steps[:-1]) == pytest.approx(steps[-1]) == pytest.approx(found.log_odds)
    assert all(a[1] == b[0] for a, b in pairwise(found.way[:-1]))


def test_near_duplicates_are_found(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer(patterns={2: 3})
    encoder = explainer.subject.encoder
    with torch.no_grad():
        for parameter in encoder.arcs.parameters():  # 2-3 does what 2-1 does
            parameter[2] = parameter[0]
    encoded = explainer.subject.read(documents)
    vectors = encoder.forward_packed(*explainer.subject.embed(encoded)).detach().numpy()
    expected = np.corrcoef(vectors.T)
    scores = explainer._scores(scored for _, scored in explainer._read_all(documents))
    assert scores.correlations() == pytest.approx(expected - np.eye(3), abs=1e-5)
    reading = explainer.patterns(documents)
    assert next(name for name, _ in reading["2-1"].alike) == "2-3"
    (correlation, one, other), *_ = reading.duplicates
    assert {one.name, other.name} == {"2-1", "2-3"}
    assert correlation == pytest.approx(1.0)
    assert all(found >= 0.5**0.5 for found, *_ in reading.duplicates)
    assert len(reading.duplicates) == (np.triu(expected, 1) >= 0.5**0.5).sum()


def test_an_empty_document(make_explainer: Callable[..., Explainer]) -> None:
    found = make_explainer().document([])
    assert all(each.match is None for each in found.contributions)
    assert sum(found.probabilities.values()) == pytest.approx(1)
    for form in ("text", "json", "html", "svg"):
        assert found.render(form)


def test_faithfulness_drops_or_keeps_the_words_of_the_phrases(
    make_explainer: Callable[..., Explainer],
) -> None:
    explainer = make_explainer()
    words = ["the", "film", "is", "not", "funny", ",", "never", "dull"]
    encoded = explainer.subject.read([words])
    named = np.isin(words, ["film", "is", "not", "never"])
    dropped = ["the", "funny", ",", "dull"]
    kept = ["film", "is", "not", "never"]
    for label in range(3):
        p = probabilities(explainer, words)[label]
        without = probabilities(explainer, dropped)[label]
        alone = probabilities(explainer, kept)[label]
        (found,) = faithfulness(explainer.subject, encoded, named, [label])
        assert tuple(found) == pytest.approx((p - without, p - alone), abs=1e-6)


def test_effect_and_firing(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer()
    reading = explainer.patterns(documents, k=3, words=0)
    assert [each.strength for each in reading] == sorted(
        (each.strength for each in reading), reverse=True
    )
    for pattern in reading:
        scores, effects = [], []
        for words in documents:
            match = explainer.matches(words)[pattern.name]
            contributions = explainer.document(words).contributions
            scores.append(match.score if match else np.nan)
            (effect,) = (c.effect for c in contributions if c.pattern == pattern.name)
            effects.append(list(effect.values()))
        best, mean = np.nanmax(scores), np.nanmean(scores)
        with np.errstate(invalid="ignore"):
            fired = np.array(scores) >= (best + mean) / 2
        assert pattern.best == pytest.approx(best, rel=1e-5)
        assert pattern.mean == pytest.approx(mean, rel=1e-5)
        assert pattern.matched == pytest.approx(1 - np.isnan(scores).mean())
        assert pattern.fires == pytest.approx(fired.mean())
        expected = np.array(effects)[fired].mean(axis=0)
        assert list(pattern.effect.values()) == pytest.approx(expected.tolist(), abs=1e-5)
        assert pattern.label == explainer.subject.labels[int(expected.argmax())]


def test_a_concordance_has_every_document_in_which_a_pattern_fires(
    make_explainer: Callable[..., Explainer],
    documents: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    explainer = make_explainer()
    gold = np.random.default_rng(2).integers(0, 3, len(documents)).tolist()
    thresholds = explainer.thresholds(documents)
    reading = explainer.patterns(documents, k=1, words=0)
    found = explainer.where(documents, gold, thresholds)
    assert list(found) == list(explainer.subject.names)
    for name, concordance in found.items():
        assert reading[name].threshold == thresholds[name]
        assert len(concordance.places) == round(reading[name].fires * len(documents)) > 0
        scores = [place.match.score for place in concordance.places]
        assert scores == sorted(scores, reverse=True)
        for place in concordance.places:
            words, number = documents[place.match.document], place.match.document
            match = explainer.matches(words)[name]
            assert (place.match.start, place.match.phrase) == (match.start, match.phrase)
            assert place.match.score == pytest.approx(match.score, rel=1e-5)
            assert place.gold == explainer.subject.labels[gold[number]]
            assert place.predicted == explainer.document(words).predicted
            text = " ".join(filter(None, (place.before, place.match.phrase, place.after)))
            assert text == " ".join(words)
        lines = concordance.to_text().splitlines()
        assert len(lines) == 1 + len(scores)
        assert max(map(len, lines[1:])) <= 120
        wrong = concordance.wrong()
        assert all(place.gold != place.predicted for place in wrong.places)
        assert wrong.to_html().count("<tr><td") == len(wrong.places)
        assert wrong.about == concordance.about
    (only,) = explainer.where(documents, gold, {"3-2": thresholds["3-2"]}).values()
    assert only.places == found["3-2"].places
    labels = list(explainer.subject.labels)
    right = [labels.index(explainer.document(words).predicted) for words in documents]
    for name, concordance in explainer.where(documents, right, thresholds).items():
        fires = f"{len(concordance.places)} of {len(documents)} documents"
        told = f"Pattern {name} fires in {fires}, 0 of them wrongly classified"
        assert concordance.wrong().to_text() == told


def test_documents_may_be_a_stream_that_is_read_once(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer(replacement="mean")
    streamed = explainer.patterns(iter(documents), k=3).to_dict()
    assert streamed == make_explainer(replacement="mean").patterns(documents, k=3).to_dict()


@pytest.mark.parametrize(
    "options", [{}, {"boundary_tokens": True}, {"semiring": "max_sum"}], ids=str
)
def test_activations_end_in_the_scores_of_matches(
    options: dict, make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer(**options)
    for name in ("2-1", "5-2"):
        for words in documents[4:12]:
            found = explainer.activations(words, name)
            match = explainer.matches(words)[name]
            ends = [row[-1] for row in found.values]
            assert len(found.tokens) == len(found.values)
            if match is None:
                assert found.match is None
                continue
            assert max(ends) == pytest.approx(match.score, rel=1e-5)
            assert found.match.score == pytest.approx(match.score, rel=1e-5)
            # The best path goes through states that are as active as its steps multiply up to.
            total = None
            for step in found.match.steps:
                if total is None:
                    total = step.score
                elif options.get("semiring") == "max_sum":
                    total += step.score
                else:
                    total *= step.score
                if step.arc != "epsilon":
                    value = found.values[step.position][step.reaches]
                    assert value >= total - 1e-5
            assert ends[found.match.end - 1] == pytest.approx(total, rel=1e-5)


def test_unknown_patterns_are_named(make_explainer: Callable[..., Explainer]) -> None:
    with pytest.raises(UserError, match=r"no pattern is called '9-1'; the nearest are [2-5]-1, "):
        make_explainer().activations(["good"], "9-1")


def test_nearest_words_and_wildcards_of_an_arc_written_by_hand() -> None:
    encoder = SopaEncoder(2, {3: 1}, normalization="none")
    layout = encoder.layout
    with torch.no_grad():
        first, second = layout.main_path
        encoder.arcs.weight.zero_()
        encoder.arcs.bias.zero_()
        # The first arc takes one word; the second any word, as the paper reads a large bias.
        encoder.arcs.weight[first.start] = torch.tensor([100.0, 0.0])
        encoder.arcs.bias[first.start] = -50.0
        encoder.arcs.bias[second.start] = 100.0
        encoder.arcs.epsilon[:] = torch.tensor([0.0, -50.0])
    vectors = {"good": [1.0, 0.0], "bad": [-1.0, 0.0], "film": [0.0, 1.0], "a": [0.0, 0.0]}
    (reading,) = Explainer.from_encoder(encoder, vectors).patterns([["good", "film"]], words=2)
    arcs = {(arc.arc, arc.state): arc for arc in reading.arcs}
    assert list(arcs) == [
        ("main_path", 0),
        ("epsilon", 0),
        ("main_path", 1),
        ("self_loop", 1),
        ("epsilon", 1),
    ]
    word = arcs["main_path", 0]
    assert word.words[0] == ("good", pytest.approx(1.0))
    assert word.wildcard == pytest.approx(0.25)
    assert word.bias == pytest.approx(0.0, abs=1e-6)
    wildcard = arcs["main_path", 1]
    assert wildcard.wildcard == wildcard.bias == pytest.approx(1.0)
    assert arcs["epsilon", 0].bias == pytest.approx(0.5)
    assert reading.matches[0].phrase == "good film"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"final_epsilon": False},
        {"boundary_loops": True},
        {"boundary_loops": True, "final_epsilon": False},
        {"self_loops": "none"},
        {"epsilons": False},
    ],
)
def test_the_arcs_read_are_those_that_some_match_takes(
    options: dict[str, Any], make_explainer: Callable[..., Explainer]
) -> None:
    """An epsilon into END is none of them where a match with it would consume nothing."""
    explainer = make_explainer(patterns={2: 1, 3: 1}, **options)
    encoder, taken = explainer.subject.encoder, set()
    for seed in range(40):
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in encoder.arcs.parameters():
                parameter.copy_(3 * torch.randn_like(parameter))
        for words in (["the"], ["a", "film"], ["the", "story", "is", "very", "dull"]):
            for name, match in explainer.matches(words).items():
                taken |= {(name, step.arc, step.state) for step in match.steps} if match else set()
    arcs = {
        (name, kind, state)
        for number, name in enumerate(explainer.subject.names)
        for kind, state, _ in arcs_of(encoder.layout, number)
    }
    if encoder.layout.loops[0]:  # those of START and END take part only where they are free
        arcs -= {each for each in arcs if each[1] == "self_loop"}
        taken -= {each for each in taken if each[1] == "self_loop"}
    assert taken == arcs


def test_arcs_of_a_filter_are_wildcards_where_words_hardly_differ() -> None:
    encoder = SopaEncoder(
        1, {3: 1}, semiring="max_sum", self_loops="none", epsilons=False, normalization="none"
    )
    with torch.no_grad():
        first, second = encoder.layout.main_path
        encoder.arcs.weight[first.start] = 4.0
        encoder.arcs.weight[second.start] = 1.0
    vectors = {"low": [-1.0], "high": [1.0]}
    (reading,) = Explainer.from_encoder(encoder, vectors).patterns([["high", "high"]])
    assert [arc.wildcard for arc in reading.arcs] == pytest.approx([0.0, 0.75])
    assert [arc.words[0][0] for arc in reading.arcs] == ["high", "high"]


def test_words_without_a_vector_have_the_zero_vector(
    make_explainer: Callable[..., Explainer],
) -> None:
    encoded = make_explainer().subject.read([["good", "unheard-of"]])
    assert make_explainer().subject.vectors(encoded)[1].tolist() == [0.0] * 6


def test_a_head_with_dropout_is_read_as_it_predicts(
    make_explainer: Callable[..., Explainer],
) -> None:
    subject = make_explainer().subject
    head = nn.Sequential(nn.Dropout(0.5), subject._head)
    explainer = Explainer.from_encoder(subject.encoder, subject._vectors, head, subject.labels)
    found = {tuple(explainer.document(["good"]).probabilities.values()) for _ in range(5)}
    assert len(found) == 1


def test_fewer_than_one_phrase_is_refused(make_explainer: Callable[..., Explainer]) -> None:
    with pytest.raises(UserError, match="k: expected at least 1 phrase, found 0"):
        make_explainer().patterns([["good"]], k=0)


def test_one_pattern_by_name(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    reading = make_explainer().patterns(documents, k=2)
    assert [each.name for each in reading.only(["5-2", "2-1"])] == ["5-2", "2-1"]
    assert reading["3-1"].name == "3-1"
    with pytest.raises(UserError, match="no pattern is called '4-1'"):
        reading.only(["4-1"])
