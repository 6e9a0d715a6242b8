"""Two models side by side: flips counted by hand, pairs of patterns, and what an edit changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.comparison import Comparison, compare
from sopa_plugin.interpret.editing import hold
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.models import TextClassifier, load_model

TEXTS = [
    "the film is not funny , never dull",
    "good",
    "bad bad story .",
    "",
    "a very good film",
    "a dull story , never good",
    "not bad",
    "the story is very funny",
]
GOLD = [2, 2, 0, 1, 2, 0, 1, 2]

MakeModel = Callable[..., TextClassifier]


def compared(before: ModelSubject, after: ModelSubject) -> Comparison:
    return compare(Explainer(before), Explainer(after), TEXTS, GOLD, ("one", "two"))


def held(model: TextClassifier, values: dict[str, float]) -> tuple[ModelSubject, ModelSubject]:
    """A model and a copy with patterns held, so that labels flip."""
    before = ModelSubject(model)
    after = before.copied()
    hold(after, values)
    return before, after


def test_flips_are_counted_by_direction_and_told_with_their_phrases(make_model: MakeModel) -> None:
    before, after = held(make_model(), {"3-1": -3.0})
    found = compared(before, after)
    labels = before.labels
    one, two = (each.model.log_probabilities(TEXTS).argmax(axis=1) for each in (before, after))
    differ = np.flatnonzero(one != two).tolist()
    assert 0 < len(differ) < len(TEXTS)
    assert [flip.before.document for flip in found.changed] == differ
    ways = Counter((labels[GOLD[n]], labels[one[n]], labels[two[n]]) for n in differ)
    assert dict(found.directions) == ways
    for flip, n in zip(found.changed, differ, strict=True):
        assert flip.text == TEXTS[n]
        for side, subject in ((flip.before, before), (flip.after, after)):
            explained = Explainer(subject).document(TEXTS[n])
            assert side.target == explained.predicted
            for item in side.reasons:
                assert item.effect[side.target] > 0
                assert item.match is not None
                assert item.match.phrase in TEXTS[n]
    assert found.before["dev_accuracy"] == (one == GOLD).mean()
    assert found.after["dev_accuracy"] == (two == GOLD).mean()
    # A wrong label comes first, whatever it was before.
    right = [flip.way[2] == flip.way[0] for flip in found.flips]
    assert right == sorted(right)
    text = found.to_text()
    assert f"another label for {len(differ)} of 8 dev documents" in text
    assert max(map(len, text.splitlines())) <= 80


def test_patterns_correspond_by_name_and_length(make_model: MakeModel) -> None:
    before = ModelSubject(make_model())
    other = make_model(type="sopa", patterns={"2": 2, "3": 2, "4": 1})
    found = compared(before, ModelSubject(other))
    assert {pair.before.name for pair in found.patterns} == {"2-1", "3-1", "3-2"}
    assert found.alone == (("5-1", "5-2"), ("2-2", "4-1"))
    changes = [pair.change for pair in found.patterns]
    assert changes == sorted(changes, reverse=True)
    # Agreement is the correlation of what the heads see.
    vectors = [m.document_vectors(m.encode_texts(TEXTS)) for m in (before.model, other)]
    for pair in found.patterns:
        columns = before.number(pair.before.name), ModelSubject(other).number(pair.before.name)
        pairs = np.stack([each[:, n] for each, n in zip(vectors, columns, strict=True)]).T
        one, two = (pairs - pairs.mean(axis=0)).T.astype(float)
        expected = (one * two).sum() / np.sqrt((one**2).sum() * (two**2).sum())
        assert pair.agreement == pytest.approx(expected, abs=1e-5)


def test_a_model_and_its_copy_differ_in_what_was_held_alone(make_model: MakeModel) -> None:
    model = make_model()
    same = compared(*held(model, {}))
    assert same.changed == same.differing == ()
    assert [pair.agreement for pair in same.patterns] == [pytest.approx(1)] * 5
    assert "5 patterns correspond by name and length, 0 of them differ" in same.to_text()
    pairs = {pair.pattern: pair for pair in compared(*held(model, {"3-1": 9.0})).differing}
    pair = pairs["3-1"]
    assert set(pair.after.effect.values()) == {0.0}
    assert pair.agreement is None
    assert pair.facts[0] == "–"
    assert pair.facts[2].endswith(" % → held at 9")
    assert pair.to_dict()["edits"] == [None, 9.0]


def test_what_was_edited_differs_however_little_it_changed(
    make_model: MakeModel, tmp_path: Path
) -> None:
    """Also where the models are compared later, and in either order."""
    model = make_model()
    layer = next(m for m in model.head.modules() if isinstance(m, nn.Linear))
    with torch.no_grad():
        layer.weight[:, 2] = 0  # so that the head does not see the pattern
    before, after = held(model, {ModelSubject(model).names[2]: 0.5})
    after.model.save(tmp_path)
    loaded = ModelSubject(load_model(tmp_path))
    for sides in ((before, after), (before, loaded), (loaded, before)):
        found = compared(*sides)
        assert found.changed == ()
        assert [pair.pattern for pair in found.differing] == [before.names[2]]
        assert found.differing[0].change == 0
        assert "5 patterns correspond by name and length, 1 of them differs" in found.to_text()
    assert compared(after, loaded).differing == ()


def test_labels_are_matched_by_name(make_model: MakeModel) -> None:
    before = ModelSubject(make_model())
    after = before.copied()
    order = [2, 0, 1]
    layer = after.model.head.output
    layer.weight.data, layer.bias.data = layer.weight.data[order], layer.bias.data[order]
    after.model.class_log_prior.copy_(after.model.class_log_prior[order])
    names = {n: before.labels[old] for n, old in enumerate(order)}
    after.model.config.id2label = names
    turned = compared(before, ModelSubject(after.model))
    assert turned.changed == ()
    assert turned.before["dev_loss"] == pytest.approx(turned.after["dev_loss"])
    assert max(pair.change for pair in turned.patterns) < 1e-5
    after.model.config.id2label = {**names, 0: "other"}
    with pytest.raises(
        UserError, match=r"two has other labels \(other, negative, neutral\) than one"
    ):
        compared(before, ModelSubject(after.model))
