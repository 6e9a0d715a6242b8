"""What training made of rules: words that joined and left arcs, firing and label."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from sopa_plugin import explain
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.editing import mask, reword
from sopa_plugin.interpret.rules import EPSILON, RuleReading, read_rules
from sopa_plugin.interpret.runs import RunReader
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.rules import Rules
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.training import run_experiment

ROOT = Path(__file__).parents[2]
WORDS = ["a", "the", "hotel", "is", "not", "very", "good", "great", "cheap", "inexpensive", "dear"]
WORDS += [",", "unheard"]


def texts(number: int = 1500) -> list[str]:
    """Random ones, more than are read at once; some are of one word."""
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(number)]


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    very = {"TEXT": "very", "OP": "?"}
    rows: list[dict[str, Any]] = [
        {"label": "bad", "pattern": [{"TEXT": "not"}, {"OP": "*"}, {"TEXT": "good"}], "over": "ok"},
        {"label": "ok", "pattern": [{"TEXT": {"IN": ["cheap", "good"]}}], "weight": 0.5},
        {
            "label": "ok",
            "pattern": [{"TEXT": "a"}, very, {"TEXT": "the", "OP": "?"}, {"TEXT": "a"}],
        },
        {"label": "bad", "pattern": "zork"},
        {"label": "none", "pattern": [{"TEXT": "is"}, very, {"TEXT": "great"}]},
    ]
    file = tmp_path / "rules.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Rules.read(file).deciding("ok", {})


def by_name(subject: ModelSubject, found: list[str]) -> dict[str, RuleReading]:
    return {each.rule: each for each in read_rules(subject, found).rules}


def changes(reading: RuleReading) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    return {f"{arc.pattern} {arc.arc}": (arc.joined, arc.left) for arc in reading.arcs}


def test_rules_that_nothing_has_changed_fire_where_they_are_found(rules: Rules) -> None:
    found = texts()
    subject = ModelSubject(rules.to_model(found[:300], tokenizer="whitespace"))
    expected = RuleMatcher(rules.rules).fires([text.split() for text in found]).sum(dim=0).tolist()
    reading = read_rules(subject, found)
    assert [each.after.fires for each in reading.rules] == expected
    assert min(each for each in expected if each) > 20
    for each, rule in zip(reading.rules, rules.rules, strict=True):
        assert each.before == each.after
        assert (each.before.label, each.both, each.arcs) == (rule.label, each.after.fires, [])
    votes = [each.after.votes for each in reading.rules]
    # a vote more than the third label and, of the first rule, than the one that loses none
    assert votes == pytest.approx([1, 0.5, 1, 1, 1], abs=0.03)


def test_words_that_were_put_on_arcs_or_taken_joined_or_left_them(rules: Rules) -> None:
    found = [*texts(), "is unheard great", "a is unheard great dear", "is very great"]
    start = ModelSubject(rules.to_model(found[:300], tokenizer="whitespace"))
    edited, _ = reword(start, found[:300], "ok/1", forbid=["cheap"], allow=["inexpensive"])
    edited, _ = reword(edited, found[:300], "none/1", allow=["unheard"], arc=2)
    split = [text.split() for text in found]
    reading = by_name(edited, found)
    own = reading["ok/1"]
    fired, fires = (
        [bool(words & {*text}) for text in split]
        for words in ({"cheap", "good"}, {"inexpensive", "good"})
    )
    both = sum(a and b for a, b in zip(fired, fires, strict=True))
    assert (own.before.fires, own.after.fires, own.both) == (sum(fired), sum(fires), both)
    ((place, (joined, left)),) = changes(own).items()
    assert place == "ok/1 arc 1"
    assert {*joined} == {"inexpensive"}
    assert {*left} == {"cheap"}
    # where a text has other words of the rule, the best match may be any of them
    alone = sum("cheap" in text and "good" not in text for text in split)
    assert alone <= left["cheap"] <= sum("cheap" in text for text in split)
    # very is optional there, and other words are now taken for it
    joined, left = changes(reading["none/1"])["none/1 arc 2"]
    assert ({*joined}, left) == ({"unheard"}, {})
    assert joined["unheard"] == reading["none/1"].after.fires - reading["none/1"].both
    assert not reading["bad/1"].arcs


def test_gaps_epsilons_and_unions_are_told_by_their_arcs(rules: Rules) -> None:
    found = ["not a good", "not good", "not the very good", "is very great", "is great", "a the a"]
    subject = ModelSubject(rules.to_model(found, tokenizer="whitespace"))
    names, arcs, layout = subject.names, subject.encoder.arcs, subject.encoder.layout
    with torch.no_grad():
        first, last = names.index("bad/1"), names.index("none/1")
        loop, skip = layout.loops[1], layout.epsilon_arcs[1]
        assert loop is not None
        arcs.bias[loop.origin + first] = -40  # no gap is bridged any more
        arcs.epsilon[skip.origin + last] = -40  # very must be there
    reading = by_name(subject, found)
    assert changes(reading["bad/1"]) == {"bad/1 loop at 1": ({}, {"a": 1, "the": 1, "very": 1})}
    assert (reading["bad/1"].before.fires, reading["bad/1"].after.fires) == (3, 1)
    assert changes(reading["none/1"]) == {"none/1 arc 2": ({}, {EPSILON: 1})}
    several = [name for name in names if name.startswith("ok/2")]
    assert len(several) == 2
    with torch.no_grad():
        for name in several:
            arcs.bias[layout.main_path[0].origin + names.index(name)] = -40
    reading = by_name(subject, found)
    assert (reading["ok/2"].before.fires, reading["ok/2"].after.fires) == (1, 0)
    told = changes(reading["ok/2"])
    assert {*told} <= {f"{name} arc 1" for name in several}
    assert all(each == ({}, {"a": 1}) for each in told.values())


def test_the_label_is_the_one_that_the_head_gives_votes(rules: Rules) -> None:
    found = texts(200)
    subject = ModelSubject(rules.to_model(found, tokenizer="whitespace"))
    head: Any = subject.model.head
    with torch.no_grad():
        head.output.weight[:, subject.names.index("none/1")] = torch.tensor([-4.0, 8.0, 6.0])
    reading = by_name(subject, found)["none/1"]
    assert subject.labels == ("bad", "ok", "none")
    assert (reading.before.label, reading.after.label) == ("none", "ok")
    assert reading.after.votes == pytest.approx(0.5, abs=0.02)
    mask(subject, ["none/1"], means=torch.zeros(len(subject.names)))
    after = by_name(subject, found)["none/1"].after
    assert (after.label, after.votes) == (None, 0.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on texts where what is inexpensive is as good as what is cheap."""
    folder = tmp_path_factory.mktemp("learned")
    draw, vectors, rows = random.Random(5), [], []
    fillers = ["hotel", "room", "street", "the", "a", "near", "big"]
    for word in [*fillers, "cheap", "inexpensive", "dear"]:
        numbers = [draw.gauss(0, 0.3) for _ in range(8)]
        numbers[0] = 3.0 if word in ("cheap", "inexpensive") else 0.0
        vectors.append(f"{word} {' '.join(f'{each:.4f}' for each in numbers)}\n")
    for number in range(120):
        label, word = [("good", "cheap"), ("good", "inexpensive"), ("bad", "dear")][number % 3]
        words = [*draw.choices(fillers, k=4), word]
        draw.shuffle(words)
        rows.append(f"{' '.join(words)}\t{label}\n")
    (folder / "vectors.txt").write_text("".join(vectors))
    (folder / "train.tsv").write_text("text\tlabel\n" + "".join(rows))
    (folder / "rules.tsv").write_text("cheap\tgood\ndear\tbad\n")
    embedder = {"type": "static", "vectors": str(folder / "vectors.txt"), "trainable": False}
    model = {"embedder": embedder, "encoder": {"type": "sopa", "patterns": {}}, "head": "linear"}
    config = {
        "dataset": {"type": "text", "path": str(folder / "train.tsv"), "test_size": 20},
        "model": {**model, "rules": str(folder / "rules.tsv"), "fallback": "bad"},
        "trainer": {
            "batch_size": 20,
            "num_epochs": 12,
            "validation_metric": "+epoch",
            "optimizer": {"type": "adam", "lr": 0.05},
        },
    }
    run_experiment(config, folder / "run")
    return folder / "run"


