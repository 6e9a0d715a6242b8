"""How this package registers operators with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def register_operator(
    name: str,
    compute: Callable[..., Any],
    fake: Callable[..., Any],
    save: Callable[..., None] | None = None,
    differentiate: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """The operator `sopa::name`, for all devices.

    As `torch.library.custom_op` would make it, but that one imports `torch._dynamo` (for seconds)
    when it is first called. Plain calls do not go through torch's dispatcher at all, where nothing
    would notice and each would take 0.1 ms more.

    Arguments:
        name: its name.
        compute: what it does; its type hints are its schema.
        fake: gives empty tensors of the right shapes and types.
        save: keeps what `differentiate` needs; as `setup_context` of an autograd function.
        differentiate: the gradients of the inputs; as `backward` of an autograd function.
    """
    qualified = f"sopa::{name}"
    schema = torch.library.infer_schema(compute, mutates_args=())
    torch.library.define(qualified, schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(qualified, "default", compute)
    torch.library.register_fake(qualified, fake)
    operator = getattr(torch.ops.sopa, name).default
    plain = transformed = compute
    if save is not None and differentiate is not None:
        torch.library.register_autograd(qualified, differentiate, setup_context=save)
        plain = _function(name, forward=_saving(compute, save), backward=differentiate)
        # In the form that `torch.func` takes; each call takes 0.02 ms more. It may be asked for
        # gradients of gradients, so its gradients come from the reference.
        transformed = _function(name, forward=compute, setup_context=save, backward=differentiate)

    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling() or type(args[0]) not in (Tensor, nn.Parameter):
            return operator(*args)
        # private, but all that says so; torch's own `Function.apply` asks it, too
        if torch._C._are_functorch_transforms_active():  # type: ignore[attr-defined]
            return transformed(*args)
        return plain(*args)

    return call


def _saving(compute: Callable[..., Any], save: Callable[..., None]) -> Callable[..., Any]:
    def forward(ctx: Any, *args: Any) -> Any:
        output = compute(*args)
        save(ctx, args, output)
        return output

    return forward


def _function(name: str, **members: Callable[..., Any]) -> Callable[..., Any]:
    """An autograd function of these static methods, to be called."""
    methods = {key: staticmethod(each) for key, each in members.items()}
    function: Any = type(name, (torch.autograd.Function,), methods)
    return function.apply  # type: ignore[no-any-return]
