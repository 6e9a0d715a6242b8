"""How the cost of the recurrence grows with each size of the problem."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from sopa_plugin.benchmarks.bench import Bench
from sopa_plugin.benchmarks.plot import plot_growth
from sopa_plugin.benchmarks.report import Ratio, Seconds, Table, Target
from sopa_plugin.benchmarks.timing import Work, interleave, use_threads
from sopa_plugin.wfsa import Layout, document_scores

Times = Sequence[NDArray[np.float64]]

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

        ones = torch.ones(self.documents, self.patterns)

        def work() -> None:
            with use_threads(self.threads):
                for _ in range(self.repeats):
                    best = document_scores(layout, "max_product", scores, index, offsets, epsilon)
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
            found = Ratio.of(times[sizes.index(4000)] / times[sizes.index(400)])
            what = "32 documents of 4,000 tokens against 400"
            bench.report.targets.append(Target(what, found, 12, 10, at_most=True))
    if bench.plot is not None:
        plot_growth(curves, bench.plot)


def _table(name: str, first: Problem, sizes: Sequence[int], times: Times) -> Table:
    """Times by size, and the power of the size that they grow with from each to the next."""
    rows = []
    for i, (size, seconds) in enumerate(zip(sizes, times, strict=True)):
        row = {name: size, "time": Seconds.of(seconds), f"against {sizes[0]}": "", "slope": ""}
        if i:
            row[f"against {sizes[0]}"] = Ratio.of(seconds / times[0])
            step = np.log(np.median(seconds) / np.median(times[i - 1]))
            row["slope"] = f"{step / np.log(size / sizes[i - 1]):.2f}"
        rows.append(row)
    fixed = {key: each for key, each in asdict(first).items() if key != name and each is not None}
    described = ", ".join(f"{each:,} {key}" for key, each in fixed.items())
    return Table(f"Growth with {name}", rows, f"The recurrence, forward and backward; {described}.")
