"""Every shipped config is sound, says what its name says, and trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sopa_plugin import init
from sopa_plugin.cli import read_config
from sopa_plugin.comparisons import Description, Search
from sopa_plugin.comparisons.description import Cell
from sopa_plugin.integrations.scikit_learn import SopaClassifier
from sopa_plugin.registry import apply_overrides, build, check, fill_defaults, load_config
from sopa_plugin.training import Experiment, run_experiment

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").glob("*.jsonnet"))
MODELS = ("hard", "dan", "bilstm", "cnn", "sopa")
ABLATIONS = (
    "sopa_max_sum",
    "sopa_max_sum_no_self_loops",
    "sopa_max_sum_no_epsilons",
    "sopa_max_sum_no_self_loops_no_epsilons",
)
DATA = ("sst", "amazon", "roc")


@pytest.fixture(autouse=True)
def _embedded_samples(monkeypatch):
    """Configs find the fixtures from the project's folder, whatever the environment says."""
    monkeypatch.chdir(ROOT)
    for name in ("SST", "AMAZON", "ROC", "RULES", "VECTORS", "MINILM", "LOWERCASE", "BUDGET"):
        monkeypatch.delenv(f"SOPA_{name}", raising=False)


def described(kind, path, overrides=()):
    return build(kind, read_config(kind, path, overrides, ()))


def test_every_row_of_the_paper_has_its_config():
    names = {path.stem for path in CONFIGS}
    assert {f"{model}_{data}" for model in (*MODELS, *ABLATIONS) for data in DATA} <= names


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_is_sound_and_named_by_its_data(path):
    config = load_config(path)
    assert check(Experiment, config) == []
    assert path.stem.endswith(f"_{config['dataset']['type']}")


def test_library_and_the_self_contained_example_agree(monkeypatch):
    monkeypatch.setenv("SOPA_SST", "trees")  # the sample has batches of its own
    example = load_config(ROOT / "configs" / "sopa_sst.jsonnet")
    other = load_config(ROOT / "configs" / "sopa_roc.jsonnet")
    for key in ("model", "trainer", "seed"):
        assert other[key] == example[key]


def test_the_default_setting_is_the_same_wherever_it_is_written(monkeypatch, tmp_path):
    """Chosen once for all data sets: configs/experiments/README.md, "One default"."""
    monkeypatch.setenv("SOPA_SST", "trees")  # the sample has batches of its own
    data = tmp_path / "texts.csv"
    data.write_text("text,label\n" + "".join(f"film {n},{n % 2}\n" for n in range(2000)))
    own = str(tmp_path / "own.jsonnet")
    init.main([own, "--data", str(data), "--vectors", "fixtures/vectors.txt"])
    one_default = load_config(ROOT / "configs" / "experiments" / "one_default.jsonnet")
    written = [load_config(ROOT / "configs" / f"sopa_{name}.jsonnet") for name in DATA]
    written += [load_config(own), one_default["models"][0]["config"]]
    written += [SopaClassifier(vectors="fixtures/vectors.txt")._config(num_texts=2000)]
    for config in written:
        model, trainer = config["model"], config["trainer"]
        assert model["head"] == {"type": "linear", "dropout": 0.5}
        assert model["encoder"]["patterns"] == {"4": 100, "3": 100, "2": 100}
        assert model["encoder"]["dropout"] == 0.1
        assert model["embedder"]["whiten"] == 1
        assert trainer["batch_size"] == 50
        decaying = {"type": "adamw", "weight_decay": 0.1}
        assert trainer["optimizer"] == {**decaying, "lr": 0.0035, "fused": True}


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_take_away_what_they_say(name):
    encoder = load_config(ROOT / "configs" / f"{name}_sst.jsonnet")["model"]["encoder"]
    assert (encoder["semiring"], encoder["encoding"]) == ("max_sum", "identity")
    assert (encoder.get("self_loops") == "none") == ("no_self_loops" in name)
    assert (encoder.get("epsilons") is False) == ("no_epsilons" in name)


@pytest.mark.parametrize(
    "name",
    [
        "sopa_roc",
        "cnn_amazon",
        "bilstm_roc",
        "dan_sst",
        "hard_amazon",
        ABLATIONS[3] + "_sst",
        "sopa_sum_product_sst",
    ],
)
def test_trains_one_epoch(name, tmp_path):
    overrides = ["dataset.max_train_examples=40", "dataset.max_tokens=30"]
    if not name.startswith("hard"):
        overrides.append("trainer.num_epochs=1")
    config = load_config(ROOT / "configs" / f"{name}.jsonnet", overrides, Experiment)
    metrics = run_experiment(config, tmp_path / "run")
    assert 0 <= metrics["test_accuracy"] <= 1


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs" / "search").glob("*")), ids=lambda path: path.stem
)
def test_search_spaces_fit_their_base(path):
    search = described(Search, str(path))
    assert search.num_trials == 30
    assert (ROOT / "configs" / f"{path.stem}_sst.jsonnet").is_file()


