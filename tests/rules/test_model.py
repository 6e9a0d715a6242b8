"""Rules as a model: it labels as they vote, learns, is saved and explained like any other."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sopa_plugin.compiled import load_compiled
from sopa_plugin.compiled.classifier import save_compiled
from sopa_plugin.encoders.sopa_layers import FIRES
from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.models import TextClassifier, load_model
from sopa_plugin.registry import check
from sopa_plugin.rules import Rules
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.rules.tokens import read_token
from sopa_plugin.rules.unknown import UnknownWords
from sopa_plugin.training import Experiment, run_experiment

ROOT = Path(__file__).parents[2]
FILMS = ROOT / "fixtures" / "rules" / "films.jsonl"
SHARED = ROOT.parent / "shared" / "data" / "rules"
PUBLISHED: dict[str, tuple[str, dict[str, list[str]]]] = {
    "atis": (
        "flight",
        {
            "ground_fare": ["ground_service"],
            "flight": [
                *("city", "airport", "airline", "meal", "capacity", "cheapest", "distance"),
                "flight+airline",
            ],
            "airfare": ["flight"],
            "abbreviation": ["restriction"],
            "ground_service": ["airport"],
        },
    ),
    "trec": ("DESCRIPTION", {"ENTITY": ["DESCRIPTION"]}),
}
"""The fallback and the precedence of two published sets of rules."""


def votes(rules: Rules, texts: list[list[str]]) -> list[str]:
    """The label of most votes; of several the first in the file, the fallback where none fires."""
    labels = list(rules.labels)
    found = []
    for fired in RuleMatcher(rules.rules).fires(texts).tolist():
        counts = dict.fromkeys(labels, 0.0)
        for rule, fires in zip(rules.rules, fired, strict=True):
            if fires:
                counts[rule.label] += rule.weight
                for other in set(rule.over) & set(labels):
                    counts[other] -= 1
        best = max(labels, key=counts.__getitem__)
        found.append(best if any(fired) else str(rules.fallback))
    return found


def predicted(model: Any, texts: list[str]) -> list[str]:
    return [model.labels[best] for best in model.log_probabilities(texts).argmax(axis=1)]


def written(path: Path, *rules: dict[str, Any]) -> Rules:
    path.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    return Rules.read(path)


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    not_good = [{"LOWER": "not"}, {"OP": "*"}, {"LOWER": "good"}]
    where = [{"TEXT": "where"}, {"TEXT": "is", "OP": "?"}, {"TEXT": "x", "OP": "{1,3}"}]
    return written(
        tmp_path / "rules.jsonl",
        {"label": "bad", "pattern": not_good, "over": "good"},
        {"label": "good", "pattern": [{"LOWER": {"IN": ["good", "great"]}}]},
        {"label": "place", "pattern": where},
        {"label": "place", "pattern": "the city", "weight": 0.5},
    ).deciding("bad", {"bad": ["good"]})  # said twice, it takes one vote


def test_a_rule_has_one_vote_and_takes_one(rules: Rules) -> None:
    assert rules.votes(["good", "other", "bad", "place"]).tolist() == [
        *([-1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0.5])
    ]


def test_rules_without_a_label_decide_as_they_vote(rules: Rules) -> None:
    """Also across 1,000 tokens, on unknown words, and compiled."""
    draw = random.Random(0)
    words = ["not", "good", "great", "where", "is", "x", "the", "city", "unknown", "words"]
    texts = [draw.choices(words, k=draw.randint(1, 12)) for _ in range(500)]
    gap = draw.choices(["is", "the", "unknown"], k=1000)
    texts += [["not", *gap, "good"], ["good", *gap, "not"], ["where", *gap, "x"], gap]
    joined = [" ".join(text) for text in texts]
    model = rules.to_model(joined[:300], tokenizer="whitespace")
    expected = votes(rules, texts)
    assert len(set(expected)) == 3
    assert predicted(model, joined) == expected
    np.testing.assert_allclose(
        model.to_compiled().log_probabilities(joined), model.log_probabilities(joined), atol=1e-5
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rules_decide_as_they_vote(name: str) -> None:
    if not (SHARED / name / "dev.tsv").exists():
        pytest.skip("no ../shared/data/rules")
    rules = Rules.read(SHARED / name / "rules.txt").deciding(*PUBLISHED[name])
    splits = {
        split: [line.split("\t")[1] for line in (SHARED / name / f"{split}.tsv").open()][1:]
        for split in ("train", "dev", "test")
    }
    model = rules.to_model([each.strip() for each in splits["train"]], tokenizer="whitespace")
    for texts in splits.values():
        expected = votes(rules, [text.split() for text in texts])
        agree = np.mean([a == b for a, b in zip(predicted(model, texts), expected, strict=True)])
        assert agree >= 0.995


def test_a_pattern_fires_where_its_rule_does_and_shows_a_span_of_it(rules: Rules) -> None:
    texts = ["not so very good", "where x x", "great the city", "nothing"]
    model = rules.to_model(texts, tokenizer="whitespace")
    explainer = Explainer.from_model(model)
    names = explainer.subject.names
    assert {"bad/1", "good/1", "place/1", "place/2", "no rule"} == set(names)
    fires = RuleMatcher(rules.rules).fires([text.split() for text in texts])
    document = model(**tokens(model, texts), output_hidden_states=True).hidden_states[0]
    for number, rule in enumerate(rules.rules):
        own = [place for place, name in enumerate(names) if name == rule.name]
        assert torch.equal((document[:, own] > FIRES).any(dim=1), fires[:, number])
    assert explainer.thresholds(texts)["bad/1"] < 0.2  # whatever the texts are
    shown = explainer.document("not so very good")
    match = next(each for each in shown.contributions if each.pattern == "bad/1").match
    assert match is not None
    assert match.phrase == "not so very good"


def tokens(model: Any, texts: list[str]) -> Any:
    return model.tokenizer(texts, padding=True, return_tensors="pt")


def test_of_a_rule_s_patterns_only_the_best_counts(tmp_path: Path) -> None:
    optional = {"OP": "?"}
    pattern = [{"TEXT": "a"}, {"TEXT": "b", **optional}, {"TEXT": "c", **optional}, {"TEXT": "d"}]
    rules = written(
        tmp_path / "union.jsonl", {"label": "x", "pattern": pattern}, {"label": "y", "pattern": "z"}
    )
    model = rules.to_model(["a b c d", "z"])
    document = model(**tokens(model, ["a b c d", "a d", "z"]), output_hidden_states=True)
    vectors = document.hidden_states[0]
    own = [place for place, rule in enumerate(model.encoder.rules) if rule.name.startswith("x")]
    assert len(own) == 2
    assert ((vectors[:, own] > 0).sum(dim=1) == 1).all()
    torch.testing.assert_close(vectors[:2, own].sum(dim=1), torch.ones(2), atol=0.03, rtol=0)


def test_saved_models_hold_their_rules(rules: Rules, tmp_path: Path) -> None:
    texts = ["not good", "where x", "the city", "x y z"]
    model = rules.to_model(texts)
    folder = tmp_path / "saved"
    folder.mkdir()
    model.save(folder)
    for again in (load_model(folder), TextClassifier.from_pretrained(folder)):
        assert Rules.from_json(again.config.rules) == Rules(rules.rules, (), "rules.jsonl", "bad")
    for file in folder.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file
    expected = model.log_probabilities(texts)
    np.testing.assert_allclose(load_model(folder).log_probabilities(texts), expected, atol=1e-6)
    damaged = rules.to_json()
    damaged["rules"][0]["patterns"][0]["loops"] = []
    with pytest.raises(UserError, match="rules of a saved model cannot be read"):
        Rules.from_json(damaged)


@pytest.mark.parametrize("states", [10**12, 1e12, float("nan"), -1, "3"])
def test_a_compiled_model_s_patterns_are_of_its_size(
    states: Any, rules: Rules, tmp_path: Path
) -> None:
    save_compiled(rules.to_model().to_compiled(), tmp_path)
    file = tmp_path / "compiled.safetensors"
    with safe_open(file, framework="pt") as opened:
        (metadata,) = opened.metadata().values()
    record = json.loads(metadata)
    record["lengths"][0] = states
    save_file(load_file(file), file, {"sopa_plugin": json.dumps(record)})
    with pytest.raises(UserError, match=r"lengths\.0: expected a size|damaged"):
        load_compiled(tmp_path, accept_changed=True)


ENCODER = {"type": "sopa", "patterns": {"2": 2}}
CONFIG: dict[str, Any] = {
    "dataset": {"type": "sst", "path": str(ROOT / "fixtures" / "sst"), "max_train_examples": 40},
    "tokenizer": {"type": "whitespace", "lowercase": True},
    "model": {
        "embedder": {"type": "static", "vectors": str(ROOT / "fixtures" / "vectors.txt")},
        "encoder": ENCODER,
        "head": "linear",
        "rules": str(FILMS),
        "fallback": "negative",
    },
    "trainer": {"batch_size": 20, "num_epochs": 0, "validation_metric": "+epoch"},
}


def changed(model: dict[str, Any] | None = None, **trainer: Any) -> dict[str, Any]:
    return {
        **CONFIG,
        "model": {**CONFIG["model"], **(model or {})},
        "trainer": {**CONFIG["trainer"], **trainer},
    }


def test_no_epoch_leaves_the_rules_as_they_are(tmp_path: Path) -> None:
    """Rules of this project's own are right on two thirds of the sample without a label."""
    metrics = run_experiment(CONFIG, tmp_path / "run")
    assert metrics["training_epochs"] == 0
    assert metrics["training_examples"] == 40  # which comparisons ask for
    assert metrics["test_accuracy"] >= 0.65
    explainer = Explainer.from_run(tmp_path / "run")
    assert {"positive/1", "negative/2", "2-1", "2-2", "no rule"} < set(explainer.subject.names)


