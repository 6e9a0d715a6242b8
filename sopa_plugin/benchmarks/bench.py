"""What every section of the benchmark is given, and how it reports a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.benchmarks.report import Ratio, Report, Seconds, Table, Target
from sopa_plugin.benchmarks.timing import Clock, Work, interleave
from sopa_plugin.benchmarks.workload import Workload

OURS = "soft patterns"
Times = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Wanted:
    """That something takes at least `bound` times as long as soft patterns do."""

    what: str
    against: str
    bound: float
    aim: float | None = None


@dataclass(frozen=True)
class Bench:
    """What to measure on, how, and where what is found goes.

    Attributes:
        workload: the text.
        rounds: how often each piece of work is measured.
        batches: how many batches of it make one measurement.
        clock: gives seconds.
        plot: where the picture of how costs grow goes; None for no picture.
        report: is filled.
    """

    workload: Workload
    rounds: int
    batches: int
    clock: Clock
    plot: Path | None
    report: Report

    def compare(
        self,
        title: str,
        work: Mapping[str, Work],
        per: str,
        units: float,
        wanted: Sequence[Wanted] = (),
        note: str = "",
    ) -> Times:
        """Measures `work` side by side and reports it: seconds per unit, by name.

        Arguments:
            title: of the table.
            work: pieces of work by name, `OURS` among them.
            per: what a unit is.
            units: how many of them each piece of work does.
            wanted: targets.
            note: goes above the table.
        """
        seconds = interleave(work, self.rounds, self.clock)
        times = {name: each / units for name, each in seconds.items()}
        rows = [
            {
                "what": name,
                f"time per {per}": Seconds.of(each),
                f"against {OURS}": Ratio.of(each / times[OURS]),
            }
            for name, each in times.items()
        ]
        self.report.tables.append(Table(title, rows, note))
        for each in wanted:
            if each.against in times:
                found = Ratio.of(times[each.against] / times[OURS])
                self.report.targets.append(Target(each.what, found, each.bound, each.aim))
        return times
