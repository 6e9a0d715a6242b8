"""Which implementation of the recurrence serves a call (design, section 3)."""

from __future__ import annotations

import importlib
import logging
import os
from functools import cache
from typing import Protocol, cast

import torch
from torch import Tensor

from sopa_plugin.errors import UserError
from sopa_plugin.wfsa.layout import Layout

logger = logging.getLogger(__name__)

MAX_SEMIRINGS = frozenset({"max_product", "max_sum"})
"""Semirings that the kernels serve: both run as max-plus, in log space."""

CHOICES = ("reference", "cpu", "cuda")
"""What the environment variable `SOPA_KERNEL` may force."""


class Kernel(Protocol):
    """What a fast implementation (a module) offers; it computes max-plus in float32.

    Everywhere `scores [N, R]` and `epsilon [Q]` are in log space, `index [M]` and `offsets [B + 1]`
    are int64, all on one device, K patterns, S states.
    """

    def forward(
        self,
        layout: Layout,
        scores: Tensor,
        index: Tensor,
        offsets: Tensor,
        epsilon: Tensor,
        keep_paths: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Document scores `[B, K]` (-inf: no match); ends int32 `[B, K]`, final uint8 `[B, K]` and
        steps uint8 `[M, S]`, all three empty unless `keep_paths`."""
        ...

    def end_scores(
        self, layout: Layout, scores: Tensor, index: Tensor, offsets: Tensor, epsilon: Tensor
    ) -> Tensor:
        """Score of the best match ending at each token, `[M, K]` (-inf: none)."""
        ...

    def backward(
        self,
        layout: Layout,
        grad: Tensor,
        index: Tensor,
        offsets: Tensor,
        ends: Tensor,
        final: Tensor,
        steps: Tensor,
        num_rows: int,
    ) -> tuple[Tensor, Tensor]:
        """Gradients of `scores [N, R]` and `epsilon [Q]` along the best paths; `grad [B, K]`."""
        ...


def choose_kernel(semiring: str, device: torch.device, dtype: torch.dtype) -> Kernel | None:
    """The kernel that serves `semiring` on `device` for scores of type `dtype`.

    None stands for the reference recurrence. `SOPA_KERNEL=reference|cpu|cuda` forces one.

    Raises:
        UserError: `SOPA_KERNEL` names no implementation, or one that cannot serve this call.
    """
    forced = os.environ.get("SOPA_KERNEL", "")
    if forced == "reference":
        return None
    if forced and forced not in CHOICES:
        raise UserError(f"SOPA_KERNEL={forced}: expected one of {', '.join(CHOICES)}, or unset")
    name = forced or device.type
    if not forced and (semiring not in MAX_SEMIRINGS or name not in CHOICES):
        return None
    obstacle = _obstacle(name, semiring, device, dtype)
    if obstacle is None:
        return _load(name)
    if forced:
        raise UserError(f"SOPA_KERNEL={forced} cannot serve this call: {obstacle}; unset it")
    _log_fallback(name, obstacle)
    return None


def _obstacle(name: str, semiring: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why kernel `name` cannot serve a call; None where it can."""
    if semiring not in MAX_SEMIRINGS:
        return f"the kernels serve {' and '.join(sorted(MAX_SEMIRINGS))}, not {semiring}"
    if dtype == torch.float64:
        return "the kernels compute in float32 and these scores are float64"
    if device.type != name and not (name == "cuda" and _interpreted(device)):
        return f"these scores are on {device.type}"
    return _load_error(name)


def _interpreted(device: torch.device) -> bool:
    """Whether Triton's interpreter runs the CUDA kernel on CPU tensors."""
    return device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _load(name: str) -> Kernel:
    return cast(Kernel, importlib.import_module(f"sopa_plugin.wfsa.{name}_kernel"))


@cache
def _load_error(name: str) -> str | None:
    """Why a kernel's module cannot be imported here; None where it can."""
    try:
        importlib.import_module({"cpu": "numba", "cuda": "triton"}[name])
        _load(name)
    except ImportError as error:
        return f"importing it failed ({error})"
    return None


@cache
def _log_fallback(name: str, obstacle: str) -> None:
    """Says once for each reason that the reference serves where the kernel would have."""
    logger.warning("The %s kernel is not used (slower): %s", name, obstacle)
