"""ONNX: the graph says in onnxruntime what the compiled classifier says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.export import main as export
from sopa_plugin.heads import ClassifierHead, LinearHead
from sopa_plugin.models import Model, TextClassifier
from sopa_plugin.rules import Rules

onnx = pytest.importorskip("onnx", reason="needs onnx")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

ROOT = Path(__file__).parents[2]
WORDS = ["good", "bad", "film", "a", "very", "not", "the", ",", "."]
LABELS = ["negative", "neutral", "positive"]
LINEAR = {"head": {"type": "linear"}}


def build(encoder: dict[str, Any], **params: Any) -> TextClassifier:
    torch.manual_seed(0)
    config = {
        "embedder": {"type": "static", "embedding_dim": 6},
        "encoder": {"type": "sopa", "patterns": {"2": 2, "3": 2, "5": 3}, **encoder},
        **params,
    }
    model: TextClassifier = Model.from_params(
        config, tokenizer=make_tokenizer(WORDS), labels=LABELS
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.set_class_prior(np.array([0, 0, 1]))
    return model.eval()


def batches() -> list[list[str]]:
    random = np.random.default_rng(0)
    some = [
        " ".join(random.choice([*WORDS, "unheard-of", "[PAD]"], n)) for n in range(30) for _ in "ab"
    ]
    odd = ["", " ", "good", "a\xa0b", "GOOD \u2028 film", "😀 not .", "x\0y"]
    return [[*odd, *some], [""], ["", " "], ["good"], [" ".join(random.choice(WORDS, 5000)), "bad"]]


def assert_same(model: TextClassifier, session: Any, texts: list[str]) -> NDArray[Any]:
    batch = model.tokenizer(texts, padding=True, return_tensors="np")
    given = {
        name: np.asarray(batch[name], np.int64).reshape(len(texts), -1)
        for name in ("input_ids", "attention_mask")
    }
    (logits,) = session.run(None, given)
    found = torch.from_numpy(logits).double().softmax(dim=1).numpy()
    assert found == pytest.approx(np.exp(model.to_compiled().log_probabilities(texts)), abs=1e-5)
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "encoder",
    [
        {},
        {"semiring": "max_sum"},
        {"semiring": "max_sum", "boundary_tokens": True, "normalization": "batch"},
        {"boundary_tokens": "marked"},
        {"semiring": "log"},
        {"semiring": "log", "empty_matches": True, "activation": "relu"},
        {"semiring": "sum_product", "normalization": "layer"},
        {"semiring": "boolean"},
        {"self_loops": "shared", "empty_matches": True},
        {"self_loops": "none", "epsilons": False},
        {"output": "log_score"},
        {"type": "sopa_released"},
        {"type": "sopa_released", "semiring": "sum_product"},
    ],
    ids=lambda each: "-".join(f"{key}={value}" for key, value in each.items()) or "default",
)
def test_every_option_is_the_same_in_onnxruntime(encoder: dict[str, Any], tmp_path: Path) -> None:
    model = build(encoder, **(LINEAR if "semiring" in encoder else {}))
    run, file = tmp_path / "run", tmp_path / "new" / "model.onnx"
    run.mkdir()
    model.save(run)
    export([str(run), str(file)])
    onnx.checker.check_model(str(file), full_check=True)
    session = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == LABELS
    found = [assert_same(model, session, texts) for texts in batches()]
    assert found[0].std(axis=0).max() > 1e-3  # or else nothing was shown


def test_rules_are_the_same_in_onnxruntime(tmp_path: Path) -> None:
    great = [{"LOWER": {"IN": ["great", "fine"]}}, {"OP": "?"}, {"ORTH": "x"}]
    number = [{"LIKE_NUM": True}, {"OP": "*"}, {"LOWER": "film"}]
    bad = [{"LOWER": "bad"}, {"LOWER": "a", "OP": "?"}, {"LOWER": "b", "OP": "?"}, {"ORTH": "."}]
    rules = [("good", great), ("good", number), ("bad", bad)]
    lines = [{"label": label, "pattern": pattern} for label, pattern in rules]
    file = tmp_path / "rules.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    texts = [
        "great x",
        "Fine y x",
        "7 odd film",
        "bad b .",
        "bad .",
        "neither",
        "bad a b . 12 film",
        "",
    ]
    model = Rules.read(file).deciding("bad", {}).to_model(texts)
    from sopa_plugin.integrations.onnx import to_onnx

    session = ort.InferenceSession(to_onnx(model.to_compiled()).SerializeToString())
    found = assert_same(model, session, texts)
    assert len(set(found.argmax(1))) == 2


def test_what_cannot_be_exported_says_so(tmp_path: Path) -> None:
    @ClassifierHead.register("odd_head", exist_ok=True)
    class OddHead(LinearHead):
        pass

    (tmp_path / "odd").mkdir()
    build({}, head={"type": "odd_head"}).save(tmp_path / "odd")
    with pytest.raises(UserError, match="the head is 'odd_head'; expected linear or mlp"):
        export([str(tmp_path / "odd"), str(tmp_path / "model.onnx")])
    (tmp_path / "ngrams").mkdir()
    build({}, embedder={"type": "static", "embedding_dim": 6, "ngram_buckets": 9}, **LINEAR).save(
        tmp_path / "ngrams"
    )
    with pytest.raises(UserError, match=r"by n-grams, which the graph does not take"):
        export([str(tmp_path / "ngrams"), str(tmp_path / "model.onnx")])
    (tmp_path / "cnn").mkdir()
    cnn: TextClassifier = Model.from_params(
        {"embedder": {"type": "static", "embedding_dim": 6}, "encoder": {"type": "cnn"}},
        tokenizer=make_tokenizer(WORDS),
        labels=LABELS,
    )
    cnn.save(tmp_path / "cnn")
    with pytest.raises(UserError, match="only soft patterns over static vectors"):
        export([str(tmp_path / "cnn"), str(tmp_path / "model.onnx")])
    with pytest.raises(UserError, match=r"ends in \.onnx"):
        export([str(tmp_path / "cnn"), str(tmp_path / "model.pb")])
    (tmp_path / "model.onnx").touch()
    with pytest.raises(UserError, match="exists already"):
        export([str(tmp_path / "cnn"), str(tmp_path / "model.onnx")])
    assert (tmp_path / "model.onnx").read_bytes() == b""


@pytest.mark.parametrize("dynamo", [False, True], ids=["old", "new"])
def test_torchs_exporters_say_what_to_use_instead(dynamo: bool, tmp_path: Path) -> None:
    if dynamo:
        pytest.importorskip("onnxscript", reason="torch's new exporter needs onnxscript")
    encoder = SopaEncoder(4, {3: 2, 2: 2}).eval()
    inputs = torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
    with pytest.raises(Exception, match=r"sopa-plugin export RUN model\.onnx"):
        torch.onnx.export(encoder, inputs, tmp_path / "encoder.onnx", dynamo=dynamo)
    assert not (tmp_path / "encoder.onnx").exists()
    exported = torch.export.export(encoder, inputs)  # which still works
    torch.testing.assert_close(exported.module()(*inputs), encoder(*inputs))
