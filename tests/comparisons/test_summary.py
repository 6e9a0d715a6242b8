from __future__ import annotations

import numpy as np
import pytest

from sopa_plugin.comparisons.summary import paired_bootstrap


def test_a_model_does_not_differ_from_itself():
    right = np.random.default_rng(0).random((3, 500)) < 0.8
    found = paired_bootstrap(right, right)
    assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_a_clear_difference():
    random = np.random.default_rng(0)
    good, bad = random.random((3, 1000)) < 0.9, random.random((3, 1000)) < 0.7
    found = paired_bootstrap(good, bad)
    assert found.difference == pytest.approx(good.mean() - bad.mean())
    assert 0 < found.low < found.difference < found.high
    assert found.p < 0.001
    turned = paired_bootstrap(bad, good)
    assert turned.difference == pytest.approx(-found.difference)
    assert turned.p == found.p


def test_agrees_with_the_normal_approximation():
    random = np.random.default_rng(1)
    first, second = random.random((1, 800)) < 0.82, random.random((1, 800)) < 0.79
    differences = first[0].astype(float) - second[0]
    error = differences.std() / np.sqrt(800)
    found = paired_bootstrap(first, second)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.05)


def test_false_alarms_are_as_rare_as_they_should_be():
    random = np.random.default_rng(2)
    alarms = [
        paired_bootstrap(random.random((1, 200)) < 0.7, random.random((1, 200)) < 0.7, 400).p < 0.1
        for _ in range(200)
    ]
    assert 0.04 < np.mean(alarms) < 0.17


def test_seeds_that_disagree_prove_nothing():
    """Each of 2,000 examples counts for little, and one of three seeds made all the difference."""
    random = np.random.default_rng(3)
    second = random.random((3, 2000)) < 0.8
    first = second.copy()
    first[0, np.flatnonzero(~second[0])[:120]] = True  # 6 points better
    lucky = paired_bootstrap(first, second)
    assert lucky.difference == pytest.approx(0.02)
    assert lucky.p > 0.05
    steady = second.copy()
    for row in steady:
        row[np.flatnonzero(~row)[:40]] = True  # 2 points better
    found = paired_bootstrap(steady, second)
    assert found.difference == pytest.approx(0.02)
    assert found.p < 0.001


def test_seeds_that_vary_raise_few_false_alarms():
    """The share of p < 0.05 with three seeds of 1 point of deviation, and no true difference."""
    random = np.random.default_rng(4)

    def model() -> np.ndarray:
        accuracies = 0.8 + 0.01 * random.standard_normal((3, 1))
        return random.random((3, 1821)) < accuracies

    alarms = [paired_bootstrap(model(), model(), 400).p < 0.05 for _ in range(300)]
    assert np.mean(alarms) < 0.08
