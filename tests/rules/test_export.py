"""Patterns written back as rules: they fire where the patterns do, and are read again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sopa_plugin.errors import UserError
from sopa_plugin.interpret.export import export
from sopa_plugin.interpret.runs import RunReader
from sopa_plugin.rules import Rules
from sopa_plugin.rules.__main__ import main
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.training import run_experiment

ROOT = Path(__file__).parents[2]
SST = ROOT / "fixtures" / "sst"


def config(**parts: Any) -> dict[str, Any]:
    model = {
        "embedder": {"type": "static", "vectors": str(ROOT / "fixtures" / "vectors.txt")},
        "encoder": {"type": "sopa", "patterns": {"3": 4, "2": 4}},
        "head": "linear",
    }
    return {
        "dataset": {"type": "sst", "path": str(SST), "max_train_examples": 60},
        "tokenizer": {"type": "whitespace", "lowercase": True},
        "model": {**model, **parts},
        "trainer": {"batch_size": 20, "num_epochs": 3, "validation_metric": "+epoch"},
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an MLP head, without rules."""
    folder = tmp_path_factory.mktemp("runs") / "mlp"
    run_experiment(config(head="mlp"), folder)
    return folder


@pytest.fixture(scope="module")
def of_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of rules alone, which are as they began."""
    folder = tmp_path_factory.mktemp("runs") / "rules"
    rows = [
        {"label": "positive", "pattern": [{"LOWER": {"IN": ["good", "funny", "best"]}}]},
        {"label": "negative", "pattern": [{"LOWER": "a"}, {"OP": "*"}, {"LOWER": "of"}]},
        {"label": "negative", "pattern": [{"TEXT": "the"}, {"OP": "?"}, {"LENGTH": {">=": 9}}]},
        {"label": "positive", "pattern": "zork"},
    ]
    file = folder.parent / "given.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {"encoder": {"type": "sopa", "patterns": {}}, "rules": str(file)}
    wanted = config(**changes, fallback="negative")
    wanted["trainer"]["num_epochs"] = 0
    run_experiment(wanted, folder)
    return folder


def test_rules_come_back_as_they_were(of_rules: Path, tmp_path: Path) -> None:
    """Each fires exactly where its pattern does; what fires nowhere is named."""
    reader, file = RunReader(of_rules), tmp_path / "out.jsonl"
    found = export(reader, file)
    assert {each.rule.name for each in found.written} == {"positive/1", "negative/1", "negative/2"}
    assert [(each.precision, each.recall) for each in found.written] == [(1.0, 1.0)] * 3
    assert found.unwritten == {"positive/2": "it fires on no text, or on all alike"}
    assert found.agreement["train"] > 0.9
    rows = {row["id"]: row for row in map(json.loads, found.file().splitlines())}
    assert rows["negative/1"]["pattern"][1] == {"OP": "*"}
    assert rows["negative/2"]["pattern"][1:] == [{"OP": "?"}, {"LENGTH": {">=": 9}}]
    assert rows["positive/1"]["label"] == "positive"


@pytest.mark.parametrize("suffix", [".jsonl", ".txt"])
def test_what_is_written_is_read_again_and_fires_the_same(
    suffix: str, trained: Path, tmp_path: Path
) -> None:
    reader, file = RunReader(trained), tmp_path / f"out{suffix}"
    found = export(reader, file)
    file.write_text(found.file())
    again = Rules.read(file)
    ours = [each.rule for each in found.written]
    assert [(rule.label, rule.weight, rule.over) for rule in again.rules] == [
        (rule.label, rule.weight, rule.over) for rule in ours
    ]
    texts = reader.subject.normal_words(reader.examples(None, "dev")[0])
    fires = RuleMatcher(ours).fires(texts)
    assert fires.any()
    assert torch.equal(RuleMatcher(again.rules).fires(texts), fires)
    assert len(ours) + len(found.unwritten) == len(reader.subject.names)


def test_a_label_that_no_rule_votes_for_has_no_vote_to_lose(tmp_path: Path) -> None:
    given, file = tmp_path / "given.jsonl", tmp_path / "out.jsonl"
    rows = [
        {"label": "negative", "pattern": "of", "over": "other"},
        {"label": "other", "pattern": "zork"},  # which fires on no text and is not written
    ]
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {"encoder": {"type": "sopa", "patterns": {}}, "rules": str(given)}
    wanted = config(**changes, fallback="positive")
    wanted["trainer"]["num_epochs"] = 0
    run_experiment(wanted, tmp_path / "run")
    file.write_text(export(RunReader(tmp_path / "run"), file).file())
    assert [rule.label for rule in Rules.read(file).rules] == ["negative"]


def test_rules_are_faithful_to_their_patterns_and_vote_as_the_model_decides(
    trained: Path, tmp_path: Path
) -> None:
    found = export(RunReader(trained), tmp_path / "out.jsonl")
    assert sorted(each.f1 for each in found.written)[len(found.written) // 2] > 0.8
    assert found.agreement["train"] > 0.8
    assert set(found.agreement) == {"train", "dev", "test"}
    assert max(size for each in found.written for size in each.lists) <= 50


def test_the_command_writes_a_file_and_reports(
    of_rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "out.jsonl"
    asked = ["export", str(of_rules), "-o", str(file), "--data", str(SST / "dev.txt")]
    main(asked)
    said = capsys.readouterr().out
    assert re.search(r"positive/1: positive, .*precision 100\.0%.*lists of 3 words", said)
    assert "positive/2: not written: it fires on no text, or on all" in said
    assert "3 rules of 4 patterns" in said
    assert "the rules' vote is the model's label on the data " in said
    assert len(Rules.read(file).rules) == 3
    with pytest.raises(UserError, match="exists already"):
        main(asked)


def test_other_files_and_models_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"named \.jsonl or \.txt"):
        export(RunReader(trained), tmp_path / "out.csv")
    run_experiment(config(encoder={"type": "dan"}), tmp_path / "dan")
    with pytest.raises(UserError, match="no patterns"):
        RunReader(tmp_path / "dan")
