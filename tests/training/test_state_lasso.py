"""Patterns of fewer states: what shrinks, what goes, and what a model without it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sopa_plugin.compiled import load_compiled
from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import TrainingFailed, UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.models import load_model
from sopa_plugin.registry import build
from sopa_plugin.training import run_experiment
from sopa_plugin.training.state_lasso import penalty, prune

Config = Callable[..., dict[str, Any]]
FAST: dict[str, Any] = {
    "trainer__num_epochs": 8,
    "trainer__optimizer__lr": 0.03,
    "trainer__validation_metric": "+epoch",
}


class Holder:
    """A model as far as `penalty` looks at one."""

    def __init__(self, encoder: SopaEncoder) -> None:
        self.encoder = encoder


def test_a_state_is_its_arc_and_its_loop() -> None:
    encoder = SopaEncoder(2, {3: 1, 2: 1})
    # main-path arcs out of START of 2-1 and 3-1, then 3-1's to END, then the loop between
    weights = torch.tensor([[0.6, 0.8], [3.0, 0.0], [0.0, 0.0], [0.0, 4.0]])
    with torch.no_grad():
        encoder.arcs.weight.copy_(weights)
    found = penalty(Holder(encoder))  # type: ignore[arg-type]
    assert float(found) == pytest.approx(1 + 2**0.5 * 5 + 0, abs=1e-5)
    (gradient,) = torch.autograd.grad(found, encoder.arcs.weight)
    wanted = weights / torch.tensor([[1.0], [5 / 2**0.5], [1.0], [5 / 2**0.5]])
    torch.testing.assert_close(gradient, wanted)


def test_the_loop_of_start_is_no_states() -> None:
    encoder = SopaEncoder(2, {3: 2}, semiring="max_sum")
    start, end = encoder.layout.loops[0], encoder.layout.loops[2]
    assert start is not None
    assert end is not None
    (gradient,) = torch.autograd.grad(penalty(Holder(encoder)), encoder.arcs.weight)  # type: ignore[arg-type]
    assert not gradient[start.columns].any()
    assert gradient[end.columns].any(dim=1).all()


@pytest.fixture
def texts(config: Config) -> list[str]:
    return build(DatasetReader, config()["dataset"]).read()["train"]["text"][:]  # type: ignore[no-any-return]


@pytest.mark.parametrize("head", [{"type": "linear"}, {"type": "mlp", "hidden_dim": 8}])
def test_what_ignores_words_at_the_ends_is_taken_out_without_a_difference(
    config: Config, texts: list[str], tmp_path: Path, head: dict[str, Any]
) -> None:
    patterns = {"4": 2, "3": 1, "2": 2}
    run_experiment(
        config(model__encoder__patterns=patterns, model__head=head, trainer__num_epochs=1),
        tmp_path / "run",
    )
    model: Any = load_model(tmp_path / "run")
    arcs, layout = model.encoder.arcs, model.encoder.layout
    with torch.no_grad():
        arcs.epsilon.fill_(-40.0)
        # the ends of 4-1, 4-2 without its first state, 2-2 without any
        gone = [(3, 1), (3, 3), (4, 1), (1, 1)]
        for pattern, state in gone:
            column = layout.main_path[state - 1].origin + pattern
            arcs.weight[column] = 0.0
            arcs.epsilon[column] = 3.0  # so that no match needs a token for it
            arcs.bias[column] = 0.5
            if state < layout.lengths[pattern] - 1:
                arcs.weight[layout.loops[state].origin + pattern] = 0.0
    before = model.log_probabilities(texts)
    assert prune(model, model.encode_texts(texts)) == (10, 15)
    assert model.encoder.layout.lengths == (2, 2, 3, 3)
    assert model.config.encoder["patterns"] == {"2": 2, "3": 2}
    torch.testing.assert_close(
        torch.from_numpy(model.log_probabilities(texts)),
        torch.from_numpy(before),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("strength", "encoder"),
    [
        (0.001, {"self_loops": "none"}),
        (0.008, {"semiring": "max_sum", "epsilons": False}),
        (
            0.008,
            # by default its weights start four times as long, too long for eight epochs
            {
                "semiring": "sum_product",
                "output": "score",
                "normalization": "layer",
                "boundary_tokens": True,
            },
        ),
        (0.001, {"type": "sopa_released"}),
    ],
)
def test_a_model_of_what_is_left_is_like_any_other(
    config: Config, texts: list[str], tmp_path: Path, strength: float, encoder: dict[str, Any]
) -> None:
    settings = config(**FAST, trainer__state_lasso=strength)
    settings["model"]["encoder"] |= {"patterns": {"4": 6, "3": 6}, **encoder}
    metrics = run_experiment(settings, tmp_path / "run")
    left = metrics["patterns_left"]
    assert metrics["training_epochs"] == 16
    model: Any = load_model(tmp_path / "run")
    assert model.config.encoder["patterns"] == left != {"4": 6, "3": 6}
    assert model.encoder.get_output_dim() == sum(left.values()) == len(model.encoder.layout.lengths)
    best = json.loads(
        (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()[metrics["best_epoch"]]
    )
    assert metrics["best_epoch"] == 15
    assert best["validation_loss"] == pytest.approx(metrics["best_validation_loss"])
    compiled = load_compiled(tmp_path / "run")
    if compiled is not None:
        found = torch.from_numpy(compiled.log_probabilities(texts))
        torch.testing.assert_close(
            found,
            torch.from_numpy(model.log_probabilities(texts)),
            rtol=1e-4,
            atol=1e-4,
            check_dtype=False,
        )
    explained = Explainer.from_run(tmp_path / "run").document(texts[0])
    assert model.labels[int(model.log_probabilities(texts[:1]).argmax())] in explained.to_text()


def test_where_there_are_no_states_of_patterns_it_is_refused(
    config: Config, tmp_path: Path
) -> None:
    for part, reason in (
        ({"model__encoder": "cnn"}, "needs an encoder 'sopa'"),
        ({"model__encoder__self_loops": "shared"}, "self_loops are 'state' or 'none'"),
    ):
        with pytest.raises(UserError, match=rf"trainer\.state_lasso: .*{reason}"):
            run_experiment(config(trainer__state_lasso=1.0, **part), tmp_path / "run")
        assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=r"trainer\.state_lasso: wrong value\n.*at least 0"):
        run_experiment(config(trainer__state_lasso=-1), tmp_path / "run")


def test_nothing_left_is_said(config: Config, tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"no state .* is left: lower trainer\.state_lasso"):
        run_experiment(config(**FAST, trainer__state_lasso=1.0), tmp_path / "run")
