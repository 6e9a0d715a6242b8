"""Document scores as one differentiable operator over packed tokens.

`sopa::document_scores` is a custom operator of torch: one node under `torch.compile` and
`torch.export`, with document number and length left dynamic. Inside, `dispatch.choose_kernel` picks
a kernel or the reference recurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from sopa_plugin.errors import UserError
from sopa_plugin.wfsa import reference
from sopa_plugin.wfsa.dispatch import Kernel, choose_kernel
from sopa_plugin.wfsa.layout import Arcs, BestMatches, EndScores, Layout
from sopa_plugin.wfsa.semirings import Semiring

_NO_ONNX = (
    "neither TorchScript nor torch's exporters to ONNX take soft patterns: write a trained "
    "classifier as ONNX by `sopa-plugin export RUN model.onnx`, or use torch.export.export"
)


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

    def shapes(*args: Any) -> Any:
        if torch.onnx.is_in_onnx_export():
            raise UserError(_NO_ONNX)
        return fake(*args)

    qualified = f"sopa::{name}"
    schema = torch.library.infer_schema(compute, mutates_args=())
    torch.library.define(qualified, schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(qualified, "default", compute)
    torch.library.register_fake(qualified, shapes)
    operator = getattr(torch.ops.sopa, name).default
    plain = transformed = compute
    if save is not None and differentiate is not None:
        torch.library.register_autograd(qualified, differentiate, setup_context=save)

        def forward(ctx: Any, *args: Any) -> Any:
            output = compute(*args)
            save(ctx, args, output)
            return output

        plain = _function(name, forward=forward, backward=differentiate)
        # In the form that `torch.func` takes; each call takes 0.02 ms more. It may be asked for
        # gradients of gradients, so its gradients come from the reference.
        transformed = _function(name, forward=compute, setup_context=save, backward=differentiate)

    def call(*args: Any) -> Any:
        # where what is computed here would be a constant
        if torch.jit.is_tracing():  # type: ignore[attr-defined]
            raise UserError(_NO_ONNX)
        if torch.compiler.is_compiling() or type(args[0]) not in (Tensor, nn.Parameter):
            return operator(*args)
        # private, but all that says so; torch's own `Function.apply` asks it, too
        if torch._C._are_functorch_transforms_active():  # type: ignore[attr-defined]
            return transformed(*args)
        return plain(*args)

    return call


def _function(name: str, **members: Callable[..., Any]) -> Callable[..., Any]:
    """An autograd function of these static methods, to be called."""
    methods = {key: staticmethod(each) for key, each in members.items()}
    function: Any = type(name, (torch.autograd.Function,), methods)
    return function.apply  # type: ignore[no-any-return]


_layout = lru_cache(maxsize=256)(Layout)


def _kernel(semiring: str, arcs: Arcs) -> Kernel | None:
    return choose_kernel(semiring, arcs.scores.device, arcs.scores.dtype)


# An operator takes tensors and plain values, which its schema lists one by one.
def _compute(
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    semiring: str,
    lengths: Sequence[int],
    options: Sequence[bool],
    keep_paths: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    layout, arcs = _layout(tuple(lengths), *options), Arcs(scores, index, offsets, epsilon)
    kernel = _kernel(semiring, arcs)
    if kernel is None:
        return reference.document_scores(layout, Semiring.named(semiring), arcs, keep_paths)
    return kernel.forward(layout, semiring, arcs, keep_paths)


def _fake(*inputs: Any) -> BestMatches:
    *arcs, _, lengths, options, keep_paths = inputs
    return BestMatches.unfilled(_layout(tuple(lengths), *options), Arcs(*arcs), keep_paths)


def _compute_backward(
    grad: Tensor,
    scores: Tensor,
    index: Tensor,
    offsets: Tensor,
    epsilon: Tensor,
    ends: Tensor,
    final: Tensor,
    steps: Tensor,
    semiring: str,
    lengths: Sequence[int],
    options: Sequence[bool],
) -> tuple[Tensor, Tensor]:
    layout, arcs = _layout(tuple(lengths), *options), Arcs(scores, index, offsets, epsilon)
    kernel = _kernel(semiring, arcs)
    # Where gradients are to be differentiated again (`create_graph`), kernels leave no graph.
    if kernel is not None and not torch.is_grad_enabled():
        return kernel.backward(layout, semiring, grad, arcs, ends, final, steps)

    def recompute(scores: Tensor, epsilon: Tensor) -> Tensor:
        again = Arcs(scores, index, offsets, epsilon)
        return reference.document_scores(layout, Semiring.named(semiring), again).scores

    # torch.func works inside an operator, where autograd itself is switched off.
    grad_scores, grad_epsilon = torch.func.vjp(recompute, scores, epsilon)[1](grad)
    return grad_scores.clone(), grad_epsilon.clone()


def _fake_backward(
    _: Tensor, scores: Tensor, index: Tensor, offsets: Tensor, epsilon: Tensor, *__: Any
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scores), torch.empty_like(epsilon)


_backward = register_operator("document_scores_backward", _compute_backward, _fake_backward)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *arcs, semiring, lengths, options, _ = inputs
    ctx.settings = semiring, lengths, options
    _, *paths = output
    ctx.mark_non_differentiable(*paths)
    ctx.set_materialize_grads(False)  # of steps, it would be as large
    ctx.save_for_backward(*arcs, *paths)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 8
    grads = _backward(grad.contiguous(), *ctx.saved_tensors, *ctx.settings)
    return grads[0], None, None, grads[1], None, None, None, None


_forward = register_operator("document_scores", _compute, _fake, _save, _differentiate)


def at_least_float32(scores: Tensor) -> Tensor:
    """`scores`, in float32 if they come in half precision."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def checked(layout: Layout, arcs: Arcs) -> Arcs:
    """The arcs as kernels count on them: at least float32, int64, everything contiguous.

    Raises:
        ValueError: the columns of `scores` or `epsilon` are not the layout's.
    """
    scores, index, offsets, epsilon = arcs
    if scores.dim() != 2 or scores.shape[1] != layout.num_scores:
        expected, found = f"[rows, {layout.num_scores}]", list(scores.shape)
        raise ValueError(f"scores: expected {expected}, as the layout has arcs; found {found}")
    if epsilon.dim() != 1 or epsilon.shape[0] != layout.num_epsilons:
        expected, found = f"[{layout.num_epsilons}]", list(epsilon.shape)
        raise ValueError(f"epsilon: expected {expected}, as the layout has epsilons; found {found}")
    return Arcs(
        at_least_float32(scores).contiguous(),
        index.long().contiguous(),
        offsets.long().contiguous(),
        at_least_float32(epsilon).contiguous(),
    )


