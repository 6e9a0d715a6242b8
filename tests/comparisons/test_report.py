from __future__ import annotations

import json
import re

import pytest

from sopa_plugin.comparisons import Description, Runner
from sopa_plugin.comparisons.description import Cell
from sopa_plugin.comparisons.report import (
    accuracy_rows,
    draw_curves,
    latex,
    markdown,
    report_parts,
    thousands,
)
from sopa_plugin.comparisons.summary import CellSummary, Difference, parameter_counts
from sopa_plugin.registry import build


@pytest.fixture
def cells(description, tmp_path):
    """Of nothing that has been run."""
    return Runner(build(Description, description).plans(), tmp_path).cells


@pytest.fixture
def summaries():
    counts = {"paper": 255_017, "trained": 200_000, "total": 1_000_000}
    worse = Difference(-3.0, -5.0, -1.0, 0.004)

    def cell(model, size, accuracies, comparison=None, states=None):
        key = Cell("sst", model, size)
        return key, CellSummary(key, accuracies, 60, counts, states, 1.0, 2, comparison, {})

    return dict(
        [
            cell("dan", 60, [70.0, 72.0]),
            cell("hard", 60, [68.0, 68.0], worse),
            cell("dan", None, [80.0, 81.0], states=12.5),
        ]
    )


def test_accuracy_table(description, summaries):
    table = markdown(accuracy_rows(build(Description, description), summaries))
    assert table.splitlines() == [
        "| Model | SST (60) | SST (all) |",
        "| --- | --- | --- |",
        "| Hard | 68.0 ± 0.0 (255K) † | – |",
        "| DAN | **71.0 ± 1.4 (255K)** | **80.5 ± 0.7 (255K)** |",
        "| – paper | 71.0 | 83.1 |",
    ]


def test_latex_has_the_same_figures_and_balances(description, summaries):
    text = latex(accuracy_rows(build(Description, description), summaries))
    assert r"\textbf{71.0 $\pm$ 1.4 (255K)}" in text
    assert r"68.0 $\pm$ 0.0 (255K)$^\dagger$" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {row.count("&") for row in rows} == {2}
    assert text.count("{") == text.count("}")


def test_latex_of_odd_titles(description, summaries):
    description["models"][0]["title"] = r"a & b_{1} \alpha $x$ 5 % <~^> #"
    text = latex(accuracy_rows(build(Description, description), summaries))
    assert (
        r"a \& b\_\{1\} \textbackslash{}alpha \$x\$ 5 \% "
        r"$<$\textasciitilde{}\textasciicircum{}$>$ \#"
    ) in text


def test_differences_and_parameters(description, summaries, cells):
    parts = report_parts(build(Description, description), cells, summaries)
    assert "| Hard | -3.0 [-5.0, -1.0], p = 0.004 | – |" in parts["differences"]
    assert "| DAN |" not in parts["differences"]
    assert "| DAN | 255,017 / 200,000 / 1,000,000 |" in parts["parameters"]


@pytest.mark.parametrize(
    ("number", "text"), [(74, "74"), (6_978, "7K"), (255_017, "255K"), (1_505_102, "1.5M")]
)
def test_thousands(number, text):
    assert thousands(number) == text


def test_parameters_as_the_paper_counts_them():
    # the paper's SoPa on SST: 300 dimensions, {6:20, 5:20, 4:10, 3:10, 2:10}, MLP 25
    import torch

    from sopa_plugin.encoders import SopaEncoder
    from sopa_plugin.heads import ClassifierHead

    patterns = {6: 20, 5: 20, 4: 10, 3: 10, 2: 10}
    encoder = SopaEncoder(input_dim=300, patterns=patterns)
    head = ClassifierHead.from_params(
        {"type": "mlp", "hidden_dim": 25}, input_dim=encoder.get_output_dim(), num_labels=2
    )
    sizes = [sum(each.numel() for each in part.parameters()) for part in (encoder, head)]
    metrics = {
        "parameters_total": sum(sizes) + 5000,
        "parameters_trainable": sum(sizes),
        "parameters_encoder": sizes[0],
        "parameters_encoder_released": encoder.parameter_counts()["released"],
    }
    assert parameter_counts(metrics)["paper"] == 255_017
    assert isinstance(head, torch.nn.Module)
    hard = {"parameters_total": 7, "parameters_trainable": 7, "parameters_features": 6}
    assert parameter_counts(hard)["paper"] == 6


def test_report_files(whole):
    folder = whole / "report"
    text = (folder / "table.md").read_text()
    assert "4 of 4 cells are finished" in text
    assert "12 runs" in text  # of 16, a best trial is the first seed's run
    assert re.search(r"\| Hard \| [\d.]+ \| [\d.]+ \|", text) is None
    cells = json.loads((folder / "table.json").read_text())
    assert cells[0]["comparison"].keys() == {"difference", "low", "high", "p"}
    svg = (folder / "curve.svg").read_text()
    assert "training examples (SST)" in svg
    assert "DAN" in svg
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    best = json.loads((folder / "best" / "sst.dan.60.json").read_text())
    assert best["dataset"]["max_train_examples"] == 60


def test_points_over_states_are_on_the_lines_that_their_models_name(
    description, summaries, tmp_path
):
    description["models"][0]["line"] = "given"
    description["models"][1]["line"] = "group lasso"
    compared = build(Description, description)
    assert compared.lines == {"given": ["hard"], "group lasso": ["dan"]}
    draw_curves(compared, summaries, [tmp_path / "curve.svg"])
    svg = (tmp_path / "curve.svg").read_text()
    assert "states of all patterns (SST)" in svg
    assert "group lasso" in svg
    assert "DAN" in svg
    assert "Hard" not in svg  # which has no states
