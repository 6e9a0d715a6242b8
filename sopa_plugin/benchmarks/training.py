"""Training steps of whole classifiers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sopa_plugin.benchmarks.bench import OURS, Bench, Wanted
from sopa_plugin.benchmarks.contenders import (
    Average,
    Bilstm,
    Convolution,
    ReferenceLoop,
    Trained,
    word_vectors,
)
from sopa_plugin.benchmarks.timing import Work
from sopa_plugin.data.batches import Integers

REFERENCE, CONVOLUTION, BILSTM = "reference loop", "Conv1d + max-pool", "BiLSTM(100)"

NOTE = (
    "Everything that a step takes: packing or padding the batch, forward, backward, Adam. The "
    "reference loop is the same model on the padded batch, one time step at a time, its gradients "
    "by autograd; the others look the same frozen vectors up and have the same head."
)


def training_steps(bench: Bench) -> None:
    """A training step of soft patterns, their reference loop, and other encoders."""
    wanted = [
        Wanted("training step: reference loop", REFERENCE, 10, 20),
        Wanted("training step: Conv1d + max-pool", CONVOLUTION, 3),
        Wanted("training step: BiLSTM(100)", BILSTM, 15),
    ]
    _compare(bench, "Training step", "cpu", wanted)


def training_steps_on_gpu(bench: Bench) -> None:
    """The same on a GPU, where there is one."""
    if not torch.cuda.is_available():
        return
    wanted = [
        Wanted("training step on the GPU: reference loop", REFERENCE, 30),
        Wanted("training step on the GPU: cuDNN BiLSTM(100)", BILSTM, 5),
    ]
    title = f"Training step on {torch.cuda.get_device_name()}"
    _compare(bench, title, "cuda", wanted)


def _compare(bench: Bench, title: str, device: str, wanted: list[Wanted]) -> None:
    documents, batches = bench.workload.documents, bench.workload.batches(bench.batches)
    model, dropping = bench.workload.classifier(), bench.workload.classifier(dropout=0.1)
    vectors = word_vectors(model)
    trained = {
        OURS: Trained(model, documents, device),
        f"{OURS}, dropout 0.1": Trained(dropping, documents, device),
        REFERENCE: Trained(ReferenceLoop(bench.workload.classifier()), documents, device),
        CONVOLUTION: Trained(Convolution(vectors), documents, device),
        BILSTM: Trained(Bilstm(vectors), documents, device),
        "average of vectors + layer": Trained(Average(vectors), documents, device),
    }
    work = {name: _steps(each, batches) for name, each in trained.items()}
    bench.compare(title, work, "step", len(batches), wanted, NOTE)


def _steps(trained: Trained, batches: Sequence[Integers]) -> Work:
    def work() -> None:
        for numbers in batches:
            trained.step(numbers)
        if trained.device != "cpu":
            torch.cuda.synchronize()

    return work