def require_best(semiring: str) -> None:
    """Raises a ValueError where `semiring` sums over paths, so that none is best."""
    if not Semiring.named(semiring).selects:
        raise ValueError(f"{semiring} sums over paths: there is no best match")


def document_scores(layout: Layout, semiring: str, arcs: Arcs) -> Tensor:
    """How well each pattern matches each document (paper, Eq. 6-8): `[B, K]`, differentiable.

    Arguments:
        layout: the patterns and how matches are read.
        semiring: the registered name of the semiring; values are as it holds them, logarithms in
            max-product.
        arcs: the documents.

    Returns:
        The best match's score or, where the semiring sums, the sum over all spans (the expected
        count); the semiring's zero where nothing matches.

    Raises:
        ValueError: the columns of `scores` or `epsilon` are not the layout's.
    """
    needs_paths = torch.is_grad_enabled() and (
        arcs.scores.requires_grad or arcs.epsilon.requires_grad
    )
    keep_paths = needs_paths and Semiring.named(semiring).selects
    scores: Tensor = _forward(
        *checked(layout, arcs), semiring, layout.lengths, layout.options, keep_paths
    )[0]
    return scores


def best_matches(layout: Layout, semiring: str, arcs: Arcs) -> BestMatches:
    """The best match of each pattern in each document; arguments as for `document_scores`.

    Ties go to the earliest end, then to no epsilon before an epsilon, the main path before a
    self-loop, and a match that starts afresh before one that looped at START. No gradient.

    Raises:
        ValueError: as `document_scores`; or the semiring sums over paths, so that none is best.
    """
    require_best(semiring)
    with torch.no_grad():
        arcs = checked(layout, arcs)
        return BestMatches(*_forward(*arcs, semiring, layout.lengths, layout.options, True))


def end_scores(layout: Layout, semiring: str, arcs: Arcs) -> EndScores:
    """Scores of the matches that end at each token; arguments as for `document_scores`.

    Where the semiring sums over paths, `final` and `steps` are empty. Ties as in `best_matches`. No
    gradient.

    Raises:
        ValueError: as `document_scores`.
    """
    with torch.no_grad():
        arcs, algebra = checked(layout, arcs), Semiring.named(semiring)
        kernel = _kernel(semiring, arcs) if algebra.selects else None
        if kernel is not None:
            return kernel.end_scores(layout, arcs)
        recurrence = reference.Recurrence(layout, algebra, arcs.epsilon, trace=algebra.selects)
        return reference.end_scores(recurrence, arcs)
