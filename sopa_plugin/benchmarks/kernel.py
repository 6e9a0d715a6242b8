"""The kernel alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from sopa_plugin.benchmarks.bench import OURS, Bench, Wanted
from sopa_plugin.benchmarks.contenders import CONVOLUTION, Convolution, word_vectors
from sopa_plugin.benchmarks.encoding import Inputs
from sopa_plugin.benchmarks.timing import Work
from sopa_plugin.benchmarks.workload import DIM, PATTERNS
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.wfsa.dispatch import choose_kernel

REPEATS = 10
"""How often each batch is taken, so that its arc scores are in the cache, as when just computed."""


def kernel(bench: Bench) -> None:
    """The recurrence alone per real token, beside the convolution alone."""
    inputs = Inputs(bench)
    encoder = SopaEncoder(DIM, {int(states): count for states, count in PATTERNS.items()})
    convolution = Convolution(word_vectors(bench.workload.classifier()))
    module = choose_kernel("max_product", torch.device("cpu"), torch.float32)
    if module is None:
        return
    layout = encoder.layout
    with torch.no_grad():
        scored = [(*encoder.arc_scores(rows), *rest) for rows, *rest in inputs.packed]
    best = [
        module.forward(layout, scores, index, offsets, epsilon, True)
        for scores, epsilon, index, offsets in scored
    ]

    def forward(i: int, keep_paths: bool) -> object:
        scores, epsilon, index, offsets = scored[i]
        return module.forward(layout, scores, index, offsets, epsilon, keep_paths)

    def backward(i: int) -> object:
        scores, _, index, offsets = scored[i]
        grad, ends, final, steps = best[i]
        return module.backward(layout, grad, index, offsets, ends, final, steps, len(scores))

    @torch.inference_mode()
    def convolve(i: int) -> object:
        return convolution.encode(*inputs.padded[i])

    batches = range(len(scored))
    work = {
        OURS: _often(lambda i: forward(i, keep_paths=False), batches),
        f"{OURS}, best paths kept": _often(lambda i: forward(i, keep_paths=True), batches),
        f"{OURS}, backward": _often(backward, batches),
        CONVOLUTION: _often(convolve, batches),
    }
    tokens = REPEATS * sum(len(index) for _, index, _ in inputs.packed)
    wanted = [Wanted(f"kernel alone, per real token: {CONVOLUTION}", CONVOLUTION, 20, 40)]
    note = "From arc scores to document scores, and from vectors to pooled filters, no gradients."
    bench.compare("Kernel, forward", work, "real token", tokens, wanted, note)


def _often(take: Callable[[int], object], batches: Sequence[int]) -> Work:
    def work() -> None:
        for i in batches:
            for _ in range(REPEATS):
                take(i)

    return work
