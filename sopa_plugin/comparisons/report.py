"""What a comparison and a search leave behind: tables, pictures, the best configs."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sopa_plugin.comparisons.description import Cell, Description
from sopa_plugin.comparisons.runner import CellRuns
from sopa_plugin.comparisons.study import Study
from sopa_plugin.comparisons.summary import RESAMPLES, CellSummary, summarize, too_small
from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.errors import UserError, markdown_table, require
from sopa_plugin.files import write_file
from sopa_plugin.registry import build

SIGNIFICANT = 0.05
MISSING = "–"

Summaries = Mapping[Cell, CellSummary]


class Entry(NamedTuple):
    """A field of a table: its text, whether it is the best of its column, and significant."""

    text: str
    best: bool = False
    differs: bool = False


Rows = list[list[Entry]]
"""A table; the first row is the head, and the first entries are titles."""


def write_report(description: Description, cells: Sequence[CellRuns], folder: Path) -> None:
    """Writes `table.md`, `.tex` and `.json`, `best/`, and `curve.png` and `.svg` if there is one.

    What is not finished yet is left open. The figures depend on the results alone, so a comparison
    that was interrupted writes the same tables as one that was not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    summaries = summarize(description, cells)
    parts = report_parts(description, cells, summaries)
    headings = {"accuracy": f"# {description.title}", "parameters": "## Parameters"}
    if description.reference is not None:
        title = description.models[description.reference].title
        headings["differences"] = f"## Differences from {title}"
    text = "\n\n".join(f"{headings[name]}\n\n{part}" for name, part in parts.items())
    write_file(folder / "table.md", text + "\n")
    write_file(folder / "table.tex", latex(accuracy_rows(description, summaries)))
    content = [each.as_json() for each in summaries.values()]
    write_file(folder / "table.json", json.dumps(content, indent=1) + "\n")
    best = folder / "best"
    best.mkdir(exist_ok=True)
    for cell, each in summaries.items():
        write_file(best / f"{cell.name}.json", json.dumps(each.config, indent=2) + "\n")
    if description.has_curve and summaries:
        files = [folder / f"curve.{ending}" for ending in ("png", "svg")]
        draw_curves(description, summaries, files)


