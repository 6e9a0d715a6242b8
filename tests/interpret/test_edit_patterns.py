"""Rules added to a trained model, words put on arcs and taken from them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sopa_plugin import explain
from sopa_plugin.compiled import load_compiled
from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.editing import add_rule, refit, reword
from sopa_plugin.interpret.runs import RunReader
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.models import Model, TextClassifier, load_model
from sopa_plugin.rules import Rules
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.rules.start import VOTE
from sopa_plugin.training import run_experiment

ROOT = Path(__file__).parents[2]
WORDS = ["the", "film", "is", "not", "never", "dull", "funny", "good", "great", "very", "."]
RULE = "(not|never) * (good|great)"
LABELS = ["negative", "neutral", "positive"]


def texts(number: int = 200) -> list[str]:
    """Random ones, some words of which no model knows."""
    draw = random.Random(2)
    words = [*WORDS, "unheard", "Film"]
    return [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(number)]


def subject(head: str = "linear", rules: str | None = None, **encoder: Any) -> ModelSubject:
    """A model far from its first draw."""
    torch.manual_seed(6)
    model = Model.from_params(
        {
            "type": "text_classifier",
            "embedder": {"type": "static", "embedding_dim": 6, "unknown": "random"},
            "encoder": {"type": "sopa", "patterns": {"2": 1, "3": 2, "4": 2}} | encoder,
            "head": {"type": head},
            **({} if rules is None else {"rules": rules}),
        },
        tokenizer=make_tokenizer(WORDS),
        labels=LABELS,
    )
    assert isinstance(model, TextClassifier)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("encoder.arcs", "head.output")):
                parameter.mul_(1.5).add_(0.1)
    model.set_class_prior(np.array([0, 1, 1, 2]))
    return ModelSubject(model.eval())


def fires(text: str, found: list[str]) -> np.ndarray:
    rule = Rules((), (), "").adding(text, "negative").rules[0]
    return RuleMatcher([rule]).fires([each.split() for each in found])[:, 0].numpy()


OWN = "negative\tneutral\nvery dull\tpositive\n"


@pytest.mark.parametrize(
    ("rule", "regex", "own"),
    [
        (RULE, None, None),
        ("very EOS", None, OWN),
        ('[{"LOWER": "film"}, {"OP": "!", "TEXT": "is"}]', None, None),
        ('{"TEXT": {"NOT_IN": ["the", "is", "dull", "very", ".", "good"]}}', None, OWN),
        ("unheard $ *   film", "unheard $* film", OWN),
    ],
    ids=str,
)
def test_a_rule_fires_where_it_matches_and_changes_nothing_elsewhere(
    rule: str, regex: str | None, own: str | None, tmp_path: Path
) -> None:
    if own is not None:
        (tmp_path / "own.tsv").write_text(own)
    before = subject(rules=None if own is None else str(tmp_path / "own.tsv"))
    found = texts()
    expected = before.model.log_probabilities(found)
    after, edits = add_rule(before, found, rule, "negative")
    assert edits == {
        "negative/1": f"added for negative: {after.model.config.rules['rules'][-1]['text']}"
    }
    assert np.array_equal(before.model.log_probabilities(found), expected)
    fired = fires(regex or rule, found)
    assert 5 < fired.sum() < 195
    number = after.number("negative/1")
    vectors = after.model.document_vectors(after.model.encode_texts(found))[:, number].numpy()
    assert np.array_equal(vectors > 0.5, fired)
    now = after.model.log_probabilities(found)
    change = (now - expected)[:, 0] - (now - expected)[:, 1]
    # A match but for one word has 2 % of a vote; what there is on the average is taken away.
    assert np.abs(change[~fired]).max() < 0.02 * VOTE
    assert np.abs(change[~fired].mean()) < 1e-3
    assert np.array_equal(now[~fired].argmax(1), expected[~fired].argmax(1))
    assert np.allclose(change[fired], VOTE, atol=0.1)
    # Saved, loaded and compiled it is the same.
    after.model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert np.array_equal(loaded.log_probabilities(found), now)
    compiled = load_compiled(tmp_path)
    assert compiled is not None
    assert np.allclose(compiled.log_probabilities(found), now, atol=1e-4)


def test_rules_are_added_one_after_another() -> None:
    found, before = texts(), subject()
    once, _ = add_rule(before, found, RULE, "negative")
    twice, edits = add_rule(once, found, "very | the film is | unheard", "negative")
    assert list(edits) == ["negative/2"]
    assert twice.model.config.sopa_plugin["edits"].keys() == {"negative/1", "negative/2"}
    quiet = ~fires("very | the film is | unheard", found)
    some, others = (each.model.log_probabilities(found)[quiet] for each in (once, twice))
    assert np.allclose(some, others, atol=0.02 * VOTE)
    assert np.array_equal(
        before.model.document_vectors(before.model.encode_texts(found)).numpy(),
        twice.model.document_vectors(twice.model.encode_texts(found))[
            :, [twice.number(each) for each in before.names]
        ].numpy(),
    )


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_forbidden_word_matches_no_more_on_that_arc(head: str) -> None:
    found, before = texts(), subject(head)

    def scores(model: ModelSubject, word: str) -> np.ndarray:
        ids = torch.tensor(model.model.tokenizer(word)["input_ids"])
        arcs = model.encoder.arcs
        rows = model.model.embedder(ids, torch.ones_like(ids))
        return (rows @ arcs.weight.T + arcs.bias).detach().numpy()[0]

    after, edits = reword(before, found, "4-2", ["good"], ["unheard"], 2)
    assert edits == {"4-2": "without “good” on arc 2; with “unheard” on arc 2"}
    arc = after.encoder.layout.main_path[1].origin + after.number("4-2")
    for word in [*WORDS, "another", "unheard"]:
        old, new = scores(before, word), scores(after, word)
        differ = np.flatnonzero(old != new).tolist()
        assert differ == ([arc] if word in ("good", "unheard") else [])
    assert scores(after, "good")[arc] == pytest.approx(-8, abs=1e-5)
    assert scores(after, "unheard")[arc] == pytest.approx(8, abs=1e-5)
    other = np.array(["good" not in each and "unheard" not in each for each in found])
    some, others = (each.model.log_probabilities(found)[other] for each in (before, after))
    assert np.array_equal(some, others)
    # Once more, by itself on the arc that scores it best, beside a rule.
    again, _ = reword(after, found, "4-2", ["unheard"], [], None)
    assert again.model.config.sopa_plugin["edits"]["4-2"].endswith("; without “unheard” on arc 2")
    assert scores(again, "unheard")[arc] == pytest.approx(-8, abs=1e-5)
    if head == "linear":
        ruled, _ = add_rule(again, found, RULE, "positive")
        arc = ruled.encoder.layout.main_path[1].origin + ruled.number("4-2")
        assert scores(ruled, "unheard")[arc] == pytest.approx(-8, abs=1e-5)
        some, others = (
            each.model.document_vectors(each.model.encode_texts(found))[:, each.number("4-2")]
            for each in (again, ruled)
        )
        assert torch.equal(some, others)


def test_patterns_of_a_model_with_marked_boundaries_stay_as_they_are() -> None:
    """A rule's own tokens before and after a text take the place of those with unit vectors."""
    found, before = [*texts(), ""], subject(boundary_tokens="marked")

    def vectors(model: ModelSubject, texts: list[str] = found) -> torch.Tensor:
        own = [model.number(each) for each in before.names]
        return model.model.document_vectors(model.model.encode_texts(texts))[:, own]

    unmarked = before.copied()
    unmarked.encoder.boundary_width = 0
    assert not torch.allclose(vectors(unmarked), vectors(before), atol=1e-2)
    ruled, _ = add_rule(before, found, "BOS not | very EOS", "negative")
    assert torch.allclose(vectors(ruled), vectors(before), atol=1e-5)
    others = [each for each in found if "good" not in each]
    worded, _ = reword(before, found, "4-2", ["good"], arc=2)
    assert torch.allclose(vectors(worded, others), vectors(before, others), atol=1e-5)
    both, _ = add_rule(worded, found, RULE, "positive")
    assert torch.allclose(vectors(both), vectors(worded), atol=1e-5)
    again, _ = reword(both, found, "3-1", ["dull"])
    others = [each for each in others if "dull" not in each]
    assert torch.allclose(vectors(again, others), vectors(before, others), atol=1e-5)


