from __future__ import annotations

from pathlib import Path

import pytest

from sopa_plugin.comparisons import Description
from sopa_plugin.comparisons.description import Cell
from sopa_plugin.registry import ConfigError, build

FIXTURE = str(Path(__file__).parents[2] / "fixtures" / "sst")


def test_configs_of_cells(description):
    found = build(Description, description)
    assert [cell.name for cell in found.cells()] == [
        "sst.hard.60",
        "sst.dan.60",
        "sst.hard.all",
        "sst.dan.all",
    ]
    config = found.config(Cell("sst", "dan", 60), seed=2)
    assert config["dataset"]["max_train_examples"] == 60
    assert config["dataset"]["subsample_seed"] == config["seed"] == 2
    assert config["trainer"] == {
        "type": "accelerate",
        "batch_size": 32,
        "num_epochs": 3,
        "patience": 2,
    }
    # a trainer without epochs keeps what it has
    assert found.config(Cell("sst", "hard", None), 1)["trainer"] == {"type": "sklearn"}
    assert "max_train_examples" not in found.config(Cell("sst", "hard", None), 1)["dataset"]


def test_limits_by_training_size(description):
    description["tuning"]["num_epochs"] = {"60": 50, "all": 4}
    found = build(Description, description)
    assert found.config(Cell("sst", "dan", 60), 1)["trainer"]["num_epochs"] == 50
    assert found.config(Cell("sst", "dan", None), 1)["trainer"]["num_epochs"] == 4


def test_limits_of_a_data_set_that_is_taken_whole(description):
    description["tuning"]["patience"] = {"60": 5, "sst": 7, "all": 4}
    found = build(Description, description)
    assert found.config(Cell("sst", "dan", None), 1)["trainer"]["patience"] == 7
    assert found.config(Cell("sst", "dan", 60), 1)["trainer"]["patience"] == 5
    description["data"].append({**description["data"][0], "name": "other"})
    other = build(Description, description)
    assert other.config(Cell("other", "dan", None), 1)["trainer"]["patience"] == 4


def test_subsets_are_nested_and_the_same_for_every_model(description):
    from sopa_plugin.data.readers import DatasetReader

    description["sizes"] = [30, 60]
    found = build(Description, description)
    texts = {
        cell: DatasetReader.from_params(found.config(cell, 2)["dataset"]).read()["train"]["text"]
        for cell in found.cells()
    }
    assert list(texts[Cell("sst", "hard", 30)]) == list(texts[Cell("sst", "dan", 30)])
    assert set(texts[Cell("sst", "hard", 30)]) < set(texts[Cell("sst", "hard", 60)])


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"reference": "sopa"}, ["no model is called 'sopa'"]),
        ({"seeds": []}, ["seeds: expected at least one"]),
        ({"sizes": [0]}, ["sizes.0", "an integer of at least 1"]),
        ({"sizes": [60, None, None, 60]}, ["60 is there twice", "all is there twice"]),
        ({"seeds": [1, 1]}, ["seeds: 1 is there twice"]),
        ({"tuning": {"seed": -1}}, ["tuning.seed", "at least 0"]),
        ({"seeds": [-1]}, ["seeds.0", "at least 0 and at most 2147483647"]),
        ({"tuning": {"metric": "loss"}}, ["tuning.metric"]),
        ({"tuning": {"num_epochs": {"100": 3}}}, ["expected 'all' among the sizes"]),
        (
            {"tuning": {"num_epochs": {"stt": 3, "1OO": 3, "all": 9}}},
            ["tuning.num_epochs: ", "data sets (sst) and 'all'; found 'stt'", "found '1OO'"],
        ),
        (
            {"tuning": {"num_epochs": 0, "patience": {"sst": -1, "all": 1}}},
            ["tuning.num_epochs: ", "tuning.patience.sst: ", "an integer of at least 1"],
        ),
        ({"title": 3, "sede": 1}, ["title", "sede", "seeds"]),
    ],
)
def test_mistakes(description, change, messages):
    with pytest.raises(ConfigError) as error:
        build(Description, {**description, **change})
    for message in messages:
        assert message in str(error.value)


def test_mistakes_in_models_and_data_are_all_told_once(description):
    description["data"].append(description["data"][0])
    description["models"][1]["config"]["model"]["encoder"]["word_droput"] = 0.1
    description["models"][0]["parameters"]["C"]["values"].append(-1.0)
    try:
        with pytest.raises(ConfigError) as error:
            build(Description, description)
    finally:
        del description["models"][1]["config"]["model"]["encoder"]["word_droput"]
    text = str(error.value)
    assert "'sst' is there twice" in text
    assert text.count("word_droput") == str(error.value).count("word_droput") > 0
    assert "word_dropout" in text
    assert "models.0.parameters.C" in text


def test_values_that_do_not_go_together(description):
    both = {
        "encoder": {"keys": ["model.encoder.type"], "values": ["dan", "cnn"]},
        "window": {"keys": ["model.encoder.window_sizes"], "values": [[2], [3]]},
    }
    description["models"][1]["config"]["model"]["encoder"] = {"type": "cnn"}
    description["models"][1]["parameters"] = both
    with pytest.raises(
        ConfigError, match=r"models\.1\.parameters: trial \d draws what does not go"
    ):
        build(Description, description)
    both["window"]["keys"] = ["model.encoder.type"]
    with pytest.raises(ConfigError, match=r"'model\.encoder\.type' is varied twice"):
        build(Description, description)


def test_what_may_be_left_out_or_written_short(description):
    from sopa_plugin.data.readers import DatasetReader, SstReader

    class Fixture(SstReader):
        def __init__(self, path: str = FIXTURE, **options):
            super().__init__(path, **options)

    DatasetReader.register("for_test_fixture")(Fixture)
    for model in description["models"]:
        del model["parameters"]
    description["models"][0]["config"]["trainer"] = "sklearn"
    description["data"][0]["config"]["dataset"] = "for_test_fixture"
    config = build(Description, description).config(Cell("sst", "hard", 60), 1)
    assert config["trainer"] == {"type": "sklearn"}
    assert config["dataset"] == {
        "type": "for_test_fixture",
        "max_train_examples": 60,
        "subsample_seed": 1,
    }
