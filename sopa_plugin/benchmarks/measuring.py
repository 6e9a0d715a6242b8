"""Several pieces of work measured side by side, and what was found, for people and machines."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sopa_plugin.benchmarks.workload import Workload
from sopa_plugin.errors import markdown_table

OURS = "soft patterns"
Work = Callable[[], object]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
_SCALES = {"s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")), "B": ((2.0**20, "MiB"),)}


@dataclass(frozen=True)
class Spread:
    """A repeated measurement: its median and the quartiles around it.

    Attributes:
        unit: `s` (printed in what suits it), `B` (printed in MiB), `×` (a ratio) or any other.
    """

    median: float
    low: float
    high: float
    unit: str = "×"

    @classmethod
    def of(cls, values: ArrayLike, unit: str = "×") -> Self:
        """The spread of `values`."""
        low, median, high = np.percentile(np.asarray(values, dtype=float), [25, 50, 75])
        return cls(float(median), float(low), float(high), unit)

    def __str__(self) -> str:
        scales = _SCALES.get(self.unit, ((1.0, self.unit),))
        size, unit = next((each for each in scales if self.median >= each[0]), scales[-1])
        places = (self.median, self.low, self.high)
        median, low, high = (
            f"{each / size:,.0f}" if each / size >= 1000 else f"{each / size:.3g}"
            for each in places
        )
        return f"{median} {unit}" + (f" ({low}–{high})" if self.low < self.high else "")


@dataclass(frozen=True)
class Table:
    """Measurements of one kind; the keys of the rows are the columns' titles."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    note: str = ""

    def __str__(self) -> str:
        cells = [list(self.rows[0])]
        for row in self.rows:
            values = (row.get(column, "") for column in cells[0])
            cells.append([f"{each:,}" if isinstance(each, int) else str(each) for each in values])
        return "\n\n".join(filter(None, [f"### {self.title}", self.note, markdown_table(cells)]))


@dataclass(frozen=True)
class Target:
    """What is wanted: at least `bound`, or at most, and better still `aim`."""

    what: str
    found: Spread
    bound: float
    aim: float | None = None
    at_most: bool = False

    @property
    def reached(self) -> bool:
        """Whether the median is on the right side of the bound."""
        found = self.found.median
        return found <= self.bound if self.at_most else found >= self.bound

    def row(self) -> dict[str, Any]:
        """The row of a table of targets."""
        unit = self.found.unit
        wanted = f"{'at most' if self.at_most else 'at least'} {self.bound:g} {unit}"
        return {
            "what": self.what,
            "target": wanted + (f", aim {self.aim:g} {unit}" if self.aim is not None else ""),
            "found": self.found,
            "reached": "yes" if self.reached else "no",
        }


@dataclass(frozen=True)
class Report:
    """Tables and targets, in the order in which they were measured."""

    machine: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def __str__(self) -> str:
        targets = [Table("Targets", [each.row() for each in self.targets])] if self.targets else []
        return "\n\n".join(map(str, [self.machine, *self.tables, *targets]))

    def as_json(self) -> dict[str, Any]:
        """Plain values; times in seconds, sizes in bytes."""
        targets = [asdict(each) | {"reached": each.reached} for each in self.targets]
        return asdict(self) | {"targets": targets}


@dataclass(frozen=True)
class Bench:
    """What to measure on, how, and where what is found goes.

    Attributes:
        workload: the text.
        rounds: how often each piece of work is measured.
        batches: how many batches of it make one measurement.
        clock: gives seconds.
        picture: where the picture of how costs grow goes; None for no picture.
        report: is filled.
    """

    workload: Workload
    rounds: int
    batches: int
    clock: Clock
    picture: Path | None
    report: Report

    def compare(
        self,
        title: str,
        work: Mapping[str, Work],
        per: str,
        units: float,
        targets: Mapping[str, tuple[str, float, float | None]] | None = None,
        note: str = "",
    ) -> dict[str, NDArray[np.float64]]:
        """Measures `work` side by side and reports it; the seconds that it took, `[rounds]`.

        Arguments:
            title: of the table.
            work: pieces of work by name, `OURS` among them.
            per: what a unit is.
            units: how many of them each piece of work does.
            targets: by the name of what `OURS` is to be faster than: the target's own name, how
                many times as long it is to take at least, and better still.
            note: goes above the table.
        """
        seconds = interleave(work, self.rounds, self.clock)
        ratios = {name: Spread.of(each / seconds[OURS]) for name, each in seconds.items()}
        rows = [
            {
                "what": name,
                f"time per {per}": Spread.of(each / units, "s"),
                f"against {OURS}": ratios[name],
            }
            for name, each in seconds.items()
        ]
        self.report.tables.append(Table(title, rows, note))
        for name, (what, bound, aim) in (targets or {}).items():
            if name in ratios:
                self.report.targets.append(Target(what, ratios[name], bound, aim))
        return seconds


def interleave(
    work: Mapping[str, Work], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, NDArray[np.float64]]:
    """Seconds that each piece of work takes, `[rounds]` by name.

    Every round runs each of them once, one after the other, so that whatever else the machine does
    meanwhile slows all of them alike. One round more comes first and does not count.
    """
    seconds = {name: np.zeros(rounds) for name in work}
    for each in work.values():
        each()
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            for name, each in work.items():
                began = clock()
                each()
                seconds[name][number] = clock() - began
    finally:
        gc.enable()
    return seconds


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Lets torch and the kernel use so many threads meanwhile; None leaves it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
