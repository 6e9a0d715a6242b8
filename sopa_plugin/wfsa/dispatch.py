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
from sopa_plugin.wfsa.layout import Arcs, BestMatches, EndScores, Layout

logger = logging.getLogger(__name__)

MAX_SEMIRINGS = frozenset({"max_product", "max_sum"})
"""Both run as max-plus, in log space."""

SERVED = MAX_SEMIRINGS | {"sum_product", "log"}
"""Semirings that every kernel serves."""

KERNELS = ("cpu", "cuda")
CHOICES = ("reference", *KERNELS)
"""What the environment variable `SOPA_KERNEL` may force."""


class Kernel(Protocol):
    """What a fast implementation (a module) offers; it computes in float32.

    Everywhere `arcs` are as the semiring holds them, `index` and `offsets` int64 and everything on
    one device.
    """

    def forward(self, layout: Layout, semiring: str, arcs: Arcs, keep_paths: bool) -> BestMatches:
        """The best matches of documents; all but their scores is empty unless `keep_paths`.

        Where the semiring sums over paths, scores are those sums and `keep_paths` is false.
        """
        ...

    def end_scores(self, layout: Layout, arcs: Arcs) -> EndScores:
        """The best matches that end at each token; of semirings that select."""
        ...

    def backward(
        self, layout: Layout, semiring: str, grad: Tensor, arcs: Arcs, *paths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of `scores [N, R]` and `epsilon [Q]`, along the best paths or all.

        `grad [B, K]` is that of the document scores; `paths` are the `ends`, `final` and `steps`
        that `forward` gave.
        """
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
    if not forced and (semiring not in SERVED or name not in KERNELS):
        return None
    kernel = _kernel(name, semiring, device, dtype)
    if not isinstance(kernel, str):
        return kernel
    if forced:
        raise UserError(f"SOPA_KERNEL={forced} cannot serve this call: {kernel}; unset it")
    _log_fallback(name, kernel)
    return None


def _kernel(name: str, semiring: str, device: torch.device, dtype: torch.dtype) -> Kernel | str:
    """The kernel `name`, or the reason why it cannot serve a call."""
    if semiring not in SERVED:
        return f"kernels serve {', '.join(sorted(SERVED))}, not {semiring}"
    if dtype == torch.float64:
        return "the kernels compute in float32 and these scores are float64"
    # Triton's interpreter runs the CUDA kernel on CPU tensors.
    interpreted = name == "cuda" and os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != name and not (interpreted and device.type == "cpu"):
        return f"these scores are on {device.type}"
    return _load(name)


@cache
def _load(name: str) -> Kernel | str:
    """The kernel's module, or why it cannot be imported here."""
    try:
        return cast(Kernel, importlib.import_module(f"sopa_plugin.wfsa.{name}"))
    except ImportError as error:
        return f"importing it failed ({error})"


@cache
def _log_fallback(name: str, reason: str) -> None:
    """Says once for each reason that the reference serves where the kernel would have."""
    logger.warning("The %s kernel is not used (slower): %s", name, reason)
