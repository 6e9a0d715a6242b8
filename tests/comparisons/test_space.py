from __future__ import annotations

from pathlib import Path

import pytest

from sopa_plugin.comparisons.space import Parameter, draw, put, space_problems
from sopa_plugin.registry import build, check, load_config

CONFIGS = Path(__file__).parents[2] / "configs"

BASE = {
    "dataset": {"type": "sst", "path": "fixtures/sst"},
    "model": {
        "type": "text_classifier",
        "embedder": {"type": "static", "vectors": "fixtures/vectors.txt"},
        "encoder": {"type": "sopa", "patterns": {"3": 2}},
    },
}


def parameters_of(config) -> dict[str, Parameter]:
    return build(dict[str, Parameter], config)


SPACE = {
    "lr": {
        "type": "uniform",
        "low": 0.001,
        "high": 0.1,
        "log": True,
        "keys": ["trainer.optimizer.lr"],
    },
    "hidden": {"type": "integer", "low": 10, "high": 12, "keys": ["model.head.hidden_dim"]},
    "model.encoder.patterns": {"values": [{"3": 1}, {"4": 2, "2": 1}]},
    "dropout": {"values": [0.0, 0.5], "keys": ["model.encoder.dropout", "model.head.dropout"]},
}


def test_draws_are_in_range_and_all_values_come_up():
    parameters = parameters_of(SPACE)
    drawn = [draw(parameters, 1, trial) for trial in range(40)]
    assert all(0.001 <= each["lr"] <= 0.1 for each in drawn)
    assert sum(each["lr"] < 0.01 for each in drawn) in range(10, 31)  # half, on a log scale
    assert {each["hidden"] for each in drawn} == {10, 11, 12}
    assert {str(each["model.encoder.patterns"]) for each in drawn} == {
        "{'3': 1}",
        "{'2': 1, '4': 2}",
    }


def test_a_trial_draws_the_same_whatever_was_drawn_before():
    parameters = parameters_of(SPACE)
    alone = draw(parameters, 1, 7)
    draw(parameters, 1, 3)
    assert draw(parameters, 1, 7) == alone
    assert draw(parameters, 2, 7) != alone


def test_values_go_where_the_keys_say():
    parameters = parameters_of(SPACE)
    config = put(BASE, parameters, {"dropout": 0.5, "model.encoder.patterns": {"5": 1}})
    assert config["model"]["encoder"] == {"type": "sopa", "patterns": {"5": 1}, "dropout": 0.5}
    assert config["model"]["head"]["dropout"] == 0.5
    assert "head" not in BASE["model"]


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"values": [0.1, "much"], "keys": ["model.head.dropout"]}, "much"),
        ({"values": [3], "keys": ["model.head.hiden_dim"]}, "hidden_dim"),
        ({"type": "uniform", "low": 0, "high": 1, "keys": ["model.encoder.dropout"]}, "below 1"),
    ],
)
def test_every_value_is_checked_before_anything_runs(parameter, message):
    problems = dict(space_problems(BASE, parameters_of({"some": parameter})))
    assert message in problems["some"]


@pytest.mark.parametrize(
    "parameter",
    [
        {"values": []},
        {"type": "uniform", "low": 2, "high": 1},
        {"type": "integer", "low": 0, "high": 1, "log": True},
    ],
)
def test_parameters_that_make_no_sense(parameter):
    assert check(Parameter, parameter)


DRAWS = {
    "hard": {"C": "56205245", "min_frequency": "30680774"},
    "dan": {"hidden": "12203242", "learning_rate": "01012222", "word_dropout": "12211232"},
    "bilstm": {
        "dim": "12201222",
        "dropout": "23212112",
        "hidden": "30430404",
        "learning_rate": "30133220",
    },
    "cnn": {
        "dropout": "12203232",
        "filters": "12101001",
        "hidden": "30430404",
        "learning_rate": "30133220",
        "window": "10022222",
    },
    "sopa": {
        "dropout": "12203232",
        "hidden": "12103003",
        "learning_rate": "12211232",
        "patterns": "43023111",
    },
    "tfidf": {"C": "56205245", "ngram": "20020000"},
    "bag_of_vectors": {"C": "12203242"},
    "minilm_linear": {"learning_rate": "12203232"},
}
"""Of the shipped spaces: which of its values each parameter has in trials 0 to 7, seed 1.

Results are kept by trial, so these stay as they are.
"""
LIKE = {
    "sopa_minilm": "sopa",
    "sopa_log": "sopa",
    "sopa_sum_product": "sopa",
    **{f"{name}_whitened": name for name in DRAWS},
}
"""Spaces with the values of another one."""
SPACES = load_config(CONFIGS / "lib" / "spaces.libsonnet")


@pytest.mark.parametrize("name", SPACES)
def test_shipped_spaces_draw_what_they_have_always_drawn(name):
    like = "sopa" if name.startswith("sopa_max_sum") else LIKE.get(name, name)
    parameters = parameters_of(SPACES[name])
    for trial in range(8):
        assert draw(parameters, 1, trial) == {
            key: SPACES[name][key]["values"][int(numbers[trial])]
            for key, numbers in DRAWS[like].items()
        }


@pytest.mark.parametrize(
    "file", sorted((CONFIGS / "search").glob("*.jsonnet")), ids=lambda file: file.stem
)
def test_shipped_searches_draw_from_these_spaces(file):
    config = load_config(file)
    assert config["parameters"] == SPACES[file.stem]
    assert config.get("seed", 1) == 1
