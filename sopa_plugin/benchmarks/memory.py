"""Memory that a training step takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from sopa_plugin.benchmarks.contenders import Contender, Trained, contenders
from sopa_plugin.benchmarks.measuring import OURS, Bench, Spread, Table, Target
from sopa_plugin.data.batches import Documents, Integers
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.models import TextClassifier


def memory(bench: Bench) -> None:
    """What the forward pass keeps for the backward pass, and the largest tensor of a step."""
    documents, (numbers,) = bench.workload.documents, bench.workload.batches(1)
    models: dict[str, TextClassifier | Contender] = {
        OURS: bench.workload.classifier(),
        **contenders(bench.workload.classifier()),
    }
    rows = []
    for name, model in models.items():
        trained = Trained(model, documents)
        kept = kept_for_backward(trained, numbers)
        largest = max(sizes_of_tensors(partial(trained.step, numbers)))
        sizes = {"kept": Spread.of(kept, "B"), "largest tensor": Spread.of(largest, "B")}
        rows.append({"what": name, **sizes})
    tokens, _ = documents.tokens_of(numbers)
    note = (
        f"A batch of {len(numbers)} sentences, {len(tokens):,} words. Kept: for the backward pass, "
        "without weights and word vectors."
    )
    bench.report.tables.append(Table("Memory of a training step", rows, note))
    growth = bytes_per_token_and_state(bench)
    what = "what a tensor takes for each token and state"
    target = Target(what, Spread.of(growth, "bytes"), 1, at_most=True)
    bench.report.targets.append(target)


def bytes_per_token_and_state(bench: Bench) -> float:
    """By how many bytes the fastest growing tensor grows with every token more, for each state.

    The same batch twice, its documents repeated in themselves the second time: twice as many
    tokens, the same words.
    """
    (numbers,) = bench.workload.batches(1)
    model = bench.workload.classifier()
    assert isinstance(model.encoder, SopaEncoder)
    once = bench.workload.documents
    sizes = [
        sizes_of_tensors(partial(Trained(model, each).step, numbers))
        for each in (once, _twice(once))
    ]
    tokens, _ = once.tokens_of(numbers)
    return fastest_growth(*sizes) / (len(tokens) * model.encoder.layout.num_states)


def fastest_growth(before: list[int], after: list[int]) -> int:
    """By how many bytes the tensor that grows most is larger `after` than `before`."""
    return max(larger - smaller for smaller, larger in zip(before, after, strict=True))


def kept_for_backward(trained: Trained, numbers: Integers) -> int:
    """Bytes that a forward pass keeps, without parameters and word vectors."""
    permanent = {
        each.untyped_storage().data_ptr()
        for each in (*trained.model.parameters(), *trained.model.buffers())
    }
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in permanent:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = trained.batch(numbers)
    with saved_tensors_hooks(note, lambda tensor: tensor):
        loss = trained.loss(batch)
    assert loss.requires_grad  # and so is still alive, with all it keeps
    return sum(kept.values())


def sizes_of_tensors(work: Callable[[], object]) -> list[int]:
    """Bytes of every tensor that `work` makes, in order."""
    recorder = _Recorder()
    with recorder:
        work()
    return recorder.sizes


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        made = result if isinstance(result, tuple | list) else (result,)
        self.sizes += [each.nbytes for each in made if isinstance(each, Tensor)]
        return result


def _twice(documents: Documents) -> Documents:
    bounds = zip(documents.offsets[:-1], documents.offsets[1:], strict=True)
    pieces = [np.tile(documents.ids[start:stop], 2) for start, stop in bounds]
    return Documents(np.concatenate(pieces), 2 * documents.offsets, documents.labels)
