"""What a benchmark found, for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from sopa_plugin.benchmarks.timing import Spread

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Seconds(Spread):
    """A time."""

    def __str__(self) -> str:
        size, unit = next((each for each in _UNITS if self.median >= each[0]), _UNITS[-1])
        low, high = self.low / size, self.high / size
        return f"{self.median / size:.3g} {unit} ({low:.3g}–{high:.3g})"


@dataclass(frozen=True)
class Ratio(Spread):
    """How many times one thing is another, taken round by round."""

    def __str__(self) -> str:
        return _spread(self, "×")


@dataclass(frozen=True)
class Size:
    """A number of bytes."""

    bytes: int

    def __str__(self) -> str:
        return f"{self.bytes / 2**20:,.1f} MiB"


@dataclass(frozen=True)
class Table:
    """Measurements of one kind; the keys of the rows are the columns' titles."""

    title: str
    rows: Sequence[dict[str, Any]]
    note: str = ""

    def __str__(self) -> str:
        columns = list(self.rows[0])
        lines = [f"### {self.title}", ""]
        if self.note:
            lines += [self.note, ""]
        lines += [_line(columns), _line(["---"] * len(columns))]
        lines += [_line([_cell(row.get(column, "")) for column in columns]) for row in self.rows]
        return "\n".join(lines)


@dataclass(frozen=True)
class Target:
    """What is wanted: at least `bound` of `unit`, or at most, and better still `aim`."""

    what: str
    found: Spread
    bound: float
    aim: float | None = None
    at_most: bool = False
    unit: str = "×"

    @property
    def reached(self) -> bool:
        """Whether the median is on the right side of the bound."""
        found = self.found.median
        return found <= self.bound if self.at_most else found >= self.bound

    def row(self) -> dict[str, Any]:
        """The row of a table of targets."""
        wanted = f"{'at most' if self.at_most else 'at least'} {self.bound:g} {self.unit}"
        if self.aim is not None:
            wanted += f", aim {self.aim:g} {self.unit}"
        return {
            "what": self.what,
            "target": wanted,
            "found": _spread(self.found, self.unit),
            "reached": "yes" if self.reached else "no",
        }


@dataclass(frozen=True)
class Report:
    """Tables and targets, in the order in which they were measured."""

    machine: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [self.machine, *map(str, self.tables)]
        if self.targets:
            parts.append(str(Table("Targets", [target.row() for target in self.targets])))
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Plain values; times in seconds."""
        return {
            "machine": self.machine,
            "tables": [
                {"title": table.title, "note": table.note, "rows": [_plain(r) for r in table.rows]}
                for table in self.tables
            ],
            "targets": [{**asdict(target), "reached": target.reached} for target in self.targets],
        }


def _spread(found: Spread, unit: str) -> str:
    return f"{found.median:.3g} {unit} ({found.low:.3g}–{found.high:.3g})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for key, value in row.items()
    }
