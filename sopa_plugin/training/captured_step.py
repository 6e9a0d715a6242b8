"""A training step on a GPU as one CUDA graph: launched at once, not kernel by kernel.

A graph does again what was done while it was recorded, with the same shapes and in the same places
of memory. So batches are filled up to few sizes, with documents that have no token and no label;
they are gathered on the device, where all documents are; and a graph is recorded of each size when
it first comes. What is recorded is an ordinary function, which also runs on a CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.data.batches import Batch, Documents, Integers
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import first_line
from sopa_plugin.wfsa.dispatch import choose_kernel

if TYPE_CHECKING:
    from sopa_plugin.training.checkpoints import TrainingState

FEWEST_TOKENS = 64
MOST_TOKENS = 2**16
"""Of a batch whose step is captured: a larger one is work enough, and shares rows among words."""

NO_LABEL = -100
"""Label of documents that fill up a batch; torch's cross-entropy passes over it."""

WARM_UP = 3
"""Steps before one is recorded, as torch has it for whole networks: kernels are compiled then."""

_CAPTURED = (torch.optim.Adam, torch.optim.AdamW)
logger = logging.getLogger(__name__)


def padded_size(tokens: int) -> int:
    """The least size that holds so many tokens: 64, 96, 128, 192, 256, ..."""
    size = FEWEST_TOKENS
    while size < tokens:
        size += size // 3 if size & (size - 1) else size // 2
    return size


