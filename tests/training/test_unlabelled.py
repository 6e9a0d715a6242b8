"""Texts without labels: rules decide alone, and what needs labels is left out or refused."""

from __future__ import annotations

import csv
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin import explain
from sopa_plugin.data.readers.text import TextReader
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.runs import RunReader
from sopa_plugin.models import load_model
from sopa_plugin.rules import Rules
from sopa_plugin.rules.__main__ import main as rules_command
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.training import evaluate_run, run_experiment

ROOT = Path(__file__).parents[2]
TEXTS = ["a good film", "not good", "so dull , so long", "great", "it is what it is", "", "dull !"]
RULES: list[dict[str, Any]] = [
    {"label": "good", "pattern": [{"LOWER": {"IN": ["good", "great"]}}]},
    {"label": "bad", "pattern": [{"LOWER": "not"}, {"LOWER": "good"}], "over": ["good"]},
    {"label": "bad", "pattern": "dull"},
]
LABELS = ["good", "bad", "bad", "good", "none", "none", "bad"]
"""What the rules say of the texts, `none` where none fires."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the texts, each ten times, and rules."""
    rows = [text for text in TEXTS if text] * 10
    with (tmp_path / "texts.csv").open("w", newline="") as opened:
        csv.writer(opened).writerows([["text"], *([row] for row in rows)])
    lines = (json.dumps({"id": n, "text": row}) + "\n" for n, row in enumerate(rows))
    (tmp_path / "texts.jsonl").write_text("".join(lines))
    (tmp_path / "rules.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in RULES))
    return tmp_path


def config(data: Path, model: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    given = {
        "embedder": {"type": "static", "embedding_dim": 4},
        "encoder": {"type": "sopa", "patterns": {}},
        "head": "linear",
        "rules": str(data / "rules.jsonl"),
        "fallback": "none",
    }
    return {
        "dataset": {"type": "text", "path": str(data / "texts.csv")},
        "tokenizer": "whitespace",
        "model": {**given, **(model or {})},
        "trainer": {"num_epochs": 0},
        **parts,
    }


def ran(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_texts_and_rules_are_a_classifier_without_a_label(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As commands: it trains, predicts, is explained; figures that need labels are nowhere."""
    file, run = data / "config.json", data / "run"
    file.write_text(json.dumps(config(data)))
    made = ran("sopa_plugin.train", file, "-s", run)
    assert made.returncode == 0, made.stderr
    assert made.stderr.count("no labels in train, dev: figures that need them are left out") == 1
    assert "nan" not in made.stderr.lower()
    metrics = (run / "metrics.json").read_text()
    assert json.loads(metrics)["training_epochs"] == 0
    assert not [word for word in ("accuracy", "loss", "f1", "NaN") if word in metrics]
    card = (run / "README.md").read_text()
    assert "None: its texts have no labels." in card
    assert "It began as the rules of rules.jsonl." in card
    assert "| dev |" not in card
    answered = ran("sopa_plugin.predict", run, "-i", data / "texts.csv")
    rows = list(csv.DictReader(answered.stdout.splitlines()))
    assert [row["label"] for row in rows[:6]] == [
        each for each, t in zip(LABELS, TEXTS, strict=True) if t
    ]
    explain.main([str(run), "patterns"])
    assert "Pattern bad/2" in capsys.readouterr().out
    explain.main([str(run), "document", "not good"])
    assert "bad" in capsys.readouterr().out
    explain.main([str(run), "where", "good/1", "--split", "train"])
    said = capsys.readouterr().out
    train, gold = RunReader(run).examples(None, "train", unlabelled=True)
    count = sum(bool({"good", "great"} & {*text.split()}) for text in train)
    assert f"fires in {count} of 54 documents" in said
    assert set(gold) == {-1}
    assert "wrongly" not in said
    assert "✗" not in said
    explain.main([str(run), "rules", "--format", "json"])
    for rule in json.loads(capsys.readouterr().out)["rules"]:
        assert rule["before"] == rule["after"]
    rules_command(["check", str(data / "rules.jsonl"), "--data", str(data / "texts.csv")])
    said = capsys.readouterr().out
    assert "bad/1: exact; fires on 10; " in said
    assert "precision" not in said
    with pytest.raises(UserError, match="its dev texts have no labels to evaluate by"):
        list(evaluate_run(run))
    with pytest.raises(UserError, match="train set: its texts have no labels"):
        explain.main([str(run), "edit", "good/1", "--forbid", "great", "--refit"])
    capsys.readouterr()
    edited = data / "edited"
    explain.main([str(run), "edit", "good/1", "--forbid", "great", "-s", str(edited)])
    said = capsys.readouterr().out
    dev, _ = RunReader(run).examples(None, "dev", unlabelled=True)
    given = [load_model(each).log_probabilities(dev).argmax(axis=1) for each in (run, edited)]
    flipped = (given[0] != given[1]).sum()
    assert f"another label for {flipped} of {len(dev)} dev documents\n" in said
    assert not [word for word in ("accuracy", "labelled", "right", "wrong") if word in said]
    assert f"Another label for {flipped} of {len(dev)}" in (edited / "README.md").read_text()
    page = data / "compare.html"
    explain.main([str(run), "compare", str(edited), "-o", str(page)])
    assert "✗" not in page.read_text()


def test_training_without_labels_is_one_clear_error(data: Path) -> None:
    file, run = data / "config.json", data / "run"
    file.write_text(json.dumps(config(data, trainer={"num_epochs": 2})))
    made = ran("sopa_plugin.train", file, "-s", run)
    assert made.returncode == 1
    assert "Traceback" not in made.stderr
    assert made.stderr.count("error:") == 1
    assert "the train texts have no labels, by which a model is trained" in made.stderr
    assert "trainer.num_epochs: 0" in made.stderr
    assert not run.exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"rules": None, "fallback": None, "encoder": {"type": "mean"}}, "two or more, found none"),
        ({"rules": "one.jsonl", "fallback": None}, "expected two or more, found 'good'"),
    ],
)
def test_classes_must_come_from_rules(data: Path, model: dict[str, Any], message: str) -> None:
    (data / "one.jsonl").write_text(json.dumps(RULES[0]) + "\n")
    if model["rules"]:
        model = {**model, "rules": str(data / model["rules"])}
    with pytest.raises(UserError, match=message):
        run_experiment(config(data, model), data / "run")


def test_a_table_of_other_columns_must_be_told_to_have_no_labels(data: Path) -> None:
    path = str(data / "texts.jsonl")
    with pytest.raises(UserError, match=r"texts\.jsonl:1: no column 'label'.*or to null if there"):
        TextReader(path).read()
    found = TextReader(path, label_column=None).read()
    assert set(found) == {"train", "dev"}
    assert set(found["train"]["label"]) == {-1}
    assert found["train"].features["label"].names == []


def test_texts_of_which_only_some_have_labels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("text,label\na,pos\nb,\n")
    with pytest.raises(UserError, match=r"some\.csv:3: expected a label, found ''"):
        TextReader(str(tmp_path / "some.csv"), test_size=1).read()
    (tmp_path / "more.jsonl").write_text('{"text": "a", "label": "pos"}\n{"text": "b"}\n')
    with pytest.raises(UserError, match=r"more\.jsonl:2: expected a label, found ''"):
        TextReader(str(tmp_path / "more.jsonl"), test_size=1).read()


def test_a_labelled_test_set_is_measured_and_has_the_labels_of_the_rules(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True) if text]
    rows = [row.replace(" , ", " ; ") for row in rows]
    (data / "test.csv").write_text("text,label\n" + "".join(rows) + "what a film,good\n")
    own = {"type": "text", "train": str(data / "texts.csv"), "test": str(data / "test.csv")}
    caplog.set_level(logging.INFO)
    metrics = run_experiment(config(data, dataset=own), data / "run")
    assert metrics["test_accuracy"] == 6 / 7  # the last fires no rule
    assert "best_validation_accuracy" not in metrics
    assert "no labels in train, dev:" in caplog.text
    model: Any = load_model(data / "run")
    assert sorted(model.labels) == ["bad", "good", "none"]
    assert [each["split"] for each in evaluate_run(data / "run")] == ["test"]
    lines = (data / "run" / "test_predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == [
        each for each, t in zip(LABELS, TEXTS, strict=True) if t
    ] + ["good"]
    (data / "test.csv").write_text("text,label\na,odd\n")
    with pytest.raises(UserError, match="expected two or more, also 'odd', found 'good', 'bad'"):
        run_experiment(config(data, dataset=own), data / "other")


def test_predictions_on_a_test_set_without_labels_have_none(data: Path) -> None:
    path = str(data / "texts.csv")
    own = {"type": "text", "train": path, "test": path, "dev_size": 5}
    metrics = run_experiment(config(data, dataset=own), data / "run")
    assert "test_accuracy" not in metrics
    lines = (data / "run" / "test_predictions.jsonl").read_text().splitlines()
    assert {json.loads(line)["label"] for line in lines} == {None}
    rules = Rules.read(data / "rules.jsonl").rules
    fires = RuleMatcher(rules).fires([json.loads(line)["text"].split() for line in lines])
    silent = [json.loads(line)["predicted"] == "none" for line in lines]
    assert silent == (~fires.any(dim=1)).tolist()


def test_a_class_of_no_text_is_none_of_a_model_for_them(data: Path) -> None:
    """Of an empty text nothing is known."""
    run_experiment(config(data), data / "run")
    model: Any = load_model(data / "run")
    found = model.log_probabilities([""])[0]
    assert found.tolist() == pytest.approx([-1.0986123] * 3)
