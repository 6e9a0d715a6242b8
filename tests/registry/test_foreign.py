"""Classes of other libraries: torch's optimizers and schedulers, a transformers model."""

from __future__ import annotations

import pytest
import torch
from transformers import PretrainedConfig, PreTrainedModel

from sopa_plugin.registry import ConfigError, Lazy, Registrable, build, check, fill_defaults


class Optimizer(Registrable):
    default_implementation = "adam"
    handed_over = frozenset({"params"})
    also_accepts = (torch.optim.Optimizer,)


Optimizer.register("adam")(torch.optim.Adam)
Optimizer.register("sgd")(torch.optim.SGD)


class Scheduler(Registrable):
    handed_over = frozenset({"optimizer"})
    also_accepts = (torch.optim.lr_scheduler.LRScheduler,)


Scheduler.register("step")(torch.optim.lr_scheduler.StepLR)
Scheduler.register("lambda")(torch.optim.lr_scheduler.LambdaLR)
Scheduler.register("reduce_on_plateau")(torch.optim.lr_scheduler.ReduceLROnPlateau)


@Scheduler.register("untyped")
class Untyped(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, factor, last_epoch=-1):
        self.factor = factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [self.factor * group["lr"] for group in self.optimizer.param_groups]


class Model(PreTrainedModel, Registrable):
    config_class = PretrainedConfig


@Model.register("tiny", constructor="from_parts")
class Tiny(Model):
    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(config.dim, 1)
        self.post_init()

    @classmethod
    def from_parts(cls, dim: int = 2) -> Tiny:
        return cls(PretrainedConfig(dim=dim))


class Trainer:
    def __init__(self, optimizer: Lazy[Optimizer], scheduler: Lazy[Scheduler] | None = None):
        self.optimizer, self.scheduler = optimizer, scheduler


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2))]


class TestOptimizers:
    def test_adam_by_name(self) -> None:
        adam = Optimizer.from_params({"lr": 1, "betas": [0, 0.5]}, params=parameters())
        assert type(adam) is torch.optim.Adam
        assert adam.defaults["lr"] == 1.0
        assert adam.defaults["betas"] == (0.0, 0.5)

    def test_its_arguments_are_checked(self) -> None:
        config = {
            "type": "adam",
            "lr": "0.1",
            "betas": [0.9],
            "amsgrad": 1,
            "fused": None,
            "weightdecay": 0,
            "params": [],
        }
        found = {each.path: each for each in check(Optimizer, config)}
        assert found.keys() == {"lr", "betas", "amsgrad", "weightdecay", "params"}
        assert found["lr"].hint == "remove the quotes"
        assert found["weightdecay"].hint == "did you mean 'weight_decay'?"

    def test_a_value_torch_refuses_is_a_problem(self) -> None:
        with pytest.raises(ConfigError, match="Invalid learning rate"):
            Optimizer.from_params({"lr": -1}, params=parameters())

    def test_any_other_by_its_dotted_path(self) -> None:
        radam = Optimizer.from_params("torch.optim.RAdam", params=parameters())
        assert type(radam) is torch.optim.RAdam
        assert check(Optimizer, "torch.nn.Linear")[0].what.endswith("not a subclass of Optimizer")
        assert "not a subclass" in check(Optimizer, "torch.optim.Optimizer")[0].what

    @pytest.mark.parametrize("name", ["adam", "sgd", "torch.optim.Adagrad", "torch.optim.AdamW"])
    def test_defaults_are_filled_in_and_build_the_same(self, name: str) -> None:
        filled = fill_defaults(Optimizer, name)
        assert filled["type"] == name
        assert "params" not in filled
        assert fill_defaults(Optimizer, filled) == filled
        first = Optimizer.from_params(name, params=parameters())
        assert first.defaults == Optimizer.from_params(filled, params=parameters()).defaults


class TestSchedulers:
    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters(), lr=1.0)

    def test_typed_arguments_are_checked(self) -> None:
        config = {"type": "reduce_on_plateau", "mode": "mix", "min_lr": ["a"], "patience": 2}
        assert {each.path for each in check(Scheduler, config)} == {"mode", "min_lr.0"}
        (problem,) = check(Scheduler, {"type": "step"})
        assert problem.path == "step_size"
        config = {"type": "step", "step_size": 2}
        assert Scheduler.from_params(config, optimizer=self.optimizer()).step_size == 2

    def test_untyped_arguments_take_anything(self) -> None:
        scheduler = Scheduler.from_params(
            {"type": "untyped", "factor": 0.5}, optimizer=self.optimizer()
        )
        assert scheduler.factor == 0.5
        assert check(Scheduler, {"type": "untyped", "factor": {"a": [None]}}) == []
        assert [each.path for each in check(Scheduler, {"type": "untyped"})] == ["factor"]


def test_lazily_the_optimizer_then_its_scheduler() -> None:
    config = {"optimizer": "sgd", "scheduler": {"type": "step", "step_size": 1, "gamma": 0.5}}
    trainer = build(Trainer, config)
    optimizer = trainer.optimizer.construct(params=parameters())
    scheduler = trainer.scheduler.construct(optimizer=optimizer)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0005)


def test_a_pretrained_model_is_built_by_its_constructor() -> None:
    model = Model.from_params({"type": "tiny", "dim": 3})
    assert model.layer.in_features == 3
    assert fill_defaults(Model, "tiny") == {"type": "tiny", "dim": 2}
    (problem,) = check(Model, {"type": "tiny", "config": {}})
    assert problem.what == "unknown key"
