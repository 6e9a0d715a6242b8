"""Products whose backward pass skips zeros."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from sopa_plugin.wfsa import arc_products, cpu_kernel


def random(*shape: int, zeros: float = 0.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(*shape, generator=generator) >= zeros
    return torch.randn(*shape, generator=generator) * kept


@given(
    st.integers(0, 5), st.integers(0, 6), st.integers(1, 4), st.sampled_from([0.0, 0.5, 0.95, 1.0])
)
def test_gradients_are_those_of_linear(rows: int, arcs: int, dim: int, zeros: float) -> None:
    for with_bias in (True, False):
        given_rows = random(rows, dim, seed=1)
        grad = random(rows, arcs, zeros=zeros, seed=2)
        found = []
        for product in (arc_products, lambda _, *args: functional.linear(*args)):
            inputs = [
                given_rows.clone().requires_grad_(),
                random(arcs, dim, seed=3).requires_grad_(),
                random(arcs, seed=4).requires_grad_(),
            ]
            result = product("max_product", *inputs[:2], inputs[2] if with_bias else None)
            wanted = inputs if with_bias else inputs[:2]
            found.append((result, *torch.autograd.grad(result, wanted, grad)))
        for ours, theirs in zip(*found, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_operator_is_registered_as_torch_wants_it() -> None:
    inputs = (random(4, 3), random(5, 3).requires_grad_(), random(5).requires_grad_())
    torch.library.opcheck(torch.ops.sopa.arc_products.default, inputs)
    torch.library.opcheck(
        torch.ops.sopa.arc_products_backward.default, (random(4, 5, zeros=0.9), random(4, 3))
    )


def test_sums_that_are_not_finite_are_not_skipped() -> None:
    grad = torch.zeros(9, 9)
    grad[0, 1] = float("nan")
    grad[2, 3] = float("inf")
    weight, bias = cpu_kernel.products_backward(grad, torch.ones(9, 2))
    assert weight[1].isnan().all()
    assert bias[1].isnan()
    assert weight[3].isinf().all()
    assert (weight[[0, 2, *range(4, 9)]] == 0).all()


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    grad, rows = random(700, 130, zeros=0.95), random(700, 20, seed=1)
    assert grad.numel() >= cpu_kernel.LEAST_PRODUCTS
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = cpu_kernel.products_backward(grad, rows)
        torch.set_num_threads(threads)
        found = cpu_kernel.products_backward(grad, rows)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_forced_to_the_reference_it_is_a_plain_product(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient() -> torch.Tensor:
        weight = random(5, 3).requires_grad_()
        arc_products("max_product", random(400, 3), weight, None).square().sum().backward()
        assert weight.grad is not None
        return weight.grad

    expected = gradient()
    monkeypatch.setenv("SOPA_KERNEL", "reference")
    monkeypatch.setattr(cpu_kernel, "products_backward", None)
    assert torch.allclose(gradient(), expected)


@pytest.mark.parametrize("semiring", ["log", "sum_product"])
def test_so_it_is_where_every_path_counts(semiring: str) -> None:
    weight = random(5, 3).requires_grad_()
    for name, expected in ((semiring, False), ("max_product", True)):
        function = arc_products(name, random(4, 3), weight, None).grad_fn
        assert function is not None
        assert ("sopa" in function.name()) == expected
