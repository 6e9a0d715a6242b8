"""scikit-learn's estimators, by what scikit-learn itself does with them."""

from __future__ import annotations

import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from sopa_plugin import load_model
from sopa_plugin.errors import UserError
from sopa_plugin.integrations.scikit_learn import SopaClassifier, SopaVectorizer
from sopa_plugin.registry import ConfigError

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {"patterns": {3: 4, 2: 4}, "lr": 0.02, "num_epochs": 15}
WORDS = {"cooking": "stir boil bake", "sport": "goal match team", "weather": "rain snow wind"}
TEXTS = [
    f"{before} {word} {after}"
    for before in ("we had a", "there is no", "the")
    for after in ("today .", ", they say", "and more")
    for words in WORDS.values()
    for word in words.split()
]
LABELS = [label for _ in range(9) for label in WORDS for _ in range(3)]
OTHERS, ANSWERS = ["Rain and wind !", "Boil it .", ""], ["weather", "cooking"]


@pytest.fixture(scope="module")
def classifier() -> SopaClassifier:
    return SopaClassifier(**SMALL).fit(TEXTS, LABELS)


def test_a_classifier_learns_classes_in_order(classifier: SopaClassifier) -> None:
    assert classifier.classes_.tolist() == sorted(set(LABELS))
    assert classifier.score(OTHERS[:2], ANSWERS) == 1
    probabilities = classifier.predict_proba(OTHERS)
    assert probabilities.shape == (len(OTHERS), len(classifier.classes_))
    assert probabilities.sum(axis=1) == pytest.approx(1)
    best = [classifier.classes_[row.argmax()] for row in probabilities]
    assert classifier.predict(OTHERS).tolist() == best
    assert classifier.predict_proba([]).shape == (0, 3)


def test_texts_may_be_an_array_or_a_column_of_a_table(classifier: SopaClassifier) -> None:
    expected = classifier.predict_proba(OTHERS)
    for texts in (np.array(OTHERS), pd.Series(OTHERS, index=range(5, 5 + len(OTHERS)))):
        assert (classifier.predict_proba(texts) == expected).all()


def test_a_clone_trained_anew_is_the_same(classifier: SopaClassifier) -> None:
    np.random.seed(3)
    before = np.random.get_state()[1]
    copy = clone(classifier)
    with pytest.raises(NotFittedError):
        copy.predict(OTHERS)
    again = copy.fit(pd.Series(TEXTS), np.array(LABELS)).predict_proba(OTHERS)
    assert (again == classifier.predict_proba(OTHERS)).all()
    assert (np.random.get_state()[1] == before).all()  # the caller's own
    other = clone(classifier).set_params(random_state=np.random.RandomState(5))
    assert (other.fit(TEXTS, LABELS).predict_proba(OTHERS) != again).any()


def test_document_vectors_are_features_of_a_pipeline() -> None:
    pipeline = make_pipeline(SopaVectorizer(**SMALL), LogisticRegression(C=100))
    assert pipeline.fit(TEXTS, LABELS).score(OTHERS[:2], ANSWERS) == 1
    vectorizer = pipeline[0]
    names = [*(f"2-{rank}" for rank in range(1, 5)), *(f"3-{rank}" for rank in range(1, 5))]
    assert vectorizer.get_feature_names_out().tolist() == names
    table = vectorizer.set_output(transform="pandas").transform(OTHERS)
    model = vectorizer.model_
    expected = model.document_vectors(model.encode_texts(OTHERS)).numpy()
    assert table.columns.tolist() == names
    assert (table.to_numpy() == expected).all()


def test_a_search_over_options_runs_in_two_processes() -> None:
    estimator = SopaClassifier(**SMALL)
    grid = {"num_epochs": [1, 15]}
    search = GridSearchCV(estimator, grid, n_jobs=2, cv=2, error_score="raise")
    search.fit(TEXTS, LABELS)
    assert search.best_params_["num_epochs"] == 15
    same = cross_val_score(clone(search.best_estimator_), TEXTS, LABELS, cv=2)
    assert same.mean() == pytest.approx(search.best_score_)


