"""How this package registers operators with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def register_operator(
    name: str, compute: Callable[..., Any], fake: Callable[..., Any]
) -> Callable[..., Any]:
    """The operator `sopa::name`, for all devices.

    As `torch.library.custom_op` would make it, but that one imports `torch._dynamo` (for seconds)
    when it is first called.

    Arguments:
        name: its name.
        compute: what it does; its type hints are its schema.
        fake: gives empty tensors of the right shapes and types.
    """
    schema = torch.library.infer_schema(compute, mutates_args=())
    torch.library.define(f"sopa::{name}", schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(f"sopa::{name}", "default", compute)
    torch.library.register_fake(f"sopa::{name}", fake)
    return getattr(torch.ops.sopa, name).default  # type: ignore[no-any-return]
