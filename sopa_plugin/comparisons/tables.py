"""The table of an experiment, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sopa_plugin.comparisons.description import Cell, Description
from sopa_plugin.comparisons.summary import CellSummary

SIGNIFICANT = 0.05
MISSING = "–"

Summaries = Mapping[Cell, CellSummary]
Column = tuple[str, int | None]


@dataclass(frozen=True)
class Entry:
    """A field of the table."""

    text: str
    best: bool = False
    differs: bool = False


@dataclass(frozen=True)
class Table:
    """A table of text, whatever it is written as.

    Attributes:
        header: of the columns, the first one included.
        rows: title and entries.
    """

    header: list[str]
    rows: list[tuple[str, list[Entry]]]

    def markdown(self) -> str:
        """With a dagger where a model differs from the reference."""
        lines = [_line(self.header), _line(["---"] * len(self.header))]
        for title, entries in self.rows:
            lines.append(_line([title, *(_markdown_entry(each) for each in entries)]))
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A `tabular` with rules of the package booktabs."""
        head = " & ".join(rf"\textbf{{{_escape(each)}}}" for each in self.header)
        body = [
            " & ".join([_escape(title), *(_latex_entry(each) for each in entries)]) + r" \\"
            for title, entries in self.rows
        ]
        columns = "l" * len(self.header)
        lines = [
            rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines) + "\n"


def accuracy_table(description: Description, summaries: Summaries) -> Table:
    """Test accuracy ± deviation (parameters as the paper counts them), the best of each column.

    Under each model stand the published figures, where there are any.
    """
    columns = _columns(description)
    best = {column: _best(column, summaries) for column in columns}
    rows = []
    for model, entry in description.models.items():
        own = [
            _entry(summaries.get(Cell(data, model, size)), best[data, size])
            for data, size in columns
        ]
        rows.append((entry.title, own))
        if description.published is not None:
            published = [_published(description, model, column) for column in columns]
            if any(each.text != MISSING for each in published):
                rows.append((f"– {description.published.title}", published))
    return Table(["Model", *_headers(description, columns)], rows)


def parameter_table(description: Description, summaries: Summaries) -> Table:
    """Parameters three ways: as the paper counts, trained, and all there are."""
    columns = _columns(description)
    rows = []
    for model, entry in description.models.items():
        found = [summaries.get(Cell(data, model, size)) for data, size in columns]
        rows.append((entry.title, [Entry(_parameters(each)) for each in found]))
    return Table(["Model", *_headers(description, columns)], rows)


def significance_table(description: Description, summaries: Summaries) -> Table:
    """Difference of each model from the reference in points, with its interval and p-value."""
    columns = _columns(description)
    rows = []
    for model, entry in description.models.items():
        if model == description.reference:
            continue
        found = [summaries.get(Cell(data, model, size)) for data, size in columns]
        rows.append((entry.title, [Entry(_comparison(each)) for each in found]))
    return Table(["Model", *_headers(description, columns)], rows)


def thousands(number: int) -> str:
    """A number of parameters as the paper writes them: 255K, 1.5M."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.0f}K" if number < 999_500 else f"{number / 1e6:.1f}M"


def _columns(description: Description) -> list[Column]:
    return [(data, size) for data in description.data for size in description.sizes]


def _headers(description: Description, columns: Sequence[Column]) -> list[str]:
    titles = []
    for data, size in columns:
        title = description.data[data].title
        if size is not None:
            title += f" ({size:,})"
        elif len(description.sizes) > 1:
            title += " (all)"
        titles.append(title)
    return titles


def _best(column: Column, summaries: Summaries) -> float | None:
    means = [each.mean for cell, each in summaries.items() if (cell.data, cell.size) == column]
    return max(means, default=None)


def _entry(summary: CellSummary | None, best: float | None) -> Entry:
    if summary is None or best is None:
        return Entry(MISSING)
    deviation = "" if summary.deviation is None else f" ± {summary.deviation:.1f}"
    text = f"{summary.mean:.1f}{deviation} ({thousands(summary.parameters['paper'])})"
    differs = summary.comparison is not None and summary.comparison.p < SIGNIFICANT
    return Entry(text, f"{summary.mean:.1f}" == f"{best:.1f}", differs)


def _published(description: Description, model: str, column: Column) -> Entry:
    assert description.published is not None
    data, size = column
    accuracy = description.published.accuracy(model, data, size)
    if accuracy is None:
        return Entry(MISSING)
    parameters = description.published.parameters.get(model, {}).get(data)
    return Entry(f"{accuracy:.1f}" + (f" ({parameters})" if parameters and size is None else ""))


def _parameters(summary: CellSummary | None) -> str:
    if summary is None:
        return MISSING
    return " / ".join(f"{summary.parameters[key]:,}" for key in ("paper", "trained", "total"))


def _comparison(summary: CellSummary | None) -> str:
    if summary is None or summary.comparison is None:
        return MISSING
    found = summary.comparison
    p = "< 0.001" if found.p < 0.001 else f"= {found.p:.3f}"
    return f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}], p {p}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(each.replace("|", r"\|") for each in cells) + " |"


def _markdown_entry(entry: Entry) -> str:
    text = f"**{entry.text}**" if entry.best else entry.text
    return text + (" †" if entry.differs else "")


def _latex_entry(entry: Entry) -> str:
    text = _escape(entry.text)
    text = rf"\textbf{{{text}}}" if entry.best else text
    return text + (r"$^\dagger$" if entry.differs else "")


_LATEX = str.maketrans(
    {
        **{each: rf"\{each}" for each in "&%#_{}$"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "±": r"$\pm$",
        "–": "--",
    }
)


def _escape(text: str) -> str:
    return text.translate(_LATEX)