@pytest.mark.parametrize("loss_reduction", ["mean", "sum"])
def test_an_anchor_pulls_to_the_start_as_if_it_were_some_texts(
    tmp_path: Path, loss_reduction: str
) -> None:
    """By hand: the second step of gradient descent also goes back by rate × anchor / texts of the
    way that the first one went; the head's weights for free patterns are left alone."""
    learned: dict[tuple[int, float], dict[str, torch.Tensor]] = {}
    for epochs, anchor in ((0, 0.0), (1, 0.0), (2, 0.0), (2, 20.0)):
        name = f"{epochs}-{anchor}"
        optimizer = {"type": "sgd", "lr": 0.01}
        trainer = {"batch_size": 40, "loss_reduction": loss_reduction, "anchor": anchor}
        run_experiment(changed(optimizer=optimizer, num_epochs=epochs, **trainer), tmp_path / name)
        model: Any = load_model(tmp_path / name)
        learned[epochs, anchor] = {key: each.detach() for key, each in model.named_parameters()}
    start, first, second, held = learned.values()
    share = 0.01 * 20 / 40 * (1 if loss_reduction == "mean" else 40)
    free = torch.tensor([rule is None for rule in model.encoder.rules])
    for key in ("encoder.arcs.weight", "encoder.arcs.bias", "head.output.weight"):
        back, moved = (second[key] - held[key]) / share, first[key] - start[key]
        if key.startswith("head"):
            assert moved[:, free].any()
            assert not back[:, free].any()
            back, moved = back[:, ~free], moved[:, ~free]
        assert moved.any()
        torch.testing.assert_close(back, moved, rtol=0.01, atol=2e-4)


