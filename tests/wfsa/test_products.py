"""Products whose backward pass skips zeros."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from sopa_plugin.wfsa import arc_products, cpu
from sopa_plugin.wfsa.products import draw_kept


def random(*shape: int, zeros: float = 0.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(*shape, generator=generator) >= zeros
    return torch.randn(*shape, generator=generator) * kept


@settings(deadline=None)  # it compiles
@given(
    st.integers(0, 5),
    st.integers(0, 6),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
)
def test_gradients_are_those_of_the_plain_product(
    rows: int, arcs: int, dim: int, zeros: float, log_sigmoid: bool, dropout: float
) -> None:
    grad = random(rows, arcs, zeros=zeros, seed=2)
    found = []
    for semiring in ("max_product", "log"):  # in `log`, a plain product is taken
        torch.manual_seed(5)
        shapes = ((rows, dim), (arcs, dim), (arcs,))
        inputs = [random(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
        result = arc_products(semiring, *inputs, log_sigmoid, dropout)
        found.append((result, *torch.autograd.grad(result, inputs, grad)))
    for ours, plain in zip(*found, strict=True):
        assert torch.allclose(ours, plain, atol=1e-5)


def test_the_plain_product_is_linear_with_dropout_and_log_sigmoid() -> None:
    rows, weight, bias = random(40, 3), random(50, 3, seed=1), random(50, seed=2)
    product = functional.linear(rows, weight, bias)
    assert torch.equal(arc_products("log", rows, weight, bias), product)
    expected = functional.logsigmoid(product)
    assert torch.equal(arc_products("log", rows, weight, bias, log_sigmoid=True), expected)
    dropped = arc_products("log", rows, weight, bias, dropout=0.25)
    scaled = functional.linear(rows, weight) / 0.75 + bias
    kept = torch.isclose(dropped, scaled)
    assert (kept | torch.isclose(dropped, bias.expand_as(dropped))).all()
    assert 0.7 < kept.float().mean() < 0.8


@pytest.mark.parametrize("dropout", [0.0, 1e-6, 0.1, 0.5, 0.999, 1 - 1e-9])
def test_dropout_keeps_its_share_of_all_numbers(dropout: float) -> None:
    torch.manual_seed(0)
    kept = draw_kept((1001, 999), dropout, torch.device("cpu"))
    assert kept.shape == (1001, 999)
    # five standard deviations
    spread = 5 * (dropout * (1 - dropout) / kept.numel()) ** 0.5 + 2e-5
    assert abs(kept.float().mean().item() - (1 - dropout)) <= spread
    for axis in (0, 1):
        assert kept.float().mean(axis).std() < 0.04
    torch.manual_seed(0)
    assert torch.equal(draw_kept((1001, 999), dropout, torch.device("cpu")), kept)


def log_sigmoids(products: torch.Tensor) -> torch.Tensor:
    return cpu.products_(products.clone(), torch.zeros(products.shape[1]), None, 1.0, True)


@settings(deadline=None)  # it compiles
@given(st.lists(st.floats(width=32), max_size=70))
def test_log_sigmoid(numbers: list[float]) -> None:
    given_numbers = torch.tensor(numbers, dtype=torch.float32)
    found = log_sigmoids(given_numbers[None])[0]
    expected = functional.logsigmoid(given_numbers.double()).float()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-37, equal_nan=True)


def test_log_sigmoid_of_many_numbers_in_threads() -> None:
    numbers = torch.linspace(-100, 100, 1_000_001).view(101, -1)
    assert numbers.numel() > 2 * cpu.LEAST_FINISHED
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(log_sigmoids(numbers))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
    expected = functional.logsigmoid(numbers.double()).float()
    torch.testing.assert_close(found[0], expected, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("log_sigmoid", [False, True])
@pytest.mark.parametrize("dropout", [False, True])
def test_the_operators_are_registered_as_torch_wants_them(log_sigmoid: bool, dropout: bool) -> None:
    inputs = (random(4, 3), random(5, 3).requires_grad_(), random(5).requires_grad_())
    keep = random(4, 5) > 0 if dropout else None
    torch.library.opcheck(torch.ops.sopa.arc_products.default, (*inputs, keep, 2.0, log_sigmoid))
    taken = -random(4, 5).abs() if log_sigmoid else None
    torch.library.opcheck(
        torch.ops.sopa.arc_products_backward.default,
        (random(4, 5, zeros=0.9), random(4, 3), keep, 2.0, taken),
    )
    torch.library.opcheck(
        torch.ops.sopa.arc_products_rows_backward.default,
        (random(4, 5, zeros=0.9), random(5, 3), keep, 2.0, taken),
    )


def test_sums_that_are_not_finite_are_not_skipped() -> None:
    grad = torch.zeros(9, 9)
    grad[0, 1] = float("nan")
    grad[2, 3] = float("inf")
    found = cpu.products_backward(grad, torch.ones(9, 2), None, 1.0, None)
    assert found is not None
    weight, bias = found
    assert weight[1].isnan().all()
    assert bias[1].isnan()
    assert weight[3].isinf().all()
    assert (weight[[0, 2, *range(4, 9)]] == 0).all()


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    grad, rows = random(700, 130, zeros=0.95), random(700, 20, seed=1)
    assert grad.numel() >= cpu.LEAST_PRODUCTS
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = cpu.products_backward(grad, rows, None, 1.0, None)
        torch.set_num_threads(threads)
        found = cpu.products_backward(grad, rows, None, 1.0, None)
    finally:
        torch.set_num_threads(before)
    assert found is not None
    assert expected is not None
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_forced_to_the_reference_it_is_a_plain_product(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient() -> torch.Tensor:
        weight = random(5, 3).requires_grad_()
        products = arc_products("max_product", random(400, 3), weight, torch.zeros(5), True)
        products.square().sum().backward()
        assert weight.grad is not None
        return weight.grad

    expected = gradient()
    monkeypatch.setenv("SOPA_KERNEL", "reference")
    monkeypatch.setattr(cpu, "products_backward", None)
    monkeypatch.setattr(cpu, "products_", None)
    assert torch.allclose(gradient(), expected)


@pytest.mark.parametrize("semiring", ["log", "sum_product"])
def test_so_it_is_where_every_path_counts(semiring: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "products_backward", None)
    arc_products(semiring, random(4, 3), random(5, 3).requires_grad_(), random(5)).sum().backward()


def test_gradients_for_half_precision_and_double() -> None:
    for dtype in (torch.bfloat16, torch.float64):
        weight = random(5, 3).to(dtype).requires_grad_()
        product = arc_products(
            "max_product", random(4, 3).to(dtype), weight, random(5).to(dtype), log_sigmoid=True
        )
        assert product.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
        product.sum().backward()
        assert weight.grad is not None


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("log_sigmoid", [False, True])
def test_gradients_can_be_differentiated_again(log_sigmoid: bool, power: int) -> None:
    # all zero but one column, so that the kernel would serve it
    grad = random(40, 30) * (torch.arange(30) == 3)
    found = []
    for semiring in ("max_product", "log"):  # in `log`, a plain product is taken
        inputs = [random(*shape, seed=i) for i, shape in enumerate(((40, 3), (30, 3), (30,)))]
        inputs = [each.requires_grad_() for each in inputs]
        result = (arc_products(semiring, *inputs, log_sigmoid) ** power * grad).sum()
        first = torch.autograd.grad(result, inputs, create_graph=True)
        norm = sum(each.square().sum() for each in first)
        found.append(torch.autograd.grad(norm, inputs, materialize_grads=True))
    torch.testing.assert_close(*found)
