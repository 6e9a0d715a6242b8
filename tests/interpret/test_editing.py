from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.comparison import Comparison
from sopa_plugin.interpret.editing import hold, mask
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.models import TextClassifier, load_model

TEXTS = ["the film is not funny , never dull", "good", "bad bad story .", "", "a very good film"]
CNN: dict[str, Any] = {"type": "cnn", "num_filters": 2, "window_sizes": [3, 1]}


def effects(model: TextClassifier, replacement: str, name: str) -> np.ndarray:
    explainer = Explainer.from_model(model, replacement=replacement)
    explainer.use_means_of(TEXTS)
    found = [
        each.effect
        for text in TEXTS
        for each in explainer.document(text).contributions
        if each.pattern == name
    ]
    return np.array([list(effect.values()) for effect in found])


def odds(model: TextClassifier) -> np.ndarray:
    p = np.exp(model.log_probabilities(TEXTS))
    return np.log(p / (1 - p))


@pytest.mark.parametrize("replacement", ["no_match", "zero", "mean"])
@pytest.mark.parametrize("encoder", [{}, CNN], ids=["sopa", "cnn"])
def test_a_masked_pattern_takes_its_contributions_with_it(
    replacement: str, encoder: dict[str, Any], make_model: Callable[..., TextClassifier]
) -> None:
    model = make_model(**encoder)
    name = "2-1"
    before, contributions = odds(model), effects(model, replacement, name)
    assert np.abs(contributions).max() > 0.01
    explainer = Explainer.from_model(model)
    explainer.use_means_of(TEXTS)
    mask(ModelSubject(model), [name], replacement, explainer.means)
    assert np.allclose(odds(model), before - contributions, atol=1e-4)
    assert np.allclose(effects(model, replacement, name), 0, atol=1e-6)


def test_a_held_pattern_is_constant(make_model: Callable[..., TextClassifier]) -> None:
    model = make_model()
    subject = ModelSubject(model)
    texts = [text for text in TEXTS if text]
    packed = subject.embed(subject.read(texts))
    vectors = model.encoder.forward_packed(*packed).detach()
    column = subject.columns[subject.number("3-2")]
    vectors[:, column] = 0.75
    expected = model.head(vectors).log_softmax(-1).detach().numpy()
    assert hold(subject, {"3-2": 0.75}) == {"3-2": 0.75}
    assert np.allclose(model.log_probabilities(texts), expected, atol=1e-5)


def test_what_is_masked_is_held_at_the_mean_that_training_saved(
    make_model: Callable[..., TextClassifier], tmp_path: Path
) -> None:
    model = make_model()
    documents = model.encode_texts(TEXTS)
    model.take_means_of(documents)
    batch = model.make_batch(documents, np.arange(len(TEXTS)))
    vectors = model(**batch, output_hidden_states=True).hidden_states[0].detach()
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, TextClassifier)
    subject = ModelSubject(loaded)
    found = mask(subject, ["2-1"]) | mask(subject, ["5-2"], "next")
    for name, value in found.items():
        mean = vectors[:, subject.number(name)].double().mean()
        assert value == pytest.approx(float(mean), rel=1e-6)
        vectors[:, subject.number(name)] = mean
    texts = [text for text in TEXTS if text]
    expected = model.head(vectors[[bool(text) for text in TEXTS]]).log_softmax(-1)
    assert np.allclose(loaded.log_probabilities(texts), expected.detach().numpy(), atol=1e-5)


def test_an_edit_warns_of_a_loss() -> None:
    def figures(accuracy: float) -> dict[str, float]:
        return {"dev_accuracy": accuracy, "dev_macro_f1": 0.5, "dev_loss": 1.0, "dev_examples": 200}

    def edited(accuracy: float) -> Comparison:
        compared = ("small", "small, edited"), "dev", figures(0.8), figures(accuracy)
        return Comparison(*compared, (), (), ((), ()), {"2-1": 0.5}, None)

    lines = edited(0.785).to_text().splitlines()
    assert lines[:2] == [
        "1 pattern edited: 2-1 held at 0.5",
        "WARNING: dev accuracy falls by 1.5 points: these patterns are needed",
    ]
    assert "      dev loss  1.0000 -> 1.0000  (0.0000)" in lines
    assert lines[-3] == "another label for 0 of 200 dev documents"
    assert edited(0.785).warning in edited(0.785).to_html()
    assert edited(0.79).warning == ""
    blocked = replace(edited(0.785), edits={"2-1": "no_match"})
    assert "no match is far from any document" in blocked.warning
    assert "needed" not in blocked.warning
    assert "WARNING" not in edited(0.79).to_text()