def test_a_space_fits_the_other_data_sets_too():
    space = str(ROOT / "configs" / "search" / "sopa.jsonnet")
    base = json.dumps(load_config(ROOT / "configs" / "sopa_roc.jsonnet"))
    search = described(Search, space, [f"base={base}", "num_trials=5", "base.model.head=mlp"])
    assert search.base["dataset"]["type"] == "roc"
    assert search.num_trials == 5


EXPERIMENTS = sorted((ROOT / "configs" / "experiments").glob("*.jsonnet"))
DEFAULTS = [path for path in EXPERIMENTS if "default" in path.stem]


@pytest.mark.parametrize("path", DEFAULTS, ids=lambda path: path.stem)
def test_defaults_are_sought_and_tried_on_five_data_sets(path):
    description = described(Description, str(path))
    assert list(description.data) == ["sst", "roc", "amazon", "trec", "atis"]
    trials = {"one_default": 0, "default_bilstm": 12}.get(path.stem, 40)
    assert description.tuning.num_trials == trials
    shipped = load_config(ROOT / "configs" / "sopa_roc.jsonnet")
    if not trials:
        config = description.config(Cell("roc", "sopa_default", None), 1)
        assert config == shipped
    else:
        assert description.sizes == [500]


@pytest.mark.parametrize("budget", ["small", "paper"])
@pytest.mark.parametrize(
    "path",
    [path for path in EXPERIMENTS if path not in DEFAULTS and path.stem not in ("rules", "sparse")],
    ids=lambda path: path.stem,
)
def test_experiments_are_sound(path, budget, monkeypatch):
    monkeypatch.setenv("SOPA_BUDGET", budget)
    description = described(Description, str(path))
    assert description.tuning.num_trials == {"small": 8, "paper": 30}[budget]
    assert len(description.seeds) == 3
    epochs = description.tuning.limit("num_epochs", "sst", None)
    small = 30 if Path(path).stem == "minilm" else 60
    assert epochs == {"small": small, "paper": 250}[budget]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("films", [20, 100, None]), ("atis", [40, 398, None]), ("trec", [50, 496, None])],
)
def test_no_dev_label_decides_in_the_experiment_on_rules(name, sizes, monkeypatch):
    monkeypatch.setenv("SOPA_RULES_SET", name)
    description = described(Description, "configs/experiments/rules.jsonnet")
    assert description.sizes == sizes
    assert description.tuning.num_trials == 0
    for cell in description.cells():
        trainer = description.config(cell, 1)["trainer"]
        assert cell.model == "tfidf" or trainer["validation_metric"] == "+epoch"
        assert trainer.get("patience") is None
    untrained = description.config(description.cells()[0], 1)
    assert untrained["trainer"]["num_epochs"] == 0


def test_the_experiment_on_small_models_varies_the_patterns_alone():
    description = described(Description, "configs/experiments/sparse.jsonnet")
    given = description.lines["given"]
    configs = {cell.model: description.config(cell, 1) for cell in description.cells()}
    strengths = {name: configs[name]["trainer"].pop("state_lasso") for name in configs}
    assert [name for name in configs if not strengths[name]] == given
    for config in configs.values():
        assert config["model"]["encoder"].pop("patterns")
        assert config == configs["fifty"]


def test_published_figures_are_the_papers():
    published = described(Description, "configs/experiments/curve_sst.jsonnet").published
    assert published.accuracy("sopa", "sst", None) == 85.6
    assert published.accuracy("sopa", "sst", 100) == 75.8
    assert published.accuracy("cnn", "amazon", 2500) == 86.1
    assert published.accuracy("hard", "sst", None) == 75.5


def test_real_data_by_environment(monkeypatch):
    monkeypatch.setenv("SOPA_SST", "elsewhere")
    monkeypatch.setenv("SOPA_LOWERCASE", "false")
    config = load_config(ROOT / "configs" / "dan_sst.jsonnet")
    assert config["dataset"]["path"] == "elsewhere"
    assert config["tokenizer"]["lowercase"] is False


def test_overrides_reach_every_part():
    config = load_config(ROOT / "configs" / "cnn_sst.jsonnet")
    changed = apply_overrides(Experiment, config, ["model.encoder.window_sizes=[3, 4]"])
    assert fill_defaults(Experiment, changed)["model"]["encoder"]["window_sizes"] == [3, 4]