def test_weight_decay_takes_nothing_from_what_rules_began(tmp_path: Path) -> None:
    learned: list[dict[str, torch.Tensor]] = []
    for decay in (0.0, 5.0):
        optimizer = {"type": "adamw", "lr": 0.01, "weight_decay": decay}
        run_experiment(
            changed(optimizer=optimizer, num_epochs=1, batch_size=40), tmp_path / str(decay)
        )
        model: Any = load_model(tmp_path / str(decay))
        learned.append({key: each.detach() for key, each in model.named_parameters()})
    kept, decayed = learned
    layout, rules = model.encoder.layout, model.encoder.rules
    own = torch.tensor([rules[pattern] is not None for pattern in layout.patterns_of_scores])
    for key in ("encoder.arcs.weight", "encoder.arcs.bias"):
        ours = own[: len(kept[key])]
        torch.testing.assert_close(decayed[key][ours], kept[key][ours])
        torch.testing.assert_close(
            decayed[key][~ours], 0.95 * kept[key][~ours], rtol=0.05, atol=0.02
        )
    torch.testing.assert_close(decayed["head.output.weight"], kept["head.output.weight"])


def test_the_last_epoch_is_taken_whatever_dev_says(tmp_path: Path) -> None:
    metrics = run_experiment(changed(num_epochs=3, patience=1), tmp_path / "run")
    assert metrics["best_epoch"] == 2


