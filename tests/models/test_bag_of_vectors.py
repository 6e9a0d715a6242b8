from __future__ import annotations

import numpy as np
import pytest

from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.models import BagOfVectors, Model, load_model


@pytest.fixture
def model(tmp_path) -> BagOfVectors:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("good 3 4\nbad -1 0\nfilm 0 2\n", encoding="utf-8")
    params = {
        "type": "bag_of_vectors",
        "embedder": {"type": "static", "vectors": str(vectors), "normalize": True},
    }
    tokenizer = make_tokenizer(["good", "bad", "film", "unlisted"])
    return Model.from_params(params, tokenizer=tokenizer, labels=["no", "yes"])


def test_features_are_averages(model):
    features = model.features(["good film", "bad", "good unlisted", "", "bad bad film film"])
    expected = [[0.3, 0.9], [-1, 0], [0.3, 0.4], [0, 0], [-0.5, 0.5]]
    np.testing.assert_allclose(features, expected, atol=1e-6)


def test_parameters(model):
    model.coefficients = np.zeros((1, 2))
    counts = model.parameter_counts()
    assert counts == {"total": 3 + 6 * 2, "trainable": 3, "features": 2, "embedder": 12}


def test_saved_and_loaded(model, tmp_path):
    model.coefficients = np.array([[1.0, -2.0]])
    model.intercepts = np.array([0.5])
    folder = tmp_path / "saved"
    folder.mkdir()
    model.save(folder)
    (tmp_path / "vectors.txt").unlink()  # the model needs no file but its own
    texts = ["good film", "bad", ""]
    loaded = load_model(folder)
    np.testing.assert_array_equal(loaded.log_probabilities(texts), model.log_probabilities(texts))
    # 0.5 + 1 * 0.3 - 2 * 0.9 = -1
    expected = np.log([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))])
    np.testing.assert_allclose(loaded.log_probabilities(texts[:1])[0], expected, rtol=1e-6)
    assert model.log_probabilities([]).shape == (0, 2)