def keep_in(file: Path, source: Path, description: Description, cells: Sequence[CellRuns]) -> None:
    """Brings what a Markdown file shows of the comparison that `source` describes up to date.

    Of `table.jsonnet` that is whatever stands between a line `<!-- table.accuracy -->` (or
    `.differences`, `.parameters`, `.curve`) and the next line `<!-- end -->`; the picture of the
    curve is beside `table.jsonnet`.

    Raises `UserError` if nothing in the file is of this comparison.
    """
    summaries = summarize(description, cells)
    parts = report_parts(description, cells, summaries)
    parts["accuracy"] = f"`python -m sopa_plugin.experiments {source}`. {parts['accuracy']}"
    marks = re.compile(rf"(<!-- {re.escape(source.stem)}\.(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    text = file.read_text(encoding="utf-8")
    wanted = {match[2] for match in marks.finditer(text)}
    if "curve" in wanted and summaries:
        picture = source.with_suffix(".svg")
        draw_curves(description, summaries, [picture])
        parts["curve"] = f"![{description.title}]({os.path.relpath(picture, file.parent)})"
    if not wanted or wanted - parts.keys():
        raise UserError(
            f"{file}: expected lines as <!-- {source.stem}.accuracy --> and <!-- end -->, of the "
            f"parts {', '.join(parts)}; found {', '.join(sorted(wanted)) or 'none'}"
        )
    write_file(file, marks.sub(lambda match: f"{match[1]}{parts[match[2]]}\n{match[3]}", text))


def report_parts(
    description: Description, cells: Sequence[CellRuns], summaries: Summaries
) -> dict[str, str]:
    """The Markdown of `accuracy`, `differences` (where there is a reference) and `parameters`."""
    runs = sum(each.runs for each in summaries.values())
    hours = sum(each.seconds for each in summaries.values()) / 3600
    seeds = ", ".join(map(str, description.seeds))
    accuracy = [
        f"Test accuracy in percent ± standard deviation, seeds {seeds} (parameters as the paper "
        f"counts them); {_tuning_in_words(description)}. {len(summaries)} of {len(cells)} cells "
        f"are finished: {runs} runs, {hours:.2f} hours added up.",
        *_warnings(description, cells),
        markdown(accuracy_rows(description, summaries)),
    ]
    parts = {}
    if description.reference is not None:
        title = description.models[description.reference].title
        accuracy.append(f"† differs from {title} (p < {SIGNIFICANT}).")
        rows = _rows(description, summaries, _difference)
        parts["differences"] = (
            f"In points, with 95 % intervals; paired bootstrap over seeds and test examples "
            f"({RESAMPLES:,} resamples).\n\n"
            + markdown([row for row in rows if row[0].text != title])
        )
    kinds = ("paper", "trained", "total")
    rows = _rows(
        description,
        summaries,
        lambda each: Entry(" / ".join(f"{each.parameters[kind]:,}" for kind in kinds)),
    )
    parts["parameters"] = (
        f"As the paper counts them / trained / all, word vectors too.\n\n{markdown(rows)}"
    )
    return {"accuracy": "\n\n".join(accuracy), **parts}


def accuracy_rows(description: Description, summaries: Summaries) -> Rows:
    """Test accuracies with their deviations (and parameters as the paper counts them).

    Under each model stand the published figures, where there are any.
    """
    best: dict[tuple[str, int | None], float] = {}
    for cell, each in summaries.items():
        column = cell.data, cell.size
        best[column] = max(each.mean, best.get(column, 0.0))

    def entry(summary: CellSummary) -> Entry:
        deviation = "" if summary.deviation is None else f" ± {summary.deviation:.1f}"
        text = f"{summary.mean:.1f}{deviation} ({thousands(summary.parameters['paper'])})"
        top = best[summary.cell.data, summary.cell.size]
        differs = summary.comparison is not None and summary.comparison.p < SIGNIFICANT
        return Entry(text, f"{summary.mean:.1f}" == f"{top:.1f}", differs)

    head, *ours = _rows(description, summaries, entry)
    published, rows = description.published, [head]
    for model, row in zip(description.models, ours, strict=True):
        rows.append(row)
        if published is None:
            continue
        entries = [Entry(f"– {published.title}")]
        for data, size in _columns(description):
            accuracy = published.accuracy(model, data, size)
            parameters = published.parameters.get(model, {}).get(data) if size is None else None
            text = MISSING if accuracy is None else f"{accuracy:.1f}"
            entries.append(Entry(text + (f" ({parameters})" if parameters else "")))
        if any(each.text != MISSING for each in entries[1:]):
            rows.append(entries)
    return rows


def _rows(
    description: Description, summaries: Summaries, entry: Callable[[CellSummary], Entry]
) -> Rows:
    """Models by data sets and sizes."""
    columns = _columns(description)
    titles = [
        description.data[data].title
        + (f" ({size:,})" if size is not None else " (all)" if len(description.sizes) > 1 else "")
        for data, size in columns
    ]
    rows = [[Entry(each) for each in ("Model", *titles)]]
    for model, about in description.models.items():
        found = (summaries.get(Cell(data, model, size)) for data, size in columns)
        entries = (entry(each) if each else Entry(MISSING) for each in found)
        rows.append([Entry(about.title), *entries])
    return rows


def _columns(description: Description) -> list[tuple[str, int | None]]:
    return [(data, size) for data in description.data for size in description.sizes]


def _difference(summary: CellSummary) -> Entry:
    found = summary.comparison
    if found is None:
        return Entry(MISSING)
    p = "< 0.001" if found.p < 0.001 else f"= {found.p:.3f}"
    return Entry(f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}], p {p}")


