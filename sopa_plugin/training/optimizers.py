"""Optimizers by name: every torch optimizer that steps on gradients alone."""

from __future__ import annotations

import inspect
from typing import ClassVar

import torch

from sopa_plugin.registry import Registrable

# LBFGS asks for a closure, SparseAdam for sparse gradients, Muon (torch 2.9) for matrices only
_UNSUITED = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}


class Optimizer(Registrable):
    """A torch optimizer, by its class name in lower case (`adam`, `sgd`, ...) or dotted path.

    Its arguments are torch's own; the parameters are handed over.
    """

    default_implementation: ClassVar[str | None] = "adam"
    handed_over: ClassVar[frozenset[str]] = frozenset({"params"})
    also_accepts: ClassVar[tuple[type, ...]] = (torch.optim.Optimizer,)


def _register_torch_optimizers() -> None:
    for name, each in inspect.getmembers(torch.optim, inspect.isclass):
        if issubclass(each, torch.optim.Optimizer) and name not in _UNSUITED:
            Optimizer.register(name.lower())(each)


_register_torch_optimizers()
