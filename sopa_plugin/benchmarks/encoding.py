"""Encoders alone, and the kernel alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sopa_plugin.benchmarks.bench import OURS, Bench, Wanted
from sopa_plugin.benchmarks.contenders import (
    FILTERS,
    HIDDEN,
    WINDOW,
    Convolution,
    word_vectors,
)
from sopa_plugin.benchmarks.timing import Work
from sopa_plugin.benchmarks.workload import DIM, PATTERNS
from sopa_plugin.encoders import PackedSeq2VecEncoder, Seq2VecEncoder, SopaEncoder
from sopa_plugin.wfsa.dispatch import choose_kernel

ENCODERS: dict[str, dict[str, Any]] = {
    OURS: {"type": "sopa", "patterns": PATTERNS},
    "cnn": {"type": "cnn", "num_filters": FILTERS, "window_sizes": [WINDOW]},
    "bilstm": {"type": "bilstm", "hidden_dim": HIDDEN},
    "dan": {"type": "dan"},
}
Encode = Callable[[], list[Tensor]]

CONVOLUTION = "Conv1d + max-pool"


def encoders(bench: Bench) -> None:
    """This library's encoders from token vectors: forward alone, then with the backward pass."""
    inputs = _Inputs(bench)
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


def kernel(bench: Bench) -> None:
    """The recurrence alone per real token, beside the convolution alone."""
    inputs = _Inputs(bench)
    encoder = SopaEncoder(DIM, {int(states): count for states, count in PATTERNS.items()})
    convolution = Convolution(word_vectors(bench.workload.classifier()))
    module = choose_kernel("max_product", torch.device("cpu"), torch.float32)
    if module is None:
        return
    with torch.no_grad():
        scored = [(*encoder.arc_scores(rows), *rest) for rows, *rest in inputs.packed]

    def scores(keep_paths: bool) -> list[tuple[Tensor, ...]]:
        return [
            module.forward(encoder.layout, arcs, index, offsets, epsilon, keep_paths)
            for arcs, epsilon, index, offsets in scored
        ]

    paths = scores(keep_paths=True)

    def walk_back() -> None:
        for (arcs, _, index, offsets), found in zip(scored, paths, strict=True):
            best, ends, final, steps = found
            module.backward(encoder.layout, best, index, offsets, ends, final, steps, len(arcs))

    @torch.inference_mode()
    def convolve() -> None:
        for tokens, mask in inputs.padded:
            convolution.encode(tokens, mask)

    work = {
        OURS: lambda: scores(keep_paths=False),
        f"{OURS}, best paths kept": lambda: scores(keep_paths=True),
        f"{OURS}, backward": walk_back,
        CONVOLUTION: convolve,
    }
    tokens = sum(len(index) for _, index, _ in inputs.packed)
    wanted = [Wanted("kernel alone, per real token: Conv1d", CONVOLUTION, 20, 40)]
    note = "From arc scores to document scores, and from vectors to pooled filters, no gradients."
    bench.compare("Kernel, forward", work, "real token", tokens, wanted, note)


class _Inputs:
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