def thousands(number: int) -> str:
    """A number of parameters as the paper writes them: 255K, 1.5M."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.0f}K" if number < 999_500 else f"{number / 1e6:.1f}M"


def _tuning_in_words(description: Description) -> str:
    tuning = description.tuning
    if not tuning.num_trials:
        return "no tuning"
    limits = []
    for key, form in (("num_epochs", "at most {} epochs"), ("patience", "patience {}")):
        cells: dict[int | None, list[str]] = {}
        for data, size in _columns(description):
            name = description.data[data].title + ("" if size is None else f" {size}")
            cells.setdefault(tuning.limit(key, data, size), []).append(name)
        several = ", ".join(f"{limit} ({', '.join(names)})" for limit, names in cells.items())
        if getattr(tuning, key) is not None:
            limits.append(form.format(several if len(cells) > 1 else next(iter(cells))))
    return (
        f"{tuning.num_trials} trials of random search for each "
        f"({'; '.join(limits) or 'as configured'}), the best by dev {tuning.metric}"
    )


def _warnings(description: Description, cells: Sequence[CellRuns]) -> Iterator[str]:
    """What figures must not be taken for."""
    data = description.data
    read = {cell.data: description.config(cell, 0)["dataset"] for cell in description.cells()}
    samples = [
        data[name].title
        for name, dataset in read.items()
        if build(DatasetReader, dataset).is_embedded_sample
    ]
    small = too_small(description, cells)
    left_open = ", ".join(sorted({f"{data[each.data].title} ({each.size:,})" for each in small}))
    if samples:
        yield f"**{', '.join(samples)}: the embedded sample; figures say nothing about real data.**"
    if left_open:
        yield f"Left open, for want of training examples: {left_open}."


def _marked(rows: Rows, bold: str, dagger: str) -> list[list[str]]:
    """The fields of a table, the best in bold and a dagger at what differs from the reference."""
    return [
        [(bold if best else "{}").format(text) + dagger * differs for text, best, differs in row]
        for row in rows
    ]


def markdown(rows: Rows) -> str:
    """A table, with a dagger at what differs from the reference."""
    return markdown_table(_marked(rows, "**{}**", " †"))


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


def latex(rows: Rows) -> str:
    """A `tabular` with rules of the package booktabs."""
    escaped = [[each._replace(text=each.text.translate(_LATEX)) for each in row] for row in rows]
    fields = _marked(escaped, r"\textbf{{{}}}", r"$^\dagger$")
    head, *others = (rf"{' & '.join(each)} \\" for each in fields)
    begin = rf"\begin{{tabular}}{{@{{}}{'l' * len(rows[0])}@{{}}}}"
    parts = [begin, r"\toprule", head, r"\midrule", *others, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(parts) + "\n"


def write_search_report(study: Study, folder: Path) -> None:
    """Writes `best.json`, `trials.md`, `trials.json`, `history.png` and `parameters.png`.

    The `study` has at least one complete trial.
    """
    names = list(study.search.parameters)
    head = [f"dev {study.search.metric[1:]}", "dev accuracy", "test accuracy", "epochs", "seconds"]
    rows = [["trial", *head, *names]]
    plain = []
    complete = study.complete
    for trial in [*complete, *(each for each in study.trials if each.state.name != "COMPLETE")]:
        metrics, state = trial.user_attrs.get("metrics", {}), trial.state.name.lower()
        value = trial.value if state == "complete" else None
        known = {
            key: each
            for key, each in trial.user_attrs.items()
            if key not in ("metrics", "correct", "gold")
        }
        accuracies = (metrics.get(f"{each}_accuracy") for each in ("best_validation", "test"))
        rows.append(
            [
                str(trial.number),
                state if value is None else f"{value:.4f}",
                *("" if each is None else f"{each:.4f}" for each in accuracies),
                str(metrics.get("training_epochs", "")),
                f"{known['seconds']:.0f}" if "seconds" in known else "",
                *(str(trial.params.get(name, "")) for name in names),
            ]
        )
        told = {"number": trial.number, "state": state, "value": value, "parameters": trial.params}
        plain.append({**told, **metrics, **known})
    write_file(folder / "best.json", json.dumps(complete[0].user_attrs["config"], indent=2) + "\n")
    write_file(folder / "trials.md", markdown_table(rows) + "\n")
    write_file(folder / "trials.json", json.dumps(plain, indent=1))
    _draw_search(study, folder)


def _draw_search(study: Study, folder: Path) -> None:
    """The best so far, and the metric against each parameter."""
    pyplot = require("matplotlib.pyplot", "the pictures of a search")
    pictures = require("optuna.visualization.matplotlib", "the pictures of a search")
    name = f"dev {study.search.metric[1:]}"
    pyplot.switch_backend("agg")
    with warnings.catch_warnings(), pyplot.rc_context():
        warnings.simplefilter("ignore")  # they are an experimental feature of Optuna's
        drawn = {
            "history.png": pictures.plot_optimization_history(study.optuna, target_name=name),
            "parameters.png": pictures.plot_slice(study.optuna, target_name=name),
        }
        for file, panels in drawn.items():
            panels = getattr(panels, "flat", [panels])
            for panel in panels:
                panel.tick_params(axis="x", labelrotation=30, labelsize="small")
            figure = panels[0].figure
            figure.savefig(folder / file, dpi=150, bbox_inches="tight")
            pyplot.close(figure)


MARKERS = "osD^vP*X"


def draw_curves(description: Description, summaries: Summaries, files: list[Path]) -> None:
    """One panel a data set, one line a model; bars are the deviation over the seeds.

    Published figures are thin dashed lines of the same colour. Of models that name a `line`, each
    is a point of it, over the number of its patterns' states. Each of the `files` has the format
    of its ending.
    """
    matplotlib = require("matplotlib", "a picture")
    figures = require("matplotlib.figure", "a picture")
    # the same picture is the same file
    with matplotlib.rc_context({"svg.hashsalt": "sopa", "svg.fonttype": "none"}):
        width = 5.2 * len(description.data) + 1.5  # of the legend
        figure = figures.Figure(figsize=(width, 4.2), layout="constrained")
        panels = figure.subplots(1, len(description.data), squeeze=False)
        draw = _draw_states if description.lines else _draw_panel
        for panel, data in zip(panels[0], description.data, strict=True):
            panel.set_xscale("log")
            panel.grid(alpha=0.3)
            draw(panel, description, summaries, data)
        panels[0][0].set_ylabel("test accuracy (%)")
        panels[0][-1].legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1))
        figure.suptitle(description.title)
        for file in files:
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=150, metadata=metadata)


def _draw_panel(panel: Any, description: Description, summaries: Summaries, data: str) -> None:
    finished = [each for cell, each in summaries.items() if cell.data == data]
    # how many all are is known once a model has seen them
    sizes: dict[int | None, int] = {each: each for each in description.sizes if each is not None}
    sizes |= {each.cell.size: each.training_examples for each in finished}
    for number, (model, entry) in enumerate(description.models.items()):
        of_model = [each for each in finished if each.cell.model == model]
        points = [(each.training_examples, each) for each in of_model]
        if points:
            _draw_line(panel, number, entry.title, points)
        if description.published is not None:
            found = {x: description.published.accuracy(model, data, n) for n, x in sizes.items()}
            known = {x: y for x, y in found.items() if y is not None}
            panel.plot([*known], [*known.values()], "--", c=f"C{number}", lw=0.8)
    if description.published is not None:
        panel.plot([], [], "--", c="gray", lw=0.8, label=description.published.title)
    panel.set_xticks(list(sizes.values()), [f"{each:,}" for each in sizes.values()])
    panel.minorticks_off()
    panel.set_xlabel(f"training examples ({description.data[data].title})")


def _draw_states(panel: Any, description: Description, summaries: Summaries, data: str) -> None:
    for number, (line, models) in enumerate(description.lines.items()):
        found = (summaries.get(Cell(data, model, None)) for model in models)
        points = [(each.states, each) for each in found if each and each.states is not None]
        points.sort(key=lambda point: point[0])
        for states, each in points:
            title = description.models[each.cell.model].title
            panel.annotate(title, (states, each.mean), (4, 4), textcoords="offset points", size=7)
        _draw_line(panel, number, line, points)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.margins(x=0.25)  # for the titles
    panel.set_xlabel(f"states of all patterns ({description.data[data].title})")


def _draw_line(
    panel: Any, number: int, title: str, points: Sequence[tuple[float, CellSummary]]
) -> None:
    panel.errorbar(
        [x for x, _ in points],
        [each.mean for _, each in points],
        [each.deviation or 0 for _, each in points],
        color=f"C{number}",
        marker=MARKERS[number % len(MARKERS)],
        capsize=2,
        label=title,
    )
