"""How the cost of the recurrence grows with each size of the problem."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from sopa_plugin.benchmarks.contenders import Contender, Trained, contenders
from sopa_plugin.benchmarks.measuring import (
    OURS,
    Bench,
    Spread,
    Table,
    Target,
    Work,
    interleave,
    use_threads,
)
from sopa_plugin.data.batches import Documents, Integers
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError, failing, require
from sopa_plugin.files import shipped
from sopa_plugin.models import TextClassifier
from sopa_plugin.registry import load_config
from sopa_plugin.training import Experiment, run_experiment
from sopa_plugin.wfsa import Arcs, Layout, document_scores


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
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        made = result if isinstance(result, tuple | list) else (result,)
        self.sizes += [each.nbytes for each in made if isinstance(each, Tensor)]
        return result


def _twice(documents: Documents) -> Documents:
    bounds = zip(documents.offsets[:-1], documents.offsets[1:], strict=True)
    pieces = [np.tile(documents.ids[start:stop], 2) for start, stop in bounds]
    return Documents(np.concatenate(pieces), 2 * documents.offsets, documents.labels)


LENGTHS, STEP, WORDS = (100, 1000, 10_000), 500_000, 60
_SHIPPED = shipped("configs") / "sopa_sst.jsonnet"
_RUN = (
    'model.embedder={"type": "static", "embedding_dim": 300, "trainable": false}',
    *("dataset.dev_size=0.1", "dataset.test_size=0"),
    *("trainer.num_epochs=1", "trainer.batch_size=50"),
)


def scale(bench: Bench) -> None:
    """Training the shipped patterns on long documents and on many: time and peak memory a token.

    Each in a process of its own. Many are as many as there are sentences, and three times as many:
    with `--sentences 100000`, 300,000.
    """
    if not os.access("/proc/self/clear_refs", os.W_OK):
        logging.getLogger(__name__).warning("scale: no peak of memory in /proc: skipped")
        return
    threads = torch.set_num_threads, (torch.get_num_threads(),)
    with ProcessPoolExecutor(1, get_context("spawn"), *threads, max_tasks_per_child=1) as pool:
        steps = [*pool.map(partial(steps_on_long, bench), LENGTHS)]
        runs = [*pool.map(partial(run_on_many, bench), (1, 3))]
    note = f"A step has {STEP:,} tokens. A run has one epoch, all included; {WORDS} words each."
    bench.report.tables.append(Table("Training on long documents and on many", steps + runs, note))
    for what, rows in (("long documents against short", steps), ("three times as many", runs)):
        ratio = Spread.of(rows[-1]["time a token"].median / rows[0]["time a token"].median)
        target = Target(f"a token of {what}, in time", ratio, 1.2, 1, at_most=True)
        bench.report.targets.append(target)


def steps_on_long(bench: Bench, length: int, tokens: int = STEP) -> dict[str, Any]:
    """A row for training the shipped patterns a step on documents of `length`, `tokens` in all."""
    encoder = load_config(_SHIPPED, _RUN, Experiment)["model"]["encoder"]
    offsets, ids = np.arange(0, tokens + 1, length), np.resize(bench.workload.documents.ids, tokens)
    documents = Documents(ids, offsets, np.arange(tokens // length) % 2)
    trained = Trained(bench.workload.classifier(**encoder), documents)
    trained.step(np.arange(1))  # compiles
    work = partial(trained.step, np.arange(len(documents)))
    return _cost(bench, f"step, documents of {length:,} tokens", tokens, [work] * bench.rounds)


def run_on_many(bench: Bench, times: int) -> dict[str, Any]:
    """A row for a run on so many times the sentences' number, after a small one, which compiles."""
    logging.disable()
    words, row = cycle(" ".join(bench.workload.texts).split()), {}
    for count in (WORDS, times * len(bench.workload.texts)):
        with tempfile.TemporaryDirectory() as folder:
            with Path(folder, "train.tsv").open("w", encoding="utf-8") as file:
                file.write("text\tlabel\n")
                file.writelines(
                    f"{' '.join(islice(words, WORDS))}\t{i % 2}\n" for i in range(count)
                )
            data = f'dataset={{"type": "text", "path": "{folder}"}}'
            config = load_config(_SHIPPED, (data, *_RUN), Experiment)
            work = partial(run_experiment, config, Path(folder, "run"))
            row = _cost(bench, f"run, {count:,} documents", count * WORDS, [work])
    return row


def _cost(bench: Bench, what: str, tokens: int, works: Sequence[Work]) -> dict[str, Any]:
    def peak() -> int:
        return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak until now
    before, times = peak(), [bench.clock()]
    for work in works:
        work()
        times.append(bench.clock())
    time = Spread.of(np.diff(times) / tokens, "s")
    size = Spread.of((peak() - before) / tokens, "bytes")
    return {"what": what, "time a token": time, "peak memory a token": size}


Times = Sequence[NDArray[np.float64]]
_WHAT = "the picture of how costs grow"

_STATES_AT_ONCE = 3_000_000
ROWS = 1000  # distinct words: about as many as in a batch of sentences


