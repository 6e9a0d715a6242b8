"""Optimizers and learning-rate schedulers by name: torch's, and two with a warm-up."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from sopa_plugin.registry import Lazy, Registrable

if TYPE_CHECKING:
    from sopa_plugin.models import TextClassifier

# LBFGS asks for a closure, SparseAdam for sparse gradients, Muon (torch 2.9) for matrices only
_UNSUITED = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}


class Optimizer(Registrable):
    """A torch optimizer, by its class name in lower case (`adam`, `sgd`, ...) or dotted path.

    Its arguments are torch's own; the parameters are handed over.
    """

    default_implementation: ClassVar[str | None] = "adam"
    handed_over: ClassVar[frozenset[str]] = frozenset({"params"})
    also_accepts: ClassVar[tuple[type, ...]] = (torch.optim.Optimizer,)


for _name, _class in inspect.getmembers(torch.optim, inspect.isclass):
    if issubclass(_class, torch.optim.Optimizer) and _name not in _UNSUITED:
        Optimizer.register(_name.lower())(_class)


class WithSparse(torch.optim.Optimizer):
    """Two optimizers as one: any, and torch's `SparseAdam` for parameters with sparse gradients.

    Of such a parameter a step changes the rows in its gradient alone, and costs nothing for others.

    Arguments:
        dense: of the other parameters.
        params: those with sparse gradients; the learning rate and Adam's betas are those of
            `dense`, if it has betas.
        lr: their learning rate, where it is to differ.
    """

    def __init__(
        self, dense: torch.optim.Optimizer, params: Iterable[Tensor], lr: float | None
    ) -> None:
        own = {key: dense.defaults[key] for key in ("lr", "betas") if key in dense.defaults}
        own |= {} if lr is None else {"lr": lr}
        self.parts = (dense, torch.optim.SparseAdam(list(params), **own))
        super().__init__(self._groups(), dense.defaults)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """A step of both."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Those of both."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict` gave."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = self._groups()

    def _groups(self) -> list[dict[str, Any]]:
        """The groups of both, themselves, so that a scheduler sets their learning rates."""
        return [group for part in self.parts for group in part.param_groups]


def row_modules(model: nn.Module) -> list[nn.EmbeddingBag]:
    """The modules of a model whose weights may have sparse gradients; others than ours keep none.

    Not set for good: neither transformers' `Trainer` nor most optimizers take such gradients.
    """
    return [each for each in model.modules() if isinstance(each, nn.EmbeddingBag)]


def make_optimizer(
    optimizer: Lazy[Optimizer], model: TextClassifier, embedder_lr: float | None
) -> torch.optim.Optimizer:
    """The optimizer of what is trained of a model; its embedder may have another learning rate."""
    groups: list[dict[str, Any]] = [{"params": []}]
    embedder = {id(each) for each in model.embedder.parameters()}
    sparse = {id(each.weight): each.weight for each in row_modules(model) if each.sparse}
    if embedder_lr is not None:
        groups.append({"params": [], "lr": embedder_lr})
    for each in model.parameters():
        if each.requires_grad and id(each) not in sparse:
            groups[-1 if id(each) in embedder else 0]["params"].append(each)
    made: Any = optimizer.construct(params=groups)
    return WithSparse(made, sparse.values(), embedder_lr) if sparse else made  # type: ignore[no-any-return]


def gradients_of(model: nn.Module) -> Iterator[Tensor]:
    """The gradients, of sparse ones the numbers that are not zero."""
    for each in model.parameters():
        if each.grad is not None and each.grad.is_sparse:
            each.grad = each.grad.coalesce()
            yield each.grad.values()
        elif each.grad is not None:
            yield each.grad


class Scheduler(Registrable):
    """A torch scheduler, by the name below or its dotted path; the arguments are its own.

    `one_cycle`, `cyclic` and those with a warm-up step after every optimizer step, the others
    after every epoch. The optimizer and the number of optimizer steps are handed over.
    """

    handed_over: ClassVar[frozenset[str]] = frozenset({"optimizer", "total_steps", "last_epoch"})
    also_accepts: ClassVar[tuple[type, ...]] = (LRScheduler,)


@Scheduler.register("reduce_on_plateau")
class ReduceOnPlateau(lr_scheduler.ReduceLROnPlateau):
    """torch's `ReduceLROnPlateau` on the trainer's `validation_metric`, whose sign is the mode."""

    handed_over: ClassVar[frozenset[str]] = frozenset({"mode"})


@Scheduler.register("linear_with_warmup")
def linear_with_warmup(
    optimizer: torch.optim.Optimizer, total_steps: int, warmup: float = 0.1
) -> LRScheduler:
    """Up in a line over the share `warmup` of all steps, then down in a line to 0."""
    from transformers import get_linear_schedule_with_warmup

    return get_linear_schedule_with_warmup(optimizer, round(warmup * total_steps), total_steps)  # type: ignore[no-any-return]


@Scheduler.register("cosine_with_warmup")
def cosine_with_warmup(
    optimizer: torch.optim.Optimizer, total_steps: int, warmup: float = 0.1
) -> LRScheduler:
    """Up in a line over the share `warmup` of all steps, then down along a cosine to 0."""
    from transformers import get_cosine_schedule_with_warmup

    return get_cosine_schedule_with_warmup(optimizer, round(warmup * total_steps), total_steps)  # type: ignore[no-any-return]


Scheduler.register("constant")(lr_scheduler.ConstantLR)
Scheduler.register("cosine_annealing")(lr_scheduler.CosineAnnealingLR)
Scheduler.register("cosine_annealing_warm_restarts")(lr_scheduler.CosineAnnealingWarmRestarts)
Scheduler.register("cyclic")(lr_scheduler.CyclicLR)
Scheduler.register("exponential")(lr_scheduler.ExponentialLR)
Scheduler.register("linear")(lr_scheduler.LinearLR)
Scheduler.register("multi_step")(lr_scheduler.MultiStepLR)
Scheduler.register("one_cycle")(lr_scheduler.OneCycleLR)
Scheduler.register("polynomial")(lr_scheduler.PolynomialLR)
Scheduler.register("step")(lr_scheduler.StepLR)

_EVERY_STEP: tuple[Any, ...] = (
    lr_scheduler.OneCycleLR,
    lr_scheduler.CyclicLR,
    linear_with_warmup,
    cosine_with_warmup,
)


class Schedule:
    """A scheduler that knows when to step.

    Arguments:
        scheduler: its config; None keeps the learning rates as they are.
        optimizer: whose learning rates it sets.
        total_steps: optimizer steps of the longest possible training.
        larger_is_better: the sign of the metric that `after_epoch` is given.
    """

    def __init__(
        self,
        scheduler: Lazy[Scheduler] | None,
        optimizer: torch.optim.Optimizer,
        total_steps: int,
        larger_is_better: bool,
    ) -> None:
        self.scheduler: Any = None
        self._every_step = False
        if scheduler is None:
            return
        kind: Any = Scheduler.by_name(scheduler.params["type"])
        handed_over = {"optimizer": optimizer, "total_steps": total_steps}
        if kind is ReduceOnPlateau:
            handed_over["mode"] = "max" if larger_is_better else "min"
        self.scheduler = scheduler.construct(**handed_over)
        self._every_step = kind in _EVERY_STEP

    @staticmethod
    def needs_total_steps(scheduler: Mapping[str, Any]) -> bool:
        """Whether the learning rates of a scheduler's config depend on how long training may be."""
        kind: Any = Scheduler.by_name(scheduler["type"])
        return "total_steps" in inspect.signature(kind).parameters

    def after_step(self) -> None:
        """To be called after every optimizer step."""
        if self._every_step:
            self.scheduler.step()

    def after_epoch(self, metric: float) -> None:
        """To be called after every epoch with the dev set's metric."""
        if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(metric)
        elif self.scheduler is not None and not self._every_step:
            self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {} if self.scheduler is None else dict(self.scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state)