def test_the_head_is_fitted_to_what_a_rule_says() -> None:
    found = texts()
    after, _ = add_rule(subject(), found, RULE, "negative")
    fired = fires(RULE, found)
    before = after.model.log_probabilities(found)
    refit(after, "negative/1", found, [2 if fires else 1 for fires in fired])
    now = after.model.log_probabilities(found)
    assert np.allclose(now[~fired], before[~fired], atol=0.1)
    assert (now[fired, 2] > before[fired, 2]).all()


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    found, linear, mlp = texts(20), subject(), subject("mlp")
    for rule, reason in (
        ("(good", "a \\( without its \\)"),
        ("*", "empty text"),
        ("good+ [bad]", "expected words"),
        ('[{"LEMMA": "be"}]', "no attribute 'LEMMA'"),
        ('{"LOWER": "be"', "delimiter"),
    ):
        with pytest.raises(UserError, match=f"^the rule .*{reason}"):
            add_rule(linear, found, rule, "negative")
    with pytest.raises(UserError, match="'bad' is unknown to the model; expected negative, neu"):
        add_rule(linear, found, RULE, "bad")
    rule = '{"pattern": [{"LOWER": "not"}], "over": ["positve"]}'
    with pytest.raises(UserError, match=r"label 'positve' is unknown.*; did you mean 'positive'"):
        add_rule(linear, found, rule, "negative")
    with pytest.raises(UserError, match=r"cannot have these rules: head\.type: with rules, exp"):
        add_rule(mlp, found, RULE, "negative")
    with pytest.raises(UserError, match="self_loops: with rules"):
        reword(subject(self_loops="shared"), found, "4-2", ["good"], [], 1)
    with pytest.raises(UserError, match="expected a linear head, found a MlpHead"):
        refit(mlp, "4-2", found, [0] * 20)
    with pytest.raises(UserError, match="no pattern is called '9-1'"):
        reword(linear, found, "9-1", ["good"], [], None)
    with pytest.raises(UserError, match="4-2 has no arc 4: expected one of 1 to 3"):
        reword(linear, found, "4-2", ["good"], [], 4)
    with pytest.raises(UserError, match="expected one word, found 'so good'"):
        reword(linear, found, "4-2", ["so good"], [], 1)
    for forbid in ([], ["good"]):
        with pytest.raises(UserError, match="each once"):
            reword(linear, found, "4-2", forbid, forbid, 1)


