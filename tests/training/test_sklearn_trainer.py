from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from sklearn.linear_model import LogisticRegression

from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.models import Tfidf, load_model
from sopa_plugin.registry import ConfigError
from sopa_plugin.training import SklearnTrainer, evaluate_run, run_experiment

CONFIG = {
    "dataset": {"type": "sst", "path": "fixtures/sst"},
    "model": {"type": "tfidf"},
    "trainer": {"type": "sklearn", "C": 10.0},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sklearn") / "run"
    return folder, run_experiment(CONFIG, folder)


def test_run_folder_looks_like_any_other(run):
    folder, metrics = run
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    expected = {
        *("training_epochs", "best_epoch", "training_duration", "training_accuracy"),
        *("validation_loss", "best_validation_accuracy", "best_validation_loss"),
        *("test_accuracy", "test_macro_f1", "parameters_total", "parameters_trainable"),
    }
    assert expected <= metrics.keys()
    for name in ("experiment.json", "epochs.jsonl", "README.md", "tokenizer.json", "config.json"):
        assert (folder / name).is_file()
    assert metrics["test_accuracy"] > 0.55
    assert metrics["parameters_features"] == len(
        json.loads((folder / "features.json").read_text())["ngrams"]
    )


def test_evaluate_gives_the_same_figures(run):
    folder, metrics = run
    found = {each["split"]: each for each in evaluate_run(folder)}
    assert found["test"]["accuracy"] == metrics["test_accuracy"]
    assert found["dev"]["loss"] == pytest.approx(metrics["validation_loss"])


def test_predictions_are_kept_example_by_example(run):
    folder, metrics = run
    lines = [json.loads(each) for each in (folder / "test_predictions.jsonl").open()]
    right = [each["label"] == each["predicted"] for each in lines]
    assert np.mean(right) == metrics["test_accuracy"]
    assert all(sum(each["probabilities"].values()) == pytest.approx(1, abs=1e-5) for each in lines)


def test_predict_command(run):
    folder, _ = run
    answer = subprocess.run(
        [sys.executable, "-m", "sopa_plugin.predict", str(folder)],
        input="a moving film\n",
        capture_output=True,
        text=True,
        check=True,
    )
    probabilities = json.loads(answer.stdout)["probabilities"]
    expected = np.exp(load_model(folder).log_probabilities(["a moving film"])[0])
    assert list(probabilities.values()) == pytest.approx(expected.tolist())


def data_of(labels: dict[str, list[int]], names: list[str]) -> DatasetDict:
    words = ["zero", "one", "two", "three", "four"]
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    return DatasetDict(
        {
            split: Dataset.from_dict(
                {"text": [words[each] for each in numbers], "label": numbers}, features=features
            )
            for split, numbers in labels.items()
        }
    )


def train(data: DatasetDict, names: list[str], tmp_path) -> Tfidf:
    from sopa_plugin.training import RunFolder

    model = Tfidf(make_tokenizer(["zero", "one", "two", "three", "four"]), names)
    folder = RunFolder(tmp_path / "run", {})
    folder.start()
    SklearnTrainer(C=100).train(model, data, folder, seed=1)
    return model


def test_more_than_two_classes_as_scikit_learn_has_them(tmp_path):
    data = data_of({"train": [0, 1, 2] * 4, "dev": [0, 1, 2]}, ["a", "b", "c"])
    model = train(data, ["a", "b", "c"], tmp_path)
    texts = ["zero", "one one two", ""]
    regression = LogisticRegression(C=100, max_iter=1000)
    regression.fit(model.features(data["train"]["text"]), data["train"]["label"])
    np.testing.assert_allclose(
        model.log_probabilities(texts),
        regression.predict_log_proba(model.features(texts)),
        rtol=1e-6,
    )


def test_one_class_alone_is_an_error(tmp_path):
    with pytest.raises(UserError, match="examples of one class alone"):
        train(data_of({"train": [0, 0], "dev": [0]}, ["a", "b"]), ["a", "b"], tmp_path)


@pytest.mark.parametrize("present", [[0, 2], [0, 2, 3]])
def test_classes_without_examples_are_kept_and_never_predicted(present, tmp_path):
    """The others are as without them, but for their share of the probability."""
    names = ["a", "b", "c", "d", "e"]
    data = data_of({"train": present * 4, "dev": present}, names)
    model = train(data, names, tmp_path)
    texts = [*data["train"]["text"], "", "never seen"]
    found = np.exp(model.log_probabilities(texts))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    regression = LogisticRegression(C=100, max_iter=1000)
    regression.fit(model.features(data["train"]["text"]), data["train"]["label"])
    alone = found[:, present] / found[:, present].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        alone, regression.predict_proba(model.features(texts)), rtol=1e-5, atol=1e-9
    )
    assert set(found.argmax(axis=1)) <= set(present)


def test_trainer_and_model_must_fit(tmp_path):
    with pytest.raises(ConfigError, match=r"'accelerate' does not train the model 'tfidf'"):
        run_experiment({**CONFIG, "trainer": {"type": "accelerate"}}, tmp_path / "run")
