"""Memory, by counting bytes."""

from __future__ import annotations

import pytest
import torch

from sopa_plugin.benchmarks.contenders import REFERENCE, Trained, contenders
from sopa_plugin.benchmarks.growth import (
    bytes_per_token_and_state,
    fastest_growth,
    kept_for_backward,
    sizes_of_tensors,
)
from sopa_plugin.benchmarks.measuring import CLOCKS, Bench, Report
from sopa_plugin.benchmarks.workload import make_workload


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.delenv("SOPA_SST", raising=False)
    return Bench(make_workload(60), 1, 1, CLOCKS["wall"], None, Report(""))


def test_sizes_of_tensors_by_hand() -> None:
    assert sizes_of_tensors(lambda: torch.ones(3, 2) + 1) == [24, 24]


def test_no_tensor_grows_by_more_than_a_byte_for_each_token_and_state(bench: Bench) -> None:
    assert bytes_per_token_and_state(bench) == 1


def test_growth_by_hand() -> None:
    """What a gather of all arc scores would cost, as the reference does it."""
    scores = torch.ones(4, 10)
    sizes = [sizes_of_tensors(lambda n=n: scores[torch.zeros(n, dtype=int)]) for n in (3, 5)]
    assert fastest_growth(*sizes) == 2 * 10 * 4
    assert fastest_growth([1, 8], [1, 9]) == 1


def test_less_is_kept_than_by_the_reference_loop(bench: Bench) -> None:
    model, documents = bench.workload.classifier(), bench.workload.documents
    (numbers,) = bench.workload.batches(1)
    ours = kept_for_backward(Trained(model, documents), numbers)
    theirs = kept_for_backward(Trained(contenders(model)[REFERENCE], documents), numbers)
    assert 0 < ours < theirs / 2
