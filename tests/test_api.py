"""The functions of the package itself, which do what the commands do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sopa_plugin
from sopa_plugin import evaluate_model, load_model, predict_texts, train_model
from sopa_plugin.compiled import CompiledClassifier, load_compiled
from sopa_plugin.errors import UserError
from sopa_plugin.registry import ConfigError

TEXTS = ["Rain and thunder all night .", "Stir the sauce .", ""]
DATA = Path(__file__).parents[1] / "fixtures" / "text" / "csv"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    content: dict[str, Any] = {
        "dataset": {"type": "text", "path": str(DATA)},
        "tokenizer": "words",
        "model": {
            "embedder": {"type": "static", "embedding_dim": 10},
            "encoder": {"type": "sopa", "patterns": {"2": 3}},
        },
        "trainer": {"num_epochs": 5},
    }
    (folder / "topics.json").write_text(json.dumps(content))
    return folder / "topics.json"


@pytest.fixture(scope="module")
def run(config: Path) -> Path:
    folder = config.parent / "run"
    train_model(config, folder, ["trainer.num_epochs=2"])
    return folder


def test_training_gives_the_model_of_the_folder(run: Path) -> None:
    assert json.loads((run / "experiment.json").read_text())["trainer"]["num_epochs"] == 2
    assert set(load_model(run).labels) == set(load_model(str(run)).labels)
    with pytest.raises(UserError, match="--force"):
        train_model(json.loads((run / "experiment.json").read_text()), run, ["seed=3"])


def test_a_config_in_memory_needs_a_folder(config: Path, tmp_path: Path) -> None:
    content = json.loads(config.read_text())
    with pytest.raises(TypeError, match="folder"):
        train_model(content)
    with pytest.raises(ConfigError, match=r"model\.encoder\.patern"):
        train_model(content, tmp_path / "run", ["model.encoder.patern=1"])
    assert not (tmp_path / "run").exists()


def test_figures_are_those_of_the_training(run: Path) -> None:
    test, dev = evaluate_model(run, DATA / "test.csv"), evaluate_model(run, splits=["dev"])
    metrics = json.loads((run / "metrics.json").read_text())
    assert [each["split"] for each in test + dev] == ["test", "dev"]
    assert test[0]["accuracy"] == metrics["test_accuracy"]
    assert dev[0]["accuracy"] == metrics["best_validation_accuracy"]


def test_texts_are_classified_alike_by_folder_model_and_compiled(run: Path) -> None:
    compiled = load_compiled(run)
    assert isinstance(compiled, CompiledClassifier)
    found = predict_texts(run, TEXTS)
    assert [each["text"] for each in found] == TEXTS
    for model in (load_model(run), compiled):
        for mine, theirs in zip(predict_texts(model, TEXTS), found, strict=True):
            assert mine["label"] == theirs["label"] == max(
                theirs["probabilities"], key=theirs["probabilities"].__getitem__
            )  # fmt: skip
            assert mine["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-5)
    assert predict_texts(compiled, []) == []


def test_one_text_is_refused(run: Path) -> None:
    with pytest.raises(TypeError, match=r"give \['Stir"):
        predict_texts(run, TEXTS[1])
    for model in (run, load_model(run)):
        with pytest.raises(UserError, match="text 2: the text has half of a surrogate pair"):
            predict_texts(model, ["a", "\ud800"])
    with pytest.raises(UserError, match="nowhere"):
        predict_texts(run / "nowhere", TEXTS)


def test_nothing_heavy_is_imported_for_the_names() -> None:
    code = "import sopa_plugin, sys; assert 'train_model' in dir(sopa_plugin); "
    code += "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="train_modell"):
        _ = sopa_plugin.train_modell  # type: ignore[attr-defined]
