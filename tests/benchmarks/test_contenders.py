"""What soft patterns are measured against does what it is said to do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch import nn

from sopa_plugin.benchmarks.contenders import (
    BILSTM,
    CONVOLUTION,
    REFERENCE,
    Contender,
    Convolution,
    Trained,
    contenders,
    word_vectors,
)
from sopa_plugin.benchmarks.measuring import CLOCKS, OURS, Bench, Report
from sopa_plugin.benchmarks.sections import CAPTURED, captured_and_plain, to_best_epoch
from sopa_plugin.benchmarks.workload import Workload, make_workload
from sopa_plugin.models import TextClassifier


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.delenv("SOPA_SST", raising=False)
    torch.manual_seed(1)
    return make_workload(40)


def test_the_reference_loop_is_the_same_model(workload: Workload) -> None:
    model = workload.classifier()
    (numbers,) = workload.batches(1)
    losses, gradients = [], []
    for each in (model, contenders(model)[REFERENCE]):
        assert isinstance(each, TextClassifier | Contender)
        trained = Trained(each, workload.documents)
        model.zero_grad()
        loss = trained.loss(trained.batch(numbers))
        loss.backward()
        losses.append(loss)
        gradients.append([p.grad for p in model.parameters() if p.requires_grad])
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [CONVOLUTION, BILSTM])
def test_every_contender_learns(name: str, workload: Workload) -> None:
    model = workload.classifier()
    vectors = word_vectors(model)
    trained = Trained(contenders(model)[name], workload.documents)
    (numbers,) = workload.batches(1)
    before = vectors.clone()
    first = trained.loss(trained.batch(numbers)).item()
    for _ in range(20):
        trained.step(numbers)
    assert trained.loss(trained.batch(numbers)).item() < first - 0.05
    assert torch.equal(vectors, before)


def test_steps_as_graphs_have_them_are_the_same_steps(workload: Workload) -> None:
    both = []
    for captured in (True, False):
        torch.manual_seed(1)
        both.append(captured_and_plain(workload, "cpu"))
        for name, trained in both[-1].items():
            if name.endswith(CAPTURED) or name == OURS:
                trained.captured = trained.captured if captured else None
                for numbers in workload.batches(2) * 2:
                    trained.step(numbers)
    captured, plain = both
    for name in (OURS, BILSTM + CAPTURED, CONVOLUTION + CAPTURED):
        assert captured[name].captured is not None
        assert captured[name].captured.steps
        for mine, theirs in zip(
            captured[name].model.parameters(), plain[name].model.parameters(), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_training_to_the_best_epoch_is_timed(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixtures = Path(__file__).parents[2] / "fixtures"
    bench = Bench(workload, 1, 1, CLOCKS["wall"], None, Report("here"))
    to_best_epoch(bench)
    assert not bench.report.targets  # SOPA_SST is not set
    monkeypatch.setenv("SOPA_SST", str(fixtures / "sst_lines"))
    monkeypatch.setenv("SOPA_VECTORS", str(fixtures / "vectors.txt"))
    began = time.perf_counter()
    to_best_epoch(bench, "trainer.num_epochs=4")
    (target,) = bench.report.targets
    assert 0 < target.found.median < time.perf_counter() - began


def test_the_convolution_is_that_of_the_targets(workload: Workload) -> None:
    convolution = Convolution(300).convolution
    assert isinstance(convolution, nn.Conv1d)
    assert tuple(convolution.weight.shape) == (100, 300, 5)
