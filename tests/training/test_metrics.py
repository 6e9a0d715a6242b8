"""Accuracy, macro-F1 and loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_plugin.training.metrics import classification_metrics, macro_f1, training_summary


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


@settings(deadline=None)  # importing scikit-learn takes a while
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_macro_f1_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    predictions, labels = map(np.array, zip(*pairs, strict=True))
    expected = sklearn_metrics.f1_score(labels, predictions, average="macro", zero_division=0)
    assert macro_f1(predictions, labels) == pytest.approx(expected)
