"""The laws that let the recurrence add up paths, and the encodings each semiring takes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.wfsa import ArcEncoding, Semiring

SEMIRINGS = ("max_product", "max_sum", "sum_product", "log", "boolean")


def elements(semiring: str) -> st.SearchStrategy[Tensor]:
    """Elements of a semiring, its zero and one among them."""
    algebra = Semiring.named(semiring)
    special = st.sampled_from([algebra.zero, algebra.one])
    others = special if semiring == "boolean" else st.floats(-20, 20)
    if semiring == "sum_product":
        others = st.floats(0, 20)
    return st.lists(special | others, min_size=3, max_size=3).map(
        lambda values: torch.tensor(values, dtype=torch.float64)
    )


@pytest.mark.parametrize("semiring", SEMIRINGS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_semiring_laws(semiring: str, data: st.DataObject) -> None:
    algebra = Semiring.named(semiring)
    plus, times = algebra.plus, algebra.times
    a, b, c = data.draw(elements(semiring))
    zero, one = torch.full_like(a, algebra.zero), torch.full_like(a, algebra.one)

    def same(first: Tensor, second: Tensor) -> None:
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)

    same(plus(a, b), plus(b, a))
    same(plus(plus(a, b), c), plus(a, plus(b, c)))
    same(times(times(a, b), c), times(a, times(b, c)))
    same(plus(zero, a), a)
    same(times(one, a), a)
    same(times(a, one), a)
    same(times(zero, a), zero)
    same(times(a, plus(b, c)), plus(times(a, b), times(a, c)))
    if algebra.selects:
        assert plus(a, b) in (a, b)
    values = torch.stack([a, b, c])[:, None].expand(3, 2)
    same(algebra.sum(values, 0), plus(plus(a, b), c).expand(2))
    same(algebra.prod(values, 0), times(times(a, b), c).expand(2))
    same(algebra.sum(values[:0], 0), zero.expand(2))
    same(algebra.prod(values[:0], 0), one.expand(2))


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_gradients_at_zero_are_finite(semiring: str) -> None:
    algebra = Semiring.named(semiring)
    first = torch.tensor([algebra.zero, algebra.zero, 0.5], requires_grad=True)
    second = torch.tensor([algebra.zero, 0.5, algebra.zero], requires_grad=True)
    total = algebra.plus(first, second)
    grads = torch.autograd.grad(total.sum(), (first, second))
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("semiring", ["max_product", "max_sum", "boolean"])
def test_the_first_of_equals_is_kept_and_gets_the_whole_gradient(semiring: str) -> None:
    first, second = (torch.ones(1, requires_grad=True) for _ in range(2))
    Semiring.named(semiring).plus(first, second).backward()
    assert (first.grad, second.grad) == (torch.ones(1), torch.zeros(1))


@pytest.mark.parametrize("name", ArcEncoding.list_available())
def test_encodings_are_what_their_kind_says(name: str) -> None:
    encoding = ArcEncoding.named(name)
    raw = torch.linspace(-30, 30, 61, dtype=torch.float64)
    scores = encoding.encode(raw)
    assert (scores.diff() >= 0).all()
    if encoding.kind == "weight":
        assert (scores > 0).all()
        torch.testing.assert_close(encoding.encode_log(raw), scores.log(), rtol=1e-9, atol=1e-9)
    if encoding.kind == "truth":
        assert set(scores.tolist()) == {0.0, 1.0}
        assert encoding.encode(torch.zeros(1)) == 0
    one = 0.0 if encoding.kind == "log_weight" else 1.0
    assert encoding.at_most_one == bool((scores <= one).all())


def test_values_of_encodings() -> None:
    raw = torch.tensor([-2.0, 0.0, 2.0])
    expected = {
        "sigmoid": [0.1192, 0.5, 0.8808],
        "identity": [-2.0, 0.0, 2.0],
        "exp": [0.1353, 1.0, 7.3891],
        "log_sigmoid": [-2.1269, -0.6931, -0.1269],
        "positive": [0.0, 0.0, 1.0],
    }
    for name, values in expected.items():
        found = ArcEncoding.named(name).encode(raw)
        torch.testing.assert_close(found, torch.tensor(values), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("semiring", "encodings"),
    [
        ("max_product", {"sigmoid", "exp"}),
        ("max_sum", {"identity", "log_sigmoid"}),
        ("log", {"identity", "log_sigmoid"}),
        ("sum_product", {"sigmoid", "identity", "exp", "log_sigmoid", "positive"}),
        ("boolean", {"positive"}),
    ],
)
def test_which_semiring_takes_which_encoding(semiring: str, encodings: set[str]) -> None:
    taken = set()
    for name in ("sigmoid", "identity", "exp", "log_sigmoid", "positive"):
        try:
            SopaEncoder(3, {3: 2}, semiring=semiring, encoding=name)
        except ValueError:
            continue
        taken.add(name)
    assert taken == encodings
    assert Semiring.named(semiring).default_encoding in encodings


def test_a_semiring_and_an_encoding_of_ones_own_make_an_encoder() -> None:
    """min-plus over costs: the cheapest match, written as a user would."""

    @ArcEncoding.register("softplus", exist_ok=True)
    class Softplus(ArcEncoding):
        kind = "cost"

        def encode(self, raw: Tensor) -> Tensor:
            return torch.nn.functional.softplus(raw)

    @Semiring.register("min_plus", exist_ok=True)
    class MinPlus(Semiring):
        zero, one = float("inf"), 0.0
        accepts = frozenset({"cost"})
        reason = "it adds up costs"
        default_encoding = "softplus"
        selects = True

        def plus(self, first: Tensor, second: Tensor) -> Tensor:
            return torch.where(second < first, second, first)

        def times(self, first: Tensor, second: Tensor) -> Tensor:
            return first + second

    options = {"self_loops": "none", "epsilons": False}
    encoder = SopaEncoder(2, {3: 1}, "min_plus", normalization="none", **options)
    words = torch.randn(1, 5, 2, requires_grad=True)
    raw = torch.nn.functional.linear(words[0], encoder.arcs.weight, encoder.arcs.bias)
    costs = torch.nn.functional.softplus(raw)
    expected = (costs[:-1, 0] + costs[1:, 1]).min()
    score = encoder(words, torch.ones(1, 5))
    torch.testing.assert_close(score[0, 0], expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(each, words, retain_graph=True) for each in (score[0, 0], expected))
    )
    # A document of one word is unmatched: a learned value, not an infinite cost.
    assert encoder(words[:, :1], torch.ones(1, 1)).isfinite().all()
    with pytest.raises(ValueError, match="it adds up costs; expected one of softplus"):
        SopaEncoder(2, {3: 1}, "min_plus", encoding="sigmoid")
