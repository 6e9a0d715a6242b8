"""Accuracy, macro-F1 and loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_plugin.training.metrics import (
    calibration_error,
    classification_metrics,
    detailed_metrics,
    fit_temperature,
    macro_f1,
    metrics_text,
    training_summary,
)


def test_by_hand() -> None:
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.6, 0.2, 0.2], [0.2, 0.5, 0.3]])
    metrics = classification_metrics(np.log(probabilities), np.array([0, 1, 1, 1]))
    # class 0: one of two right, none missed: 2/3; class 1: two right, one missed: 4/5
    assert metrics == {
        "accuracy": 0.75,
        "macro_f1": pytest.approx((2 / 3 + 4 / 5) / 2),
        "loss": pytest.approx(-np.log([0.5, 0.8, 0.2, 0.5]).mean()),
        "examples": 4,
    }


def test_labels_that_the_model_has_not_are_wrong() -> None:
    log_probabilities = np.log([[0.5, 0.5 - 1e-9], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    metrics = classification_metrics(log_probabilities, [0, 1, 2, 3])
    assert metrics["accuracy"] == 0.5
    # classes 0 and 1 are predicted once too often each, 2 and 3 never
    assert metrics["macro_f1"] == pytest.approx((2 / 3 + 2 / 3) / 4)
    assert metrics["loss"] == pytest.approx(-np.log([0.5, 0.8]).mean())
    assert metrics["examples"] == 4


def test_a_class_that_is_nowhere_does_not_count() -> None:
    assert macro_f1(np.array([0, 2]), np.array([0, 2])) == 1
    assert macro_f1(np.array([0, 1]), np.array([0, 0])) == pytest.approx((2 / 3 + 0) / 2)


def test_summary_has_the_last_epoch_and_the_best_on_dev() -> None:
    history = [
        {"epoch": 0, "training_loss": 0.9, "validation_loss": 0.5},
        {"epoch": 1, "training_loss": 0.3, "validation_loss": 0.7},
    ]
    assert training_summary(history, best_epoch=0, seconds=61) == {
        "best_epoch": 0,
        "training_epochs": 2,
        "training_duration": "0:01:01",
        "epoch": 1,
        "training_loss": 0.3,
        "validation_loss": 0.7,
        "best_validation_loss": 0.5,
    }


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_macro_f1_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    predictions, labels = map(np.array, zip(*pairs, strict=True))
    expected = sklearn_metrics.f1_score(labels, predictions, average="macro", zero_division=0)
    assert macro_f1(predictions, labels) == pytest.approx(expected)


def test_class_by_class_by_hand() -> None:
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.6, 0.2, 0.2], [0.2, 0.5, 0.3]])
    metrics = detailed_metrics(np.log(probabilities), [0, 1, 1, 1], ["a", "b", "c"])
    assert metrics["per_class"] == {
        "a": {"precision": 0.5, "recall": 1, "f1": pytest.approx(2 / 3), "support": 1},
        "b": {"precision": 1, "recall": pytest.approx(2 / 3), "f1": 0.8, "support": 3},
        "c": {"precision": 0, "recall": 0, "f1": 0, "support": 0},
    }
    assert metrics["confusion_matrix"] == [[1, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert metrics["weighted_f1"] == pytest.approx((2 / 3 + 3 * 0.8) / 4)
    # in bins of their own: .8 (right), .6 (wrong), and twice .5 (right)
    assert metrics["calibration_error"] == pytest.approx((0.2 + 0.6 + 2 * 0.5) / 4)
    text = metrics_text(metrics)
    assert [line.split() for line in text.splitlines()[1:3]] == [
        ["a", "0.5000", "1.0000", "0.6667", "1"],
        ["b", "1.0000", "0.6667", "0.8000", "3"],
    ]
    assert text.splitlines()[-2].split() == ["b", "1", "2", "0"]


def test_the_temperature_undoes_what_made_a_model_too_sure() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(20_000, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([random.choice(3, p=each) for each in probabilities])
    too_sure = 4 * logits - np.logaddexp.reduce(4 * logits, axis=1, keepdims=True)
    assert fit_temperature(too_sure, labels) == pytest.approx(4, rel=0.05)
    assert calibration_error(np.log(probabilities), labels) < 0.015
    assert calibration_error(too_sure, labels) > 0.2
