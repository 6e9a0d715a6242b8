"""Token rows times arc weights, with a backward pass that skips arcs that no best match took.

In a batch of 150 sentences, the best matches of 50 patterns take some 3 % of the arcs that were
scored. The gradient of all others is zero, and a matrix product would spend a quarter of a training
step on multiplying by it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sopa_plugin.wfsa.dispatch import choose_kernel
from sopa_plugin.wfsa.semirings import Semiring
from sopa_plugin.wfsa.torch_operators import register_operator


def arc_products(semiring: str, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`rows [N, E]` times `weight [A, E]`, transposed, plus `bias [A]`: `[N, A]`.

    `functional.linear` with the same gradients, computed faster on the CPU where the kernel serves
    the semiring `semiring`.
    """
    if not _gradient_is_sparse(semiring, rows, weight):
        return functional.linear(rows, weight, bias)
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    product: Tensor = _products(rows, weight, bias)
    return product


def _gradient_is_sparse(semiring: str, rows: Tensor, weight: Tensor) -> bool:
    return (
        torch.is_grad_enabled()
        and weight.requires_grad
        and Semiring.named(semiring).selects
        and rows.device.type == "cpu"
        and rows.dtype == weight.dtype == torch.float32
        and not torch.compiler.is_exporting()
    )


def _compute(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.linear(rows, weight, bias)


def _fake(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return rows.new_empty(rows.shape[0], weight.shape[0])


def _compute_gradients(grad: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    if choose_kernel("max_sum", grad.device, grad.dtype) is None:
        return grad.T @ rows, grad.sum(dim=0)
    from sopa_plugin.wfsa import cpu_kernel  # and numba

    return cpu_kernel.products_backward(grad, rows)


def _fake_gradients(grad: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    return grad.new_empty(grad.shape[1], rows.shape[1]), grad.new_empty(grad.shape[1])


_products = register_operator("arc_products", _compute, _fake)
_gradients = register_operator("arc_products_backward", _compute_gradients, _fake_gradients)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    rows, weight = ctx.saved_tensors
    for_rows = grad @ weight if ctx.needs_input_grad[0] else None
    return for_rows, *_gradients(grad.contiguous(), rows)


torch.library.register_autograd("sopa::arc_products", _differentiate, setup_context=_save)