def test_a_masked_pattern_speaks_for_no_class(make_model: Callable[..., TextClassifier]) -> None:
    subject = ModelSubject(make_model())
    mask(subject, ["2-1"], "zero")
    gold = [0] * len(TEXTS)
    reading = Explainer(subject, "zero").patterns(TEXTS, words=0, labelled=(TEXTS, gold))
    (masked,) = reading.by_label[None]
    assert (masked.name, masked.label, masked.verdict) == ("2-1", None, "no class")
    assert "precision" not in " ".join(masked.use_facts)
    assert "no class" in reading.to_html()
    assert sum(map(len, reading.by_label.values())) == len(reading)


@pytest.mark.parametrize("replacement", ["no_match", "zero"])
def test_an_edited_model_is_saved_and_loaded(
    replacement: str, make_model: Callable[..., TextClassifier], tmp_path: Path
) -> None:
    model = make_model()
    mask(ModelSubject(model), ["2-1", "5-2"], replacement)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert np.array_equal(loaded.log_probabilities(TEXTS), model.log_probabilities(TEXTS))
    edits = loaded.config.sopa_plugin["edits"]
    assert edits.keys() == {"2-1", "5-2"}
    scale = loaded.encoder.document_vector.scale
    for name, half in (("2-1", 1 / 2), ("5-2", 1 / 16)):
        # What a score of 0 is to the head.
        expected = "no_match" if replacement == "no_match" else pytest.approx(-half * scale)
        assert edits[name] == expected
    hold(ModelSubject(loaded), {"3-1": 1.0})
    assert set(loaded.config.sopa_plugin["edits"]) == {"2-1", "5-2", "3-1"}


def test_a_blocked_pattern_leaves_training_finite(
    make_model: Callable[..., TextClassifier],
) -> None:
    model = make_model()
    mask(ModelSubject(model), ["5-1"], "no_match")
    model.train()
    batch = model.make_batch(model.encode_texts(TEXTS, [0, 1, 2, 0, 1]), np.arange(5))
    model(**batch).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


def test_a_pattern_that_is_held_is_not_held_again(
    make_model: Callable[..., TextClassifier], tmp_path: Path
) -> None:
    """The head no longer sees it: nothing would change, whatever the report said."""
    model = make_model()
    hold(ModelSubject(model), {"2-1": 3})
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, TextClassifier)
    for subject in (ModelSubject(model), ModelSubject(loaded)):
        for edit in (lambda: hold(subject, {"2-1": 5.0}), lambda: mask(subject, ["2-1"], "zero")):  # noqa: B023
            with pytest.raises(UserError, match="2-1 is held at 3 already: edit the original"):
                edit()
    # One that only matches nothing is still seen.
    mask(ModelSubject(model), ["3-1"], "no_match")
    expected = odds(model)
    hold(ModelSubject(model), {"3-1": 40.0})
    assert not np.allclose(odds(model), expected)


@pytest.mark.parametrize("encoding", ["identity", "log_sigmoid"])
def test_arcs_that_cannot_score_zero_are_not_blocked(
    encoding: str, make_model: Callable[..., TextClassifier]
) -> None:
    model = make_model(
        type="sopa", patterns={"2": 1, "3": 2, "5": 2}, semiring="sum_product", encoding=encoding
    )
    before = model.log_probabilities(TEXTS)
    with pytest.raises(UserError, match=f"'sum_product' over encoding '{encoding}': take repl"):
        mask(ModelSubject(model), ["2-1"], "no_match")
    assert np.array_equal(model.log_probabilities(TEXTS), before)
    mask(ModelSubject(model), ["2-1"], "zero")
    assert np.isfinite(model.log_probabilities(TEXTS)).all()


def test_what_cannot_be_done_is_said(make_model: Callable[..., TextClassifier]) -> None:
    model = make_model()
    with pytest.raises(UserError, match="no pattern is called '7-1'"):
        mask(ModelSubject(model), ["7-1"])
    with pytest.raises(UserError, match="needs a data set"):
        mask(ModelSubject(model), ["2-1"])
    assert mask(ModelSubject(model), []) == {}
    with pytest.raises(
        UserError, match=r"2-1 cannot be held at 1e\+300: too large for torch.float"
    ):
        hold(ModelSubject(model), {"3-1": 1.0, "2-1": 1e300})

    class Squares(nn.Module):
        """Uses the scores beside its first layer, too."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            return (
                self.layer(vectors) + vectors.square().sum(1, keepdim=True) * torch.arange(3) / 50
            )

    model.head = Squares()
    before = {name: each.clone() for name, each in model.head.state_dict().items()}
    with pytest.raises(UserError, match="cannot hold a pattern in a Squares"):
        hold(ModelSubject(model), {"2-1": 0.5})
    assert all(torch.equal(each, before[name]) for name, each in model.head.state_dict().items())
    assert math.isfinite(float(odds(model).sum()))