def test_a_pickle_holds_weights_and_no_modules(classifier: SopaClassifier, tmp_path: Path) -> None:
    data = pickle.dumps(classifier)
    texts = [arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)]
    assert not any("torch" in str(each) for each in texts)
    (tmp_path / "classifier.pickle").write_bytes(data)
    code = (
        "import pickle, sys; "
        "loaded = pickle.load(open('classifier.pickle', 'rb')); "
        f"print(repr(loaded.predict_proba({OTHERS!r}).tolist()))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found = np.array(eval(process.stdout))  # one thread there, several here
    assert found == pytest.approx(classifier.predict_proba(OTHERS), rel=1e-5)


def test_a_run_becomes_an_estimator_and_its_config_trains_others(tmp_path: Path) -> None:
    first = SopaClassifier(**SMALL, folder=tmp_path / "run").fit(TEXTS, LABELS)
    with pytest.raises(UserError, match="run"):  # is in the way
        first.fit(TEXTS, LABELS)
    of_run = SopaClassifier.from_run(tmp_path / "run")
    expected = load_model(tmp_path / "run").log_probabilities(OTHERS)
    assert np.log(of_run.predict_proba(OTHERS)) == pytest.approx(expected)
    assert (of_run.predict(OTHERS) == first.predict(OTHERS)).all()
    again = clone(of_run).fit(TEXTS, LABELS)
    assert (again.predict_proba(OTHERS) == first.predict_proba(OTHERS)).all()
    features = SopaVectorizer.from_run(tmp_path / "run")
    fitted = features.model_
    make_pipeline(FrozenEstimator(features), LogisticRegression()).fit(TEXTS, LABELS)
    assert features.model_ is fitted


@pytest.mark.parametrize("classes", [(-1, 1), (3, 20), (False, True), ("a ", "a"), ("", "b")])
def test_classes_are_what_was_given(classes: tuple[Any, Any]) -> None:
    labels = [classes[label == LABELS[0]] for label in LABELS]
    fitted = SopaClassifier(**SMALL | {"num_epochs": 1}).fit(TEXTS, labels)
    assert fitted.classes_.tolist() == sorted(classes)
    assert set(fitted.predict(OTHERS).tolist()) <= set(classes)


def test_what_is_no_text_or_config_is_refused(classifier: SopaClassifier) -> None:
    with pytest.raises(ValueError, match="found one text"):
        classifier.predict("Rain .")
    with pytest.raises(ValueError, match="found nan at 1"):
        classifier.predict(["Rain .", float("nan")])
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match=f"the class of each text, found {missing} at 1"):
            clone(classifier).fit(TEXTS[:2], np.array(["a", missing], object))
    with pytest.raises(ValueError, match="inconsistent"):
        clone(classifier).fit(TEXTS, LABELS[:-1])
    with pytest.raises(ConfigError, match=r"model\.encoder\.patern"):
        SopaClassifier(overrides=["model.encoder.patern=1"]).fit(TEXTS, LABELS)
    averages = SopaVectorizer(overrides=["model.encoder=mean"], num_epochs=1).fit(TEXTS, LABELS)
    with pytest.raises(UserError, match="no patterns"):
        averages.get_feature_names_out()


class Numbers:
    """Makes texts of the numbers that scikit-learn's own checks have for data."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        return tags

    def fit(self, X: Any, y: Any = None) -> Any:
        X, y = validate_data(self, X, y)
        return super().fit(spelt(X), y)  # type: ignore[misc]


class NumberClassifier(Numbers, SopaClassifier):
    def predict_proba(self, X: Any) -> Any:
        check_is_fitted(self)
        return super().predict_proba(spelt(validate_data(self, X, reset=False)))


class NumberVectorizer(Numbers, SopaVectorizer):
    def transform(self, X: Any) -> Any:
        check_is_fitted(self)
        return super().transform(spelt(validate_data(self, X, reset=False)))


def spelt(rows: Any) -> list[str]:
    return [" ".join(f"{place}x{round(float(x))}" for place, x in enumerate(row)) for row in rows]


BRIEF = SMALL | {"num_epochs": 6, "lr": 0.05}


def known_to_fail(estimator: Any) -> dict[str, str]:
    reason = "document vectors are float32, whatever the texts"
    return {"check_transformer_preserve_dtypes": reason}


@parametrize_with_checks(
    [NumberClassifier(**BRIEF), NumberVectorizer(**BRIEF)], expected_failed_checks=known_to_fail
)
def test_scikit_learns_own_checks_hold(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", [SopaClassifier, SopaVectorizer])
def test_tags_say_that_data_are_texts(kind: type[BaseEstimator]) -> None:
    tags = get_tags(kind())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.target_tags.required