def test_labels_of_rules_alone_become_classes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "more.jsonl"
    file.write_text(FILMS.read_text() + '{"label": "none", "pattern": "zork"}\n')
    run_experiment(changed({"rules": str(file)}), tmp_path / "run")
    model: Any = load_model(tmp_path / "run")
    assert model.labels == ["negative", "positive", "none"]
    assert "no text has the labels that rules alone vote for: 'none'" in caplog.text
    assert predicted(model, ["a zork for zork"]) == ["none"]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ({"head": "mlp"}, "model.head.type"),
        ({"encoder": {**ENCODER, "semiring": "max_sum"}}, "model.encoder.semiring"),
        ({"encoder": {**ENCODER, "normalization": "layer"}}, "model.encoder.normalization"),
        ({"encoder": {"type": "cnn"}}, "model.encoder.type"),
        ({"rules": None}, "model.fallback"),
        (
            {"rules": None, "fallback": None, "encoder": {"type": "sopa", "patterns": {}}},
            "model.encoder.patterns",
        ),
    ],
)
def test_what_does_not_go_with_rules_is_refused(model: dict[str, Any], path: str) -> None:
    assert path in [problem.path for problem in check(Experiment, changed(model))]


@pytest.mark.parametrize(
    "precedence", [{"positiv": ["negative"]}, {"negative": ["positive", "positiv"]}]
)
def test_labels_that_go_before_others_are_those_of_rules(
    precedence: dict[str, list[str]], tmp_path: Path
) -> None:
    expected = "model.precedence: no rule has the label 'positiv'; expected one of 'positive', 'neg"
    with pytest.raises(UserError, match=re.escape(expected)):
        run_experiment(changed({"precedence": precedence}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_training_reads_its_rules_once(tmp_path: Path) -> None:
    """What is written to a pipe can be read once alone."""
    reads, writes = os.pipe()
    with open(writes, "wb") as pipe:
        pipe.write(FILMS.read_bytes())
    file = tmp_path / "rules.jsonl"
    file.symlink_to(f"/dev/fd/{reads}")
    metrics = run_experiment(changed({"rules": str(file)}), tmp_path / "run")
    os.close(reads)
    assert metrics["test_accuracy"] >= 0.65


def test_an_anchor_needs_rules(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.anchor: this model has no rules"):
        run_experiment(changed({"rules": None, "fallback": None}, anchor=1.0), tmp_path / "run")


def test_rules_that_name_no_word_need_no_text(tmp_path: Path) -> None:
    rules = written(tmp_path / "r.jsonl", {"label": "number", "pattern": [{"IS_DIGIT": True}]})
    model = rules.deciding("other", {}).to_model()
    assert predicted(model, ["12", "twelve"]) == ["number", "other"]


def test_rules_that_ask_for_capitals_are_refused_where_case_is_folded(tmp_path: Path) -> None:
    file = tmp_path / "rules.jsonl"
    file.write_text(
        '{"label": "positive", "pattern": "good"}\n'
        '{"label": "negative", "pattern": [{"IS_UPPER": true}]}\n'
    )
    with pytest.raises(UserError, match=r"rules\.jsonl:2: .*asks for capitals"):
        run_experiment(changed({"rules": str(file)}), tmp_path / "run")


PREDICATES: list[dict[str, Any]] = [
    {"label": "number", "pattern": [{"LIKE_NUM": True}, {"TEXT": {"NOT_IN": ["items"]}}]},
    {"label": "number", "pattern": [{"TEXT": {"REGEX": "^[a-z]+-?[0-9]$"}}]},
    {"label": "shout", "pattern": [{"IS_UPPER": True, "LENGTH": {">=": 3}}]},
    {"label": "shout", "pattern": [{"LOWER": "help"}, {"IS_PUNCT": True, "OP": "+"}]},
    {"label": "name", "pattern": [{"IS_TITLE": True, "LOWER": {"IN": ["anna", "bo"]}}]},
    {"label": "name", "pattern": [{"SHAPE": "Xxxx"}, {"TEXT": "Items", "OP": "!"}]},
]
UNKNOWN = (
    "77 3.5 seven zork Zork ZORK HELP Help help ! ... Anna anna BO Bo x9 x-9 items Items Wxyz ab"
)


@pytest.mark.parametrize("tokenizer", ["whitespace", "words"])
def test_unknown_words_are_told_apart_in_every_way_to_a_model(
    tokenizer: str, tmp_path: Path
) -> None:
    """By what rules ask of them: the model, loaded, compiled, in a pipeline, in padded batches."""
    from transformers import AutoTokenizer, pipeline

    rules = written(tmp_path / "rules.jsonl", *PREDICATES).deciding("name", {})
    draw = random.Random(1)
    texts = [draw.choices(UNKNOWN.split(), k=draw.randint(1, 8)) for _ in range(200)]
    joined = [" ".join(text) for text in texts]
    model = rules.to_model(["help", "items"], tokenizer=tokenizer)
    assert predicted(model, joined) == votes(rules, texts)
    folder = tmp_path / "saved"
    folder.mkdir()
    model.save(folder)
    expected = model.log_probabilities(joined)
    compiled = load_compiled(folder)
    assert compiled is not None
    for other in (load_model(folder), compiled):
        np.testing.assert_allclose(other.log_probabilities(joined), expected, atol=1e-6)
    read = AutoTokenizer.from_pretrained(folder)
    batch = read(joined, padding=True, return_tensors="pt")
    given = read([text.split() for text in joined], padding=True, is_split_into_words=True)
    assert tokenizer == "words" or given["input_ids"] == batch["input_ids"].tolist()
    with torch.no_grad():
        logits = TextClassifier.from_pretrained(folder)(**batch).logits
    np.testing.assert_allclose(logits.log_softmax(1).numpy(), expected, atol=1e-5)
    classify = pipeline("text-classification", model=str(folder))
    assert [classify(text)[0]["label"] for text in joined[:20]] == predicted(model, joined[:20])


def test_thousands_of_labels(tmp_path: Path) -> None:
    rows = [{"label": f"of {n}", "pattern": f"w{n}"} for n in range(3000)]
    model = written(tmp_path / "rules.jsonl", *rows).deciding("of 7", {}).to_model()
    assert predicted(model, ["a w2999", "w5 w4", "w1", "x"]) == ["of 2999", "of 4", "of 1", "of 7"]


def test_unknown_words_of_usual_kinds_are_told_apart_by_many_predicates(tmp_path: Path) -> None:
    """More than are combined, of which a model without a text or a listed word knows none."""
    asked = [
        *({"IS_DIGIT": True}, {"IS_ALPHA": False}, {"LENGTH": {"<": 3}}, {"LENGTH": {">": 5}}),
        *({"LIKE_NUM": True}, {"IS_PUNCT": True}, {"IS_UPPER": True}, {"IS_TITLE": True}),
        *({"IS_LOWER": True}, {"SHAPE": "dd"}, {"TEXT": {"REGEX": "^[A-Z].*[0-9]$"}}),
    ]
    rows = [{"label": str(n % 4), "pattern": [each]} for n, each in enumerate(asked)]
    rules = written(tmp_path / "rules.jsonl", *rows).deciding("0", {})
    draw = random.Random(2)
    texts = [draw.choices(f"{UNKNOWN} 66 X7 WIDELY".split(), k=4) for _ in range(200)]
    assert predicted(rules.to_model(), [" ".join(text) for text in texts]) == votes(rules, texts)


def test_words_of_more_predicates_than_are_combined_take_the_nearest_answers() -> None:
    tests = [read_token({"LENGTH": {">=": n}}) for n in range(2, 14)]
    unknown = UnknownWords.of(tests, ["a", "abc", "a" * 12], unknown=1, first=5)
    assert unknown.row("x" * 7) == unknown.row("x" * 8) != unknown.row("z" * 14)
    assert UnknownWords.from_json(unknown.to_json()).rows == unknown.rows
    for damaged in ({}, {"tests": [], "rows": {"01": 1}}, {"tests": 3, "rows": []}):
        with pytest.raises(ValueError, match="saved tokenizer's rules cannot be read"):
            UnknownWords.from_json(damaged)


def test_dropout_in_the_head_spares_every_pattern_of_a_rule() -> None:
    model = Rules.read(FILMS).to_model()
    assert model.head.spared == list(range(model.encoder.get_output_dim()))