@dataclass(frozen=True)
class Problem:
    """Documents to match patterns against.

    Attributes:
        patterns, states: how many patterns, of how many states each.
        documents, tokens: how many documents, of how many tokens each.
        threads: how many threads torch may use; None leaves it.
    """

    patterns: int = 50
    states: int = 4
    documents: int = 150
    tokens: int = 20
    threads: int | None = None

    @property
    def repeats(self) -> int:
        """How often `work` does it: small problems would else be measured with cold caches."""
        states = self.documents * self.tokens * self.patterns * self.states
        return max(1, _STATES_AT_ONCE // states)

    def work(self) -> Work:
        """Forward and backward of the recurrence over random arc scores, `repeats` times."""
        layout = Layout((self.states,) * self.patterns)
        random = torch.Generator().manual_seed(0)
        scores = torch.randn(ROWS, layout.num_scores, generator=random)
        scores = torch.nn.functional.logsigmoid(scores).requires_grad_()
        epsilon = torch.full((layout.num_epsilons,), -1.0, requires_grad=True)
        total = self.documents * self.tokens
        index = torch.randint(ROWS, (total,), generator=random)
        offsets = torch.arange(self.documents + 1) * self.tokens
        arcs = Arcs(scores, index, offsets, epsilon)

        ones = torch.ones(self.documents, self.patterns)

        def work() -> None:
            with use_threads(self.threads):
                for _ in range(self.repeats):
                    best = document_scores(layout, "max_product", arcs)
                    torch.autograd.grad(best, (scores, epsilon), ones)

        return work


def variations(cores: int) -> dict[str, list[Problem]]:
    """Problems that differ in one attribute, by its name."""
    usual = Problem()
    return {
        "patterns": [replace(usual, patterns=n) for n in (12, 25, 50, 100, 200, 400)],
        "states": [replace(usual, states=n) for n in (2, 3, 4, 6, 8, 12)],
        "tokens": [Problem(documents=32, tokens=n) for n in (50, 100, 400, 1000, 4000)],
        "documents": [replace(usual, documents=n) for n in (10, 30, 100, 300, 1000)],
        "threads": [
            Problem(documents=1000, threads=n) for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores
        ],
    }


def growth(bench: Bench) -> None:
    """Time against patterns, states, document length, batch and threads."""
    curves: dict[str, tuple[Sequence[int], Sequence[float]]] = {}
    for name, problems in variations(os.cpu_count() or 1).items():
        sizes = [getattr(problem, name) for problem in problems]
        work = {str(size): each.work() for size, each in zip(sizes, problems, strict=True)}
        seconds = interleave(work, bench.rounds, bench.clock)
        times = [
            seconds[str(size)] / problem.repeats
            for size, problem in zip(sizes, problems, strict=True)
        ]
        curves[name] = sizes, [float(np.median(each)) for each in times]
        bench.report.tables.append(_table(name, problems[0], sizes, times))
        if name == "tokens":
            found = Spread.of(times[sizes.index(4000)] / times[sizes.index(400)])
            what = "32 documents of 4,000 tokens against 400"
            bench.report.targets.append(Target(what, found, 12, 10, at_most=True))
    if bench.picture is not None:
        draw_growth(curves, bench.picture)


def _table(name: str, first: Problem, sizes: Sequence[int], times: Times) -> Table:
    """Times by size, and the power of the size that they grow with from each to the next."""
    rows = []
    for i, (size, seconds) in enumerate(zip(sizes, times, strict=True)):
        row = {name: size, "time": Spread.of(seconds, "s"), f"against {sizes[0]}": "", "slope": ""}
        if i:
            row[f"against {sizes[0]}"] = Spread.of(seconds / times[0])
            step = np.log(np.median(seconds) / np.median(times[i - 1]))
            row["slope"] = f"{step / np.log(size / sizes[i - 1]):.2f}"
        rows.append(row)
    fixed = {key: each for key, each in asdict(first).items() if key != name and each is not None}
    described = ", ".join(f"{each:,} {key}" for key, each in fixed.items())
    return Table(f"Growth with {name}", rows, f"The recurrence, forward and backward; {described}.")


def check_picture(file: Path) -> None:
    """Makes the folder of a picture that is to be drawn.

    Raises:
        UserError: it could not be saved there, or not in the format of its ending.
    """
    known = require("matplotlib.backend_bases", _WHAT).FigureCanvasBase.get_supported_filetypes()
    if file.suffix.lower().removeprefix(".") not in known:
        raise UserError(
            f"{file}: expected a picture's name, with one of the endings {', '.join(sorted(known))}"
        )
    if file.is_dir():
        raise UserError(f"{file}: is a folder; name a file in it")
    with failing(file, "cannot be written"):
        file.parent.mkdir(parents=True, exist_ok=True)


def draw_growth(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], file: str | Path
) -> None:
    """Draws time over size, both in logarithms.

    Each of the curves (sizes and seconds, by the name of what has that size) has a panel.
    """
    figures = require("matplotlib.figure", _WHAT)
    figure = figures.Figure(figsize=(3.2 * len(curves), 3.2), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (name, (sizes, seconds)) in zip(panels, curves.items(), strict=True):
        power = -1 if name == "threads" else 1
        linear = [1000 * seconds[0] * (size / sizes[0]) ** power for size in sizes]
        axes.loglog(sizes, [1000 * each for each in seconds], "o-", label="measured")
        axes.loglog(sizes, linear, ":", color="gray", label="in proportion")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set(xlabel=name, ylabel="ms")
        axes.legend(frameon=False)
    figure.savefig(file, dpi=150)
