"""Training steps of whole classifiers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch

from sopa_plugin.benchmarks.bench import OURS, Bench, Wanted
from sopa_plugin.benchmarks.contenders import (
    BILSTM,
    CONVOLUTION,
    REFERENCE,
    Average,
    Bilstm,
    Contender,
    Convolution,
    ReferenceLoop,
    Trained,
    word_vectors,
)
from sopa_plugin.benchmarks.timing import Work
from sopa_plugin.data.batches import Integers
from sopa_plugin.models import TextClassifier

logger = logging.getLogger(__name__)

NOTE = (
    "Everything that a step takes: packing or padding the batch, forward, backward, Adam. The "
    "reference loop is the same model on the padded batch, one time step at a time, its gradients "
    "by autograd; the others look the same frozen vectors up and have the same head."
)


def training_steps(bench: Bench) -> None:
    """Training steps of soft patterns, their reference loop, and other encoders."""
    bounds = {REFERENCE: (10, 20), CONVOLUTION: (3, None), BILSTM: (15, None)}
    for order, by_length in (
        ("sentences of like length together", True),
        ("sentences in random order", False),
    ):
        _compare(bench, f"Training step, {order}", "cpu", by_length, bounds)


def training_steps_on_gpu(bench: Bench) -> None:
    """The same on a GPU, where there is one."""
    if not torch.cuda.is_available():
        logger.warning("gpu: no CUDA device: skipped")
        return
    title = f"Training step on {torch.cuda.get_device_name()}"
    _compare(bench, title, "cuda", True, {REFERENCE: (30, None), BILSTM: (5, None)})


def _compare(
    bench: Bench,
    title: str,
    device: str,
    by_length: bool,
    bounds: Mapping[str, tuple[float, float | None]],
) -> None:
    workload = bench.workload
    documents, batches = workload.documents, workload.batches(bench.batches, by_length)
    vectors = word_vectors(workload.classifier())
    models: dict[str, TextClassifier | Contender] = {
        OURS: workload.classifier(),
        f"{OURS}, dropout 0.1": workload.classifier(dropout=0.1),
        REFERENCE: ReferenceLoop(workload.classifier()),
        CONVOLUTION: Convolution(vectors),
        BILSTM: Bilstm(vectors),
        "average of vectors + layer": Average(vectors),
    }
    work = {
        name: _steps(Trained(model, documents, device), batches) for name, model in models.items()
    }
    wanted = [Wanted(f"{title}: {name}", name, *bound) for name, bound in bounds.items()]
    bench.compare(title, work, "step", len(batches), wanted, NOTE)


def _steps(trained: Trained, batches: Sequence[Integers]) -> Work:
    def work() -> None:
        for numbers in batches:
            trained.step(numbers)
        if trained.device != "cpu":
            torch.cuda.synchronize()

    return work