def test_the_command_edits_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "dataset": {"type": "sst", "path": str(ROOT / "fixtures" / "sst_lines")},
        "model": {
            "type": "text_classifier",
            "embedder": {"type": "static", "vectors": str(ROOT / "fixtures" / "vectors.txt")},
            "encoder": {"type": "sopa", "patterns": {"3": 3, "2": 3}},
            "head": {"type": "linear"},
        },
        "trainer": {"type": "accelerate", "batch_size": 16, "num_epochs": 1},
        "seed": 3,
    }
    run_experiment(config, tmp_path / "run")
    folder = tmp_path / "run"
    for number, arguments in enumerate(
        (
            ["add", RULE, "--label", "negative"],
            ["edit", "3-1", "--forbid", "film", "--allow", "a", "--arc", "1", "--refit"],
            ["replace", "3-2", "good|funny", "--label", "positive", "--refit"],
        )
    ):
        output = tmp_path / str(number)
        explain.main([str(folder), *arguments, "-s", str(output), "--format", "json"])
        told = json.loads(capsys.readouterr().out)
        reader = RunReader(output)
        dev, gold = reader.examples(None, "dev")
        found = load_model(output).log_probabilities(dev)
        assert (found.argmax(1) == gold).mean() == pytest.approx(told["after"]["dev_accuracy"])
        compiled = load_compiled(output)
        assert compiled is not None
        assert np.allclose(compiled.log_probabilities(dev), found, atol=1e-4)
        before = load_model(folder).log_probabilities(dev).argmax(1)
        assert [each["document"] for each in told["changed"]] == np.flatnonzero(
            before != found.argmax(1)
        ).tolist()
        assert set(told["edits"]) <= set(reader.subject.names)
        folder = output
    assert set(told["edits"]) == {"positive/1", "3-2"}
    assert "patterns were edited by hand" in (folder / "README.md").read_text()
    assert reader.subject.means is not None
    assert len(reader.subject.means) == 8
    explain.main([str(folder), "document", "not so good"])
    assert "negative/1" in capsys.readouterr().out
    with pytest.raises(UserError, match="exists already"):
        explain.main([str(tmp_path / "run"), "add", RULE, "--label", "negative", "-s", str(folder)])
