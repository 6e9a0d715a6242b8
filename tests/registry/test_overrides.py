"""`-o a.b=value`: what it sets, what it drops, what it refuses."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sopa_plugin.registry import (
    ConfigError,
    Lazy,
    Registrable,
    apply_overrides,
    build,
    check,
    fill_defaults,
)


class Encoder(Registrable):
    handed_over = frozenset({"input_dim"})


@Encoder.register("sopa")
class Sopa(Encoder):
    def __init__(self, input_dim: int, patterns: dict[int, int], dropout: float = 0.0) -> None: ...


@Encoder.register("cnn")
class Cnn(Encoder):
    def __init__(self, input_dim: int, num_filters: int = 100, dropout: float = 0.0) -> None: ...


@Encoder.register("released")
class Released(Encoder):
    def __init__(self, input_dim: int, patterns: dict[int, int]) -> None: ...


class Optimizer(Registrable):
    default_implementation = "adam"


@Optimizer.register("adam")
class Adam(Optimizer):
    def __init__(self, lr: float = 0.001, eps: float = 1e-8) -> None: ...


@Optimizer.register("sgd")
class Sgd(Optimizer):
    def __init__(self, lr: float = 0.1, momentum: float = 0.0) -> None: ...


class Experiment:
    def __init__(
        self,
        encoder: Lazy[Encoder],
        optimizer: Lazy[Optimizer] = Lazy(Optimizer, {"type": "adam", "lr": 0.5}),  # noqa: B008
        second: Encoder | None = None,
        layers: list[Encoder] | None = None,
        name: str = "run",
        notes: Any = None,
        limit: int | None = None,
        sizes: tuple[int, ...] = (1, 2),
        seed: int = 1,
    ) -> None: ...


CONFIG = {"encoder": {"type": "sopa", "patterns": {"6": 10}, "dropout": 0.1}, "seed": 3}


def changed(*overrides: str, config: Any = CONFIG) -> dict[str, Any]:
    """What the overrides change in the config."""
    after = apply_overrides(Experiment, config, overrides)
    return {key: value for key, value in after.items() if config.get(key) != value}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=5", {"seed": 5}),
        ("name=5", {"name": 5}),  # JSON if it parses; `check` says that it is no string
        ('name="5"', {"name": "5"}),
        ("name=a=b c", {"name": "a=b c"}),
        ("name=NaN", {"name": "NaN"}),
        ("name=", {"name": ""}),
        ("limit=null", {"limit": None}),
        ("sizes=[3, 4]", {"sizes": [3, 4]}),
        ("sizes.1=7", {"sizes": [1, 7]}),
        ("notes.a.b=x", {"notes": {"a": {"b": "x"}}}),
        ("optimizer.eps=1", {"optimizer": {"type": "adam", "lr": 0.5, "eps": 1}}),
        ("optimizer.type=sgd", {"optimizer": {"type": "sgd"}}),
        ("optimizer=sgd", {"optimizer": "sgd"}),
        ("optimizer.type=adam", {"optimizer": {"type": "adam", "lr": 0.5, "eps": 1e-8}}),
        ("second.type=cnn", {"second": {"type": "cnn"}}),
        ("second=cnn", {"second": "cnn"}),
        ("second=null", {"second": None}),
        (
            "encoder.patterns.6=20",
            {"encoder": {"type": "sopa", "patterns": {"6": 20}, "dropout": 0.1}},
        ),
        (
            "encoder.patterns.5=20",
            {"encoder": {"type": "sopa", "patterns": {"6": 10, "5": 20}, "dropout": 0.1}},
        ),
        ('encoder={"type": "cnn"}', {"encoder": {"type": "cnn"}}),
    ],
)
def test_one_override(override: str, expected: dict[str, Any]) -> None:
    config = CONFIG
    if expected.get("second", 0) is None or "limit" in expected:
        config = CONFIG | {"second": "cnn", "limit": 3}
    assert changed(override, config=config) == expected


def test_the_config_itself_stays_as_it_is() -> None:
    before = {"encoder": {"type": "sopa", "patterns": {"6": 10}}, "layers": ["cnn"]}
    after = apply_overrides(Experiment, before, ["encoder.patterns.6=1", "layers.0.dropout=0.5"])
    assert before == {"encoder": {"type": "sopa", "patterns": {"6": 10}}, "layers": ["cnn"]}
    assert after["layers"] == [{"type": "cnn", "dropout": 0.5}]


def test_a_string_that_stands_for_a_part_becomes_an_object() -> None:
    config = {"encoder": "cnn"}
    assert changed("encoder.num_filters=5", config=config) == {
        "encoder": {"type": "cnn", "num_filters": 5}
    }


class TestChangedType:
    def test_the_old_arguments_are_dropped_and_that_is_said(self, caplog) -> None:
        with caplog.at_level(logging.WARNING):
            assert changed("encoder.type=cnn") == {"encoder": {"type": "cnn"}}
        assert "encoder is now 'cnn'" in caplog.text
        assert "the arguments of 'sopa' are dropped" in caplog.text
        assert 'patterns={"6": 10}' in caplog.text
        assert "dropout=0.1" in caplog.text

    @pytest.mark.parametrize("override", ["encoder.type=released", "encoder=released"])
    def test_what_the_new_type_requires_is_kept(self, override, caplog) -> None:
        expected = {"encoder": {"type": "released", "patterns": {"6": 10}}}
        assert changed(override) == expected
        assert 'dropped: dropout=0.1; kept, since it needs them: patterns={"6": 10}' in caplog.text
        assert changed('encoder={"type": "released"}') == {"encoder": {"type": "released"}}

    @pytest.mark.parametrize("override", ["encoder.type=sopa", "encoder=sopa"])
    def test_the_same_type_keeps_them(self, override, caplog) -> None:
        assert changed(override) == {}
        assert caplog.text == ""

    def test_the_default_type_keeps_them(self, caplog) -> None:
        config = CONFIG | {"optimizer": {"eps": 1}}
        assert changed("optimizer.type=adam", config=config) == {
            "optimizer": {"type": "adam", "eps": 1}
        }

    def test_defaults_that_nobody_wrote_are_dropped_in_silence(self, caplog) -> None:
        assert changed("optimizer.type=sgd") == {"optimizer": {"type": "sgd"}}
        assert caplog.text == ""

    def test_the_first_type_keeps_what_is_there(self) -> None:
        config = {"encoder": {"num_filters": 3}}
        assert changed("encoder.type=cnn", config=config) == {
            "encoder": {"type": "cnn", "num_filters": 3}
        }

    def test_replacing_the_whole_part_is_said_too(self, caplog) -> None:
        changed('encoder={"type": "cnn"}')
        assert "the arguments of 'sopa' are dropped" in caplog.text

    @pytest.mark.parametrize("order", [1, -1])
    def test_arguments_of_the_new_type_may_come_in_any_order(self, order) -> None:
        overrides = ["encoder.type=cnn", "encoder.num_filters=5"][::order]
        assert changed(*overrides) == {"encoder": {"type": "cnn", "num_filters": 5}}


class TestRefused:
    @pytest.mark.parametrize(
        ("override", "path", "words"),
        [
            ("seed.x=1", "seed.x", "seed has no keys"),
            ("sizes.2=1", "sizes.2", "no such item"),
            ("sizes.last=1", "sizes.last", "no such item"),
            ("seed", "-o seed", "a.b=value"),
            ("=1", "-o =1", "a.b=value"),
            ("encoder..x=1", "-o encoder..x=1", "a.b=value"),
        ],
    )
    def test_with_its_path(self, override, path, words) -> None:
        with pytest.raises(ConfigError) as caught:
            apply_overrides(Experiment, CONFIG, [override])
        (problem,) = caught.value.problems
        assert problem.path == path
        assert words in str(problem)

    @pytest.mark.parametrize(
        ("override", "path", "words"),
        [
            ("sede=1", "sede", "did you mean 'seed'"),
            ("encodr.dropout=1", "encodr", "did you mean 'encoder'"),
            ("encoder.droput=1", "encoder.droput", "did you mean 'dropout'"),
            ("encoder.num_filters=1", "encoder.num_filters", "unknown key"),
            ("encoder.input_dim=1", "encoder.input_dim", "handed over"),
            ("name.x=1", "name", "a string"),
            ("optimizer.lr.x=1", "optimizer.lr.x", "optimizer.lr has no keys"),
        ],
    )
    def test_the_check_judges_the_rest(self, override, path, words) -> None:
        with pytest.raises(ConfigError) as caught:
            build(Experiment, apply_overrides(Experiment, CONFIG, [override]))
        (problem,) = caught.value.problems
        assert problem.path == path
        assert words in str(problem)

    def test_together_with_the_problems_of_the_config(self) -> None:
        config = CONFIG | {"name": 3}
        with pytest.raises(ConfigError) as caught:
            apply_overrides(Experiment, config, ["sede=1", "seed.x=1", "encoder.droput=1", "x"])
        assert {each.path for each in caught.value.problems} == {
            "-o x",
            "seed.x",
            "name",
            "sede",
            "encoder.droput",
        }

    def test_an_override_may_mend_the_config(self) -> None:
        config = {"encoder": {"type": "sopa"}}
        assert changed("encoder.patterns.2=3", config=config) == {
            "encoder": {"type": "sopa", "patterns": {"2": 3}}
        }

    @pytest.mark.parametrize("wrong", [3, ["cnn"]])
    def test_a_part_that_is_no_object_is_not_papered_over(self, wrong) -> None:
        with pytest.raises(ConfigError) as caught:
            apply_overrides(Experiment, {"encoder": wrong}, ["encoder.dropout=0.5"])
        assert [each.path for each in caught.value.problems] == ["encoder.dropout", "encoder"]

    def test_keys_of_an_unknown_type_wait_for_the_check(self) -> None:
        config = apply_overrides(Experiment, {"encoder": "snn"}, ["encoder.num_filters=5"])
        assert [each.path for each in check(Experiment, config)] == ["encoder.type"]


def test_a_filled_config_takes_overrides_like_the_one_it_came_from() -> None:
    filled = fill_defaults(Experiment, CONFIG)
    overrides = ["encoder.type=cnn", "optimizer.lr=1", "sizes.0=9"]
    first = apply_overrides(Experiment, filled, overrides)
    second = fill_defaults(Experiment, apply_overrides(Experiment, CONFIG, overrides))
    assert fill_defaults(Experiment, first) == second


def test_a_single_override_is_no_list_of_them() -> None:
    with pytest.raises(TypeError, match=r"expected a list, found one string; give \['seed=1'\]"):
        apply_overrides(Experiment, CONFIG, "seed=1")
