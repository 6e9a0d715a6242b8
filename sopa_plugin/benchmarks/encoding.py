"""Encoders alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sopa_plugin.benchmarks.bench import OURS, Bench
from sopa_plugin.benchmarks.contenders import (
    FILTERS,
    HIDDEN,
    WINDOW,
)
from sopa_plugin.benchmarks.timing import Work
from sopa_plugin.benchmarks.workload import DIM, PATTERNS
from sopa_plugin.encoders import PackedSeq2VecEncoder, Seq2VecEncoder

ENCODERS: dict[str, dict[str, Any]] = {
    OURS: {"type": "sopa", "patterns": PATTERNS},
    "cnn": {"type": "cnn", "num_filters": FILTERS, "window_sizes": [WINDOW]},
    "bilstm": {"type": "bilstm", "hidden_dim": HIDDEN},
    "dan": {"type": "dan"},
}
Encode = Callable[[], list[Tensor]]


def encoders(bench: Bench) -> None:
    """This library's encoders from token vectors: forward alone, then with the backward pass."""
    inputs = Inputs(bench)
    passes = {name: inputs.encode(params) for name, params in ENCODERS.items()}
    passes[f"{OURS}, padded batch"] = inputs.encode(ENCODERS[OURS], packed=False)
    count = len(inputs.packed)
    note = (
        "From vectors looked up before to document vectors. Soft patterns get distinct rows and an "
        "index, as in training; given a padded batch, they have to score every token."
    )
    forward = {name: torch.no_grad()(each) for name, each in passes.items()}
    bench.compare("Encoder, forward", forward, "batch", count, note=note)
    both = {name: _with_backward(each) for name, each in passes.items()}
    bench.compare("Encoder, forward and backward", both, "batch", count)


class Inputs:
    """Batches of token vectors, packed and padded."""

    def __init__(self, bench: Bench) -> None:
        documents, vectors = bench.workload.documents, bench.workload.classifier().embedder
        self.packed: list[tuple[Tensor, ...]] = []
        self.padded: list[tuple[Tensor, ...]] = []
        for numbers in bench.workload.batches(bench.batches):
            packed, padded = documents.packed(numbers), documents.padded(numbers, 0)
            ids = packed["token_ids"]
            self.packed.append((vectors(ids, ids), packed["index"], packed["offsets"]))
            self.padded.append((vectors(padded["input_ids"], ids), padded["attention_mask"]))

    def encode(self, params: dict[str, Any], packed: bool = True) -> Encode:
        """Document vectors of all batches by an encoder, from packed batches if it takes them."""
        encoder = Seq2VecEncoder.from_params(params, input_dim=DIM)
        if packed and isinstance(encoder, PackedSeq2VecEncoder):
            run: Callable[..., Tensor] = encoder.forward_packed
            return lambda: [run(*batch) for batch in self.packed]
        return lambda: [encoder(*batch) for batch in self.padded]


def _with_backward(encode: Encode) -> Work:
    def work() -> None:
        for vectors in encode():
            if vectors.requires_grad:  # not an average: it has nothing to learn
                vectors.sum().backward()

    return work