def reason_against(
    state: TrainingState, device: torch.device, own: Mapping[str, bool]
) -> str | None:
    """Why the steps of a training cannot be captured; None where they can.

    Arguments:
        state: of the training, as before its first step.
        device: where it trains.
        own: reasons that a trainer's settings may be, and whether they are.
    """
    model, accelerator, encoder = state.model, state.accelerator, state.model.encoder
    optimizer, scheduler = state.optimizer.optimizer, state.schedule.scheduler
    precision, processes = accelerator.mixed_precision, accelerator.num_processes
    # what a class says is not said of its subclasses
    unsaid = [
        f"{name} ({type(part).__name__})"
        for name, part in model.named_children()
        if "capturable" not in vars(type(part)) or not part.capturable
    ]
    norms = (isinstance(each, nn.modules.batchnorm._BatchNorm) for each in model.modules())
    unfused = (
        each.get("fused") is False or each.get("foreach") or each.get("differentiable")
        for each in optimizer.param_groups
    )
    known = scheduler is None or type(scheduler).__module__.startswith(("torch.", "sopa_plugin."))
    reasons = {
        f"the device is {device.type}": device.type != "cuda",
        **own,
        f"{processes} processes train together": processes > 1,
        f"mixed_precision is {precision}": precision != "no",
        "Accelerate has wrapped the model": state.module is not model,
        f"not capturable as it is: {', '.join(unsaid)}": bool(unsaid),
        "documents that fill up a batch would count in its batch normalization": any(norms),
        f"the optimizer is {type(optimizer).__name__}": type(optimizer) not in _CAPTURED,
        "the optimizer is not to be fused": any(unfused),
        f"{type(scheduler).__name__} may change more than learning rates": not known
        or getattr(scheduler, "cycle_momentum", False),
        "no kernel serves the encoder there": isinstance(encoder, SopaEncoder)
        and choose_kernel(encoder.options.semiring, device, encoder.arcs.weight.dtype) is None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


class DeviceDocuments:
    """Documents on a device, where batches are gathered without a word to the host.

    Behind them is one without a token and a label, number `filler`, which fills up batches.

    Arguments:
        documents: with labels.
        device: where they go.
    """

    def __init__(self, documents: Documents, device: torch.device) -> None:
        assert documents.labels is not None
        self.filler = len(documents)
        # one token more, so that there is one
        arrays = (
            np.append(documents.ids, 0),
            documents.offsets,
            np.append(documents.lengths, 0),
            np.append(documents.labels, NO_LABEL),
        )
        tensors = (torch.from_numpy(each).to(device) for each in arrays)
        self.ids, self.starts, self.lengths, self.labels = tensors
        self.num_ids = int(documents.ids.max(initial=0)) + 1

    def packed(self, numbers: Tensor, tokens: int) -> Batch:
        """`token_ids`, `index [tokens]`, `offsets [batch + 1]` and labels of `numbers [batch]`.

        Tokens behind the last document are of none. All occurrences of a word share the row of the
        first, as if there were no other, so that dropout on arcs is the same for all of them.
        """
        offsets = functional.pad(self.lengths[numbers].cumsum(0), (1, 0))
        place = torch.arange(tokens, device=numbers.device)
        document = torch.searchsorted(offsets[1:].contiguous(), place, right=True)
        document = document.clamp(max=len(numbers) - 1)
        source = (self.starts[numbers] - offsets[:-1])[document] + place
        ids = self.ids[source.clamp(max=len(self.ids) - 1)]
        first = place.new_full((self.num_ids,), tokens).scatter_reduce(0, ids, place, "amin")
        labels = self.labels[numbers]
        return {"token_ids": ids, "index": first[ids], "offsets": offsets, "labels": labels}

    def padded(self, numbers: Tensor, width: int) -> Batch:
        """`input_ids` and `attention_mask [batch, width]`, and labels of `numbers [batch]`."""
        place = torch.arange(width, device=numbers.device)
        mask = place < self.lengths[numbers][:, None]
        source = (self.starts[numbers][:, None] + place).clamp(max=len(self.ids) - 1)
        ids = torch.where(mask, self.ids[source], 0)
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": self.labels[numbers]}


class CapturedStep:
    """Training steps on batches of a few sizes, on CUDA each a graph that is replayed.

    Elsewhere the same function runs as it is.

    Arguments:
        model: in training mode when steps are taken; its loss must leave out documents without a
            label, and its parts must be `capturable`.
        optimizer: of the model, Adam or AdamW; is told to be fused.
        documents: that are trained on.
        batch_size: most documents of a batch.
        learn: makes gradients from logits `[batch_size, labels]` and labels `[batch_size]`, of
            which `NO_LABEL` does not count, and clips them.
        padded: whether the model takes batches padded; else packed.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        documents: Documents,
        batch_size: int,
        learn: Callable[[Tensor, Tensor], None],
        padded: bool = False,
    ) -> None:
        self.model, self.optimizer, self.learn, self.padded = model, optimizer, learn, padded
        self.trained = [each for group in optimizer.param_groups for each in group["params"]]
        self.device = device = self.trained[0].device
        self.documents, self.lengths = DeviceDocuments(documents, device), documents.lengths
        self.numbers = torch.full((batch_size,), self.documents.filler, device=device)
        self.rates = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        self.steps: dict[int, Callable[[], Tensor]] = {}
        self.failed = False
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        for group in optimizer.param_groups:
            group["fused"], group["capturable"] = True, device.type == "cuda"
        for kept in optimizer.state.values():  # of a run that goes on
            kept["step"] = kept["step"].to(device, torch.float32)

    def take(self, numbers: Integers, logits: Tensor | None = None) -> bool:
        """A step on the documents of `numbers`; whether it was taken.

        Not where they have too many tokens; and once a step could not be recorded, which is logged,
        none is any more. Puts their logits in their rows of `logits [documents, labels]`.
        """
        lengths = self.lengths[numbers]
        size = max(int(lengths.max()), 1) if self.padded else padded_size(int(lengths.sum()))
        if self.failed or size > MOST_TOKENS:
            return False
        filled = np.full(len(self.numbers), self.documents.filler)
        filled[: len(numbers)] = numbers
        self.numbers.copy_(torch.from_numpy(filled), non_blocking=True)
        for rate, group in zip(self.rates, self.optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        if size not in self.steps:
            try:
                self.steps[size] = self._recorded(size)
            except RuntimeError as error:
                self.failed = True
                logger.warning(
                    "a training step could not be captured as a CUDA graph (%s): training goes on "
                    "by plain steps, as with trainer.cuda_graphs: false",
                    first_line(error),
                )
                return False
        found = self.steps[size]()
        if logits is not None:
            logits.index_copy_(0, self.numbers[: len(numbers)], found[: len(numbers)])
        return True

    def _step(self, size: int) -> Tensor:
        """The step itself, on the documents of `numbers`; their logits."""
        gather = self.documents.padded if self.padded else self.documents.packed
        batch = gather(self.numbers, size)
        labels = batch.pop("labels")
        output = self.model(**batch)
        logits = output if isinstance(output, Tensor) else output.logits
        self.learn(logits, labels)
        groups = self.optimizer.param_groups
        given = [group["lr"] for group in groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group["lr"] = rate
        try:
            self.optimizer.step()
        finally:
            for group, rate in zip(groups, given, strict=True):
                group["lr"] = rate  # a number again, for schedulers and checkpoints
        self.optimizer.zero_grad()
        return logits.detach()

    def _recorded(self, size: int) -> Callable[[], Tensor]:
        """What takes a step on a batch of that size, after a warm-up that leaves no trace."""
        step = partial(self._step, size)
        if self.device.type != "cuda":
            with self._undone():
                step()
            return step
        graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        with torch.cuda.device(self.device), self._undone():
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(WARM_UP):
                    step()
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(graph, pool=self.pool):
                logits = step()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Takes back what steps change: weights, the optimizer's state, random states."""
        kept = {each: each.detach().clone() for each in [*self.trained, *self._state()]}
        devices = [self.device] if self.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices):
                yield
        finally:
            self.optimizer.zero_grad()
            with torch.no_grad():
                for each in [*self.trained, *self._state()]:
                    # what was not there begins at zero
                    each.copy_(kept[each]) if each in kept else each.zero_()

    def _state(self) -> list[Tensor]:
        states = self.optimizer.state.values()
        return [each for kept in states for each in kept.values() if isinstance(each, Tensor)]
