"""Whole configs: every problem at once, handed-over arguments, Lazy, defaults filled in."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_plugin.errors import UserError
from sopa_plugin.registry import (
    ConfigError,
    Lazy,
    LocalPath,
    Problem,
    Registrable,
    build,
    check,
    fill_defaults,
)

built: list[str] = []


class Encoder(Registrable):
    handed_over = frozenset({"input_dim", "labels"})


@Encoder.register("sopa")
class Sopa(Encoder):
    def __init__(
        self,
        input_dim: int,
        patterns: dict[int, int],
        semiring: Literal["max_product", "max_sum"] = "max_product",
        encoding: Literal["sigmoid", "identity"] = "sigmoid",
        dropout: float = 0.0,
    ) -> None:
        built.append("sopa")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {dropout}")
        self.given = {"patterns": patterns, "dropout": dropout}
        self.input_dim = input_dim

    @classmethod
    def check_params(cls, params: dict[str, Any]) -> Iterable[str | tuple[str, str]]:
        if params["semiring"] == "max_sum" and params["encoding"] == "sigmoid":
            yield "encoding", "max_sum takes identity; sigmoid scores would only be summed"
        if not params["patterns"]:
            yield "there is no pattern"


@Encoder.register("mean")
class Mean(Encoder):
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale


class Optimizer(Registrable):
    default_implementation = "adam"
    handed_over = frozenset({"params"})


@Optimizer.register("adam")
class Adam(Optimizer):
    def __init__(
        self, params: list[Any], lr: float = 0.1, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        self.params, self.lr, self.betas = params, lr, betas


class Reader:
    def __init__(self, path: LocalPath = "data", limit: float = math.inf) -> None:
        self.path = path


class Experiment:
    def __init__(
        self,
        reader: Reader,
        encoder: Lazy[Encoder],
        optimizer: Lazy[Optimizer] = Lazy(Optimizer, {"type": "adam", "lr": 0.5}),  # noqa: B008
        second: Encoder | None = None,
        extra: dict[str, Encoder] | None = None,
        tags: tuple[str, ...] = ("a", "b"),
        seed: int = 1,
    ) -> None:
        self.reader, self.encoder, self.optimizer, self.second = reader, encoder, optimizer, second
        self.seed = seed


GOOD = {
    "reader": {"path": "somewhere"},
    "encoder": {"type": "sopa", "patterns": {"6": 10, "5": 10}},
}


class TestCheck:
    def test_a_good_config_has_no_problem_and_nothing_is_built(self) -> None:
        built.clear()
        assert check(Experiment, GOOD) == []
        assert built == []

    def test_five_faults_of_five_kinds_are_five_problems_in_one_answer(self) -> None:
        config = {
            "reeder": {"path": "somewhere"},  # a misspelt key (and so a required one missing)
            "encoder": {"type": "spoa", "patterns": {"6": 10}},  # an unknown type
            "optimizer": {"type": "adam", "lr": "fast"},  # a wrong type
            "extra": {"one": {"type": "sopa"}},  # a required key missing
            "seed": None,  # null where it does not fit
        }
        with pytest.raises(ConfigError) as caught:
            build(Experiment, config)
        problems = caught.value.problems
        assert problems == check(Experiment, config)
        assert {each.path: each.what for each in problems} == {
            "reeder": "unknown key",
            "encoder.type": "no Encoder is called 'spoa'",
            "optimizer.lr": "wrong type",
            "extra.one.patterns": "required key is missing",
            "seed": "wrong type",
        }
        text = str(caught.value)
        assert text.startswith("the config has 5 problems:")
        assert "did you mean 'reader'?" in text
        assert "did you mean 'sopa'?" in text
        assert "expected: a number" in text
        assert 'found:    "fast" (a string)' in text

    def test_other_kinds_of_faults(self) -> None:
        config = {
            "reader": "somewhere",
            "encoder": {"type": "sopa", "patterns": {"six": 10}, "input_dim": 300},
            "second": {"type": "os.path.join"},
            "optimizer": {"betas": [0.9]},
        }
        found = {each.path: each for each in check(Experiment, config)}
        assert found["reader"].expected == "an object (arguments of Reader)"
        assert found["encoder.patterns.six"].what == "wrong key"
        assert "handed over by the builder; remove it" in found["encoder.input_dim"].hint
        assert "not a subclass" in found["second.type"].what
        assert found["optimizer.betas"].expected == "a list of 2: a number, a number"
        assert len(found) == 5

    def test_a_class_checks_its_arguments_together(self) -> None:
        encoder = {"type": "sopa", "patterns": {}, "semiring": "max_sum", "dropuot": 1}
        problems = check(Experiment, {"reader": {}, "encoder": encoder})
        assert {each.path for each in problems} == {
            "encoder",
            "encoder.encoding",
            "encoder.dropuot",
        }

    def test_the_sound_ones_are_checked_together_while_one_is_wrong(self) -> None:
        encoder = {"type": "sopa", "patterns": 3, "semiring": "max_sum"}
        problems = check(Experiment, {"reader": {}, "encoder": encoder})
        assert [each.path for each in problems] == ["encoder.patterns", "encoder.encoding"]

    @pytest.mark.parametrize("wrong", ["semiring", "encoding"])
    def test_nothing_is_said_of_what_is_wrong_already(self, wrong: str) -> None:
        encoder = {"type": "sopa", "patterns": {}, "semiring": "max_sum", wrong: "?"}
        (problem,) = check(Experiment, {"reader": {}, "encoder": encoder})
        assert problem.path == f"encoder.{wrong}"

    def test_handed_over_names_are_refused_even_where_a_part_does_not_take_them(self) -> None:
        (problem,) = check(Encoder, {"type": "mean", "labels": ["a"]})
        assert problem.what == "not to be configured"

    @pytest.mark.parametrize("config", [None, 3, "text", [1]])
    def test_a_config_that_is_no_object(self, config: Any) -> None:
        (problem,) = check(Experiment, config)
        assert problem.path == ""
        assert str(problem).startswith("(top level): ")


class TestBuild:
    def test_nested_parts_are_built_and_lazy_ones_wait(self) -> None:
        experiment = build(Experiment, GOOD | {"extra": {"x": "mean"}, "second": "mean"})
        assert isinstance(experiment.second, Mean)
        assert isinstance(experiment.encoder, Lazy)
        encoder = experiment.encoder.construct(input_dim=300, labels=["a"])
        assert encoder.input_dim == 300
        assert encoder.given == {"patterns": {6: 10, 5: 10}, "dropout": 0.0}

    def test_what_an_implementation_does_not_take_is_left_out(self) -> None:
        assert Encoder.from_params("mean", input_dim=300).scale == 1.0

    def test_an_argument_that_no_implementation_has_is_a_programming_error(self) -> None:
        with pytest.raises(TypeError, match="inputdim"):
            Encoder.from_params("mean", inputdim=300)

    def test_an_argument_not_handed_over_is_a_programming_error(self) -> None:
        with pytest.raises(TypeError, match="input_dim must be handed over"):
            Encoder.from_params(GOOD["encoder"], semiring="max_sum")
        with pytest.raises(TypeError, match="second: input_dim must be handed over"):
            build(Experiment, GOOD | {"second": GOOD["encoder"]})

    def test_a_value_refused_by_a_constructor_is_a_problem_with_its_path(self) -> None:
        encoder = GOOD["encoder"] | {"dropout": 2}
        experiment = build(Experiment, GOOD | {"encoder": encoder})
        with pytest.raises(ConfigError, match="dropout must be in") as caught:
            experiment.encoder.construct(input_dim=3)
        assert caught.value.problems[0].path == "encoder"

    def test_the_config_is_not_changed(self) -> None:
        before = json.dumps(GOOD)
        build(Experiment, GOOD)
        fill_defaults(Experiment, GOOD)
        assert json.dumps(GOOD) == before


class TestLazy:
    def test_params_and_kind(self) -> None:
        lazy = build(Lazy[Encoder], "mean")
        assert (lazy.kind, lazy.params) == (Encoder, {"type": "mean"})

    def test_each_construction_is_new(self) -> None:
        lazy = Lazy(Optimizer, "adam")
        first, second = lazy.construct(params=[1]), lazy.construct(params=[2])
        assert (first.params, second.params) == ([1], [2])

    def test_a_lazy_default_is_used_and_filled_in(self) -> None:
        experiment = build(Experiment, GOOD)
        assert experiment.optimizer.construct(params=[]).lr == 0.5
        assert fill_defaults(Experiment, GOOD)["optimizer"] == {
            "type": "adam",
            "lr": 0.5,
            "betas": [0.9, 0.999],
        }

    def test_it_is_picklable(self) -> None:
        lazy = pickle.loads(pickle.dumps(Lazy(Optimizer, {"lr": 2})))
        assert lazy.construct(params=[]).lr == 2.0


class TestFillDefaults:
    def test_every_default_is_written_out(self) -> None:
        filled = fill_defaults(Experiment, GOOD | {"second": "mean"})
        assert filled == {
            "reader": {"path": "somewhere"},  # an infinite limit cannot be written in JSON
            "encoder": {
                "type": "sopa",
                "patterns": {"6": 10, "5": 10},
                "semiring": "max_product",
                "encoding": "sigmoid",
                "dropout": 0.0,
            },
            "optimizer": {"type": "adam", "lr": 0.5, "betas": [0.9, 0.999]},
            "second": {"type": "mean", "scale": 1.0},
            "extra": None,
            "tags": ["a", "b"],
            "seed": 1,
        }
        assert json.loads(json.dumps(filled, allow_nan=False)) == filled

    def test_the_default_type_is_written_out(self) -> None:
        assert fill_defaults(Optimizer, {})["type"] == "adam"

    def test_a_config_with_problems_is_refused(self) -> None:
        with pytest.raises(ConfigError):
            fill_defaults(Experiment, {})

    def test_local_paths_become_absolute(self, tmp_path: Path, monkeypatch) -> None:
        (tmp_path / "here").mkdir()
        (tmp_path / "data").mkdir()
        monkeypatch.chdir(tmp_path)
        assert fill_defaults(Reader, {"path": "here"})["path"] == str(tmp_path / "here")
        assert fill_defaults(Reader, {})["path"] == str(tmp_path / "data")
        assert fill_defaults(Reader, {"path": "SetFit/sst2"})["path"] == "SetFit/sst2"
        assert build(Reader, {"path": "here"}).path == "here"
        monkeypatch.setenv("HOME", str(tmp_path))
        for path in ("here", "not there yet"):
            assert fill_defaults(Reader, {"path": f"~/{path}"})["path"] == str(tmp_path / path)
            assert build(Reader, {"path": f"~/{path}"}).path == str(tmp_path / path)

    ENCODERS = st.one_of(
        st.fixed_dictionaries(
            {
                "type": st.just("sopa"),
                "patterns": st.dictionaries(st.sampled_from("234"), st.integers(1, 9), min_size=1),
            },
            optional={"dropout": st.floats(0, 0.5), "semiring": st.just("max_product")},
        ),
        st.just("mean"),
        st.fixed_dictionaries({"type": st.just("mean")}, optional={"scale": st.integers(1, 3)}),
    )

    @given(
        ENCODERS,
        st.none() | st.just("adam") | st.fixed_dictionaries({}, optional={"lr": st.floats(0, 1)}),
    )
    @settings(deadline=None)  # a busy machine is no failure
    def test_filling_in_twice_changes_nothing_and_builds_the_same(self, encoder, optimizer) -> None:
        config = {"reader": {}, "encoder": encoder}
        config |= {} if optimizer is None else {"optimizer": optimizer}
        filled = fill_defaults(Experiment, config)
        assert check(Experiment, filled) == []
        assert fill_defaults(Experiment, filled) == filled
        first, second = build(Experiment, config), build(Experiment, filled)
        assert vars(first.encoder.construct(input_dim=2)) == vars(
            second.encoder.construct(input_dim=2)
        )
        assert vars(first.optimizer.construct(params=[])) == vars(
            second.optimizer.construct(params=[])
        )


class TestConfigError:
    def test_it_is_a_user_error_with_one_block_a_problem(self) -> None:
        error = ConfigError([Problem("a.b", "wrong type", "an integer", '"x"', "fix it")], "c.json")
        assert isinstance(error, UserError)
        assert str(error).splitlines() == [
            "c.json has 1 problem:",
            "  a.b: wrong type",
            "      expected: an integer",
            '      found:    "x"',
            "      fix it",
        ]

    def test_a_message_alone_is_printed_alone(self) -> None:
        assert str(ConfigError("no such file")) == "no such file"

    def test_it_crosses_processes(self) -> None:
        error = ConfigError([Problem("a", "wrong type")], "c.json")
        again = pickle.loads(pickle.dumps(error))
        assert (again.problems, str(again)) == (error.problems, str(error))
