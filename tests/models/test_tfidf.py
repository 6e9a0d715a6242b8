from __future__ import annotations

import math

import numpy as np
import pytest

from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.models import Tfidf, load_model

TRAIN = ["good film", "bad film", "good good taste"]


def model_of(**options) -> Tfidf:
    words = dict.fromkeys(word for text in TRAIN for word in text.split())
    return Tfidf(make_tokenizer(words), ["negative", "positive"], **options)


def test_weights_by_hand():
    model = model_of(max_ngram=1, sublinear=True)
    features = model.fit_features(TRAIN).toarray()
    ngrams = model.feature_state()[0]["ngrams"]
    assert ngrams == ["bad", "film", "good", "taste"]
    # scikit-learn's idf: 1 + log((1 + documents) / (1 + documents with the word))
    once, twice = 1 + math.log(4 / 2), 1 + math.log(4 / 3)
    row = np.array([0, 0, (1 + math.log(2)) * twice, once])
    np.testing.assert_allclose(features[2], row / np.linalg.norm(row))


def test_ngrams_unknown_words_and_empty_texts():
    model = model_of(max_ngram=2)
    model.fit_features(TRAIN)
    ngrams = model.feature_state()[0]["ngrams"]
    assert "good film" in ngrams
    features = model.features(["a good film", "an unheard thing", ""]).toarray()
    assert {ngrams[i] for i in features[0].nonzero()[0]} == {"good", "film", "good film"}
    assert not features[1:].any()


def test_limits():
    assert model_of(max_ngram=1, min_documents=2).fit_features(TRAIN).shape[1] == 2
    assert model_of(max_ngram=2, max_features=3).fit_features(TRAIN).shape[1] == 3
    with pytest.raises(UserError, match="no n-gram is in 4 of the 3 training documents"):
        model_of(min_documents=4).fit_features(TRAIN)


def test_saved_and_loaded(tmp_path):
    model = model_of(max_ngram=2, max_features=4)
    count = model.fit_features(TRAIN).shape[1]
    model.coefficients = np.random.default_rng(0).normal(size=(1, count))
    model.save(tmp_path)
    texts = [*TRAIN, "taste the film", ""]
    np.testing.assert_array_equal(
        load_model(tmp_path).log_probabilities(texts), model.log_probabilities(texts)
    )
    assert model.log_probabilities([]).shape == (0, 2)