def test_training_lets_a_word_join_that_is_like_those_of_the_rule(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explain.main([str(run), "rules", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    cheap = found["rules"][0]
    assert (cheap["rule"], cheap["before"]["label"], cheap["after"]["label"]) == (
        "good/1",
        "good",
        "good",
    )
    (arc,) = cheap["arcs"]
    assert (arc["pattern"], arc["arc"]) == ("good/1", "arc 1")
    word, count = next(iter(arc["joined"].items()))
    train, _ = RunReader(run).examples(None, "train")
    assert (word, count) == ("inexpensive", sum("inexpensive" in text for text in train))
    assert sum(arc["joined"].values()) == cheap["after"]["fires"] - cheap["both"]  # one in each
    assert cheap["both"] == cheap["before"]["fires"]
    explain.main([str(run), "rules", "--split", "test"])
    said = capsys.readouterr().out
    assert "What training made of the rules" in said
    assert "good/1, arc 1  + inexpensive" in said


def test_the_rules_stand_in_pages_too(run: Path, tmp_path: Path) -> None:
    for action in ("rules", "report"):
        file = tmp_path / f"{action}.html"
        explain.main([str(run), action, "-o", str(file)])
        assert "good/1, arc 1  + inexpensive" in file.read_text()
    explain.main([str(run), "report", "-o", str(tmp_path / "report.json")])
    assert len(json.loads((tmp_path / "report.json").read_text())["rules"]) == 2


def test_a_rule_of_the_only_label_has_its_vote(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("cheap\tgood\n")
    subject = ModelSubject(Rules.read(tmp_path / "one.tsv").to_model(["cheap"]))
    reading = by_name(subject, ["cheap", "dear"])["good/1"]
    assert (reading.after.label, reading.after.fires) == ("good", 1)
    assert reading.after.votes == pytest.approx(1, abs=0.03)


def test_a_model_without_rules_has_none_to_read(rules: Rules) -> None:
    model: Any = rules.to_model(["a"], tokenizer="whitespace")
    model.config.rules = None
    with pytest.raises(UserError, match=r"has no rules; expected one trained with model\.rules"):
        read_rules(ModelSubject(model), ["a"])
