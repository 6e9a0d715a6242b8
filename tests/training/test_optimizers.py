"""Optimizers and schedulers by name."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from sopa_plugin.registry import Lazy, check
from sopa_plugin.training import Optimizer, Scheduler
from sopa_plugin.training.schedules import Schedule, WithSparse

REQUIRED: dict[str, dict[str, Any]] = {
    "constant": {"total_iters": 2},
    "cosine_annealing": {"T_max": 5},
    "cosine_annealing_warm_restarts": {"T_0": 3},
    "cyclic": {"base_lr": 0.01, "max_lr": 0.1},
    "exponential": {"gamma": 0.5},
    "multi_step": {"milestones": [1, 3]},
    "one_cycle": {"max_lr": 0.1},
    "step": {"step_size": 1},
}
TOTAL_STEPS = 12


def minimize(optimizer: str) -> tuple[float, float]:
    """The square of a number before and after some steps."""
    x = torch.nn.Parameter(torch.full((2, 2), 3.0))
    made: Any = Lazy(Optimizer, {"type": optimizer, "lr": 0.1}).construct(params=[x])
    for _ in range(50):
        made.zero_grad()
        x.square().sum().backward()
        made.step()
    return 36.0, float(x.detach().square().sum())


@pytest.mark.parametrize("name", [*Optimizer.list_available(), "torch.optim.NAdam"])
def test_every_optimizer_goes_downhill(name: str) -> None:
    before, after = minimize(name)
    assert after < before


def test_torch_optimizers_are_known_and_checked_by_their_own_arguments() -> None:
    assert Optimizer.list_available()[0] == "adam"
    assert {"adam", "adamw", "sgd", "rmsprop", "adagrad"} <= set(Optimizer.list_available())
    (problem,) = check(Optimizer, {"type": "sgd", "momentun": 0.9})
    assert "momentum" in str(problem)
    (problem,) = check(Optimizer, {"type": "adam", "lr": "fast"})
    assert problem.path == "lr"
    (problem,) = check(Optimizer, {"type": "adam", "params": []})
    assert problem.path == "params"


def run(name: str, steps: int, state: dict[str, Any] | None = None) -> tuple[list[float], Any]:
    """Learning rates of `steps` steps, three an epoch, and the state at the end."""
    x = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([x], lr=0.1, momentum=0.9)
    config = {"type": name, **REQUIRED.get(name, {})}
    schedule = Schedule(Lazy(Scheduler, config), optimizer, TOTAL_STEPS, larger_is_better=False)
    start = 0
    if state is not None:
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        start = state["step"]
    rates = []
    for step in range(start, start + steps):
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.after_step()
        if step % 3 == 2:
            schedule.after_epoch(1.0)
    end = {
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "step": start + steps,
    }
    file = io.BytesIO()
    torch.save(end, file)
    file.seek(0)
    return rates, torch.load(file, weights_only=True)


@pytest.mark.parametrize("name", Scheduler.list_available())
def test_every_scheduler_changes_the_rate_and_can_be_continued(name: str) -> None:
    whole, _ = run(name, TOTAL_STEPS)
    first, state = run(name, 6)
    second, _ = run(name, 6, state)
    assert first + second == whole
    if name != "reduce_on_plateau":  # it has ten epochs of patience
        assert len(set(whole)) > 1
    per_step = name in ("one_cycle", "cyclic", "linear_with_warmup", "cosine_with_warmup")
    assert (len(set(whole[:3])) > 1) == per_step


def test_the_plateau_is_that_of_the_validation_metric() -> None:
    for larger, metrics in ((True, [0.5, 0.6, 0.7]), (False, [0.7, 0.6, 0.5])):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        config = {"type": "reduce_on_plateau", "patience": 0, "factor": 0.5}
        schedule = Schedule(Lazy(Scheduler, config), optimizer, 10, larger)
        for metric in metrics:
            schedule.after_epoch(metric)
        assert optimizer.param_groups[0]["lr"] == 1.0
        schedule.after_epoch(metrics[-1])
        assert optimizer.param_groups[0]["lr"] == 0.5


def test_no_scheduler_keeps_the_rate() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = Schedule(None, optimizer, 10, True)
    schedule.after_step()
    schedule.after_epoch(1.0)
    assert optimizer.param_groups[0]["lr"] == 1.0
    assert schedule.state_dict() == {}


def rows_and_weight() -> tuple[torch.nn.Embedding, torch.nn.Parameter]:
    torch.manual_seed(0)
    return torch.nn.Embedding(6, 2, sparse=True), torch.nn.Parameter(torch.ones(2))


def test_rows_with_sparse_gradients_take_steps_of_their_own() -> None:
    rows, weight = rows_and_weight()
    before = rows.weight.detach().clone()
    dense: Any = Lazy(Optimizer, {"type": "adam", "lr": 0.1}).construct(params=[weight])
    optimizer = WithSparse(dense, [rows.weight], lr=0.01)
    (rows(torch.tensor([1, 4, 4])) * weight).sum().backward()
    optimizer.step()
    moved = (rows.weight.detach() - before).abs()
    torch.testing.assert_close(moved[[1, 4]], torch.full((2, 2), 0.01))  # as Adam's first step
    assert not moved[[0, 2, 3, 5]].any()
    optimizer.zero_grad()
    assert rows.weight.grad is None


def test_their_state_is_saved_and_their_learning_rate_is_scheduled() -> None:
    def steps(count: int, state: Any = None) -> tuple[Any, torch.Tensor]:
        rows, weight = rows_and_weight()
        dense: Any = Lazy(Optimizer, "adamw").construct(params=[weight])
        optimizer = WithSparse(dense, [rows.weight], lr=None)
        config = {"type": "exponential", "gamma": 0.5}
        schedule = Schedule(Lazy(Scheduler, config), optimizer, count, True)
        if state is not None:
            kept, rows_kept, weight_kept, scheduled = state
            optimizer.load_state_dict(torch.load(io.BytesIO(kept), weights_only=True))
            schedule.load_state_dict(scheduled)
            rows.weight.data.copy_(rows_kept)
            weight.data.copy_(weight_kept)
        for step in range(count):
            optimizer.zero_grad()
            (rows(torch.tensor([step % 3, 5])) * weight).square().sum().backward()
            optimizer.step()
            schedule.after_epoch(0.0)
        buffer = io.BytesIO()
        torch.save(optimizer.state_dict(), buffer)
        assert len({group["lr"] for group in optimizer.param_groups}) == 1
        assert optimizer.parts[1].param_groups[0]["lr"] == dense.param_groups[0]["lr"]
        kept = (buffer.getvalue(), rows.weight.detach(), weight.detach(), schedule.state_dict())
        return kept, rows.weight.detach()

    _, whole = steps(6)
    state, _ = steps(3)
    _, recovered = steps(3, state)
    torch.testing.assert_close(recovered, whole)
