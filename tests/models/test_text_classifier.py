"""The text classifier as a model of ours and as one of transformers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)
from transformers.utils import logging as transformers_logging

from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.encoders import Seq2VecEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.models import Model, TextClassifier, TextClassifierConfig, load_model
from sopa_plugin.registry import names

WORDS = ["good", "bad", "film", "a", "very", "not"]
LABELS = ["negative", "neutral", "positive"]
TEXTS = ["a good film", "", "zzz qqq", "bad", "a very very bad film , not good", "good good"]
ENCODERS: list[dict[str, Any]] = [
    {"type": "sopa", "patterns": {"4": 3, "2": 2}},
    {"type": "sopa", "patterns": {"4": 3, "2": 2}, "semiring": "max_sum"},
    {"type": "cnn"},
    {"type": "bilstm"},
    {"type": "dan"},
]
PER_ENCODER = pytest.mark.parametrize(
    "encoder", ENCODERS, ids=lambda each: "-".join(map(str, each.values()))
)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    file = tmp_path / "vectors.txt"
    random = np.random.default_rng(0)
    rows = [f"{word} {' '.join(f'{x:.3f}' for x in random.normal(size=5))}\n" for word in WORDS]
    file.write_text("".join(rows))
    return file


def build(encoder: dict[str, Any], vectors: Path | None = None, **embedder: Any) -> TextClassifier:
    torch.manual_seed(0)
    params = {
        "type": "text_classifier",
        "embedder": {
            "type": "static",
            "vectors": None if vectors is None else str(vectors),
            **({"embedding_dim": 5} if vectors is None else {}),
            **embedder,
        },
        "encoder": encoder,
        "head": {"type": "mlp", "hidden_dim": 4},
    }
    model: TextClassifier = Model.from_params(
        params, tokenizer=make_tokenizer(WORDS), labels=LABELS
    )
    model.set_class_prior(np.array([0, 0, 1, 2, 2, 2]))
    return model.eval()


@PER_ENCODER
def test_saved_and_loaded_it_is_the_same(
    encoder: dict[str, Any], vectors: Path, tmp_path: Path
) -> None:
    model = build(encoder, vectors)
    folder = tmp_path / "model"
    folder.mkdir()
    model.save(folder)
    vectors.unlink()  # a saved model needs no vector file
    loaded = load_model(folder)
    assert isinstance(loaded, TextClassifier)
    assert loaded.labels == LABELS
    for (name, before), (same, after) in zip(
        model.state_dict().items(), loaded.state_dict().items(), strict=True
    ):
        assert name == same
        assert torch.equal(before, after), name
    grads = {name: each.requires_grad for name, each in model.named_parameters()}
    assert {name: each.requires_grad for name, each in loaded.named_parameters()} == grads
    assert not grads["embedder.weight"]
    assert np.array_equal(loaded.log_probabilities(TEXTS), model.log_probabilities(TEXTS))
    # no part keeps state that saving would lose
    assert set(load_file(folder / "model.safetensors")) == set(model.state_dict())


@pytest.mark.parametrize("semiring", ["sum_product", "log"])
def test_a_model_of_an_earlier_version_scores_as_it_did(semiring: str, tmp_path: Path) -> None:
    """The default `output` of sums was another; what is saved again says which it is."""
    encoder = {"type": "sopa", "patterns": {"3": 3, "2": 2}, "semiring": semiring}
    model = build({**encoder, "output": "score"})
    model.save(tmp_path / "first")
    file = tmp_path / "first" / "config.json"
    config = json.loads(file.read_text())
    config["encoder"]["output"], config["sopa_plugin"]["version"] = None, "0.1.0"
    file.write_text(json.dumps(config))
    load_model(tmp_path / "first", accept_changed=True).save(tmp_path / "second")
    again = load_model(tmp_path / "second")
    np.testing.assert_array_equal(again.log_probabilities(TEXTS), model.log_probabilities(TEXTS))
    assert build(encoder).encoder.document_vector.output == "relative"


@PER_ENCODER
def test_probabilities_are_those_of_a_pipeline(encoder: dict[str, Any], tmp_path: Path) -> None:
    model = build(encoder)
    model.save(tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path), top_k=None)
    expected = np.exp(model.log_probabilities(TEXTS))
    for batch_size in (1, 3):
        for text, row in zip(classify(TEXTS, batch_size=batch_size), expected, strict=True):
            scores = {each["label"]: each["score"] for each in text}
            assert [scores[label] for label in LABELS] == pytest.approx(row.tolist(), rel=1e-5)
    assert sum(each["score"] for each in classify("")[0]) == pytest.approx(1)


@PER_ENCODER
def test_a_document_is_scored_alike_in_any_batch(encoder: dict[str, Any]) -> None:
    model = build(encoder)
    alone = np.concatenate([model.log_probabilities([text]) for text in TEXTS])
    together = model.log_probabilities(TEXTS)
    assert np.isfinite(alone).all()
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    np.testing.assert_allclose(model.log_probabilities(TEXTS[::-1])[::-1], alone, rtol=1e-5)


@PER_ENCODER
def test_every_form_of_a_batch_gives_the_same(encoder: dict[str, Any]) -> None:
    model = build(encoder)
    documents = model.encode_texts(TEXTS, labels=[0, 1, 2, 0, 1, 2])
    numbers = np.arange(len(TEXTS))
    padded, packed = documents.padded(numbers, 0), documents.packed(numbers)
    with torch.no_grad():
        expected = model(**padded)
        for batch in (
            packed,
            {
                **{key: packed[key] for key in ("index", "offsets", "labels")},
                "rows": model.embedder(packed["token_ids"], torch.ones_like(packed["token_ids"])),
            },
            {key: padded[key] for key in ("input_ids", "labels")},  # the mask is told by [PAD]
        ):
            output = model(**batch)
            torch.testing.assert_close(output.logits, expected.logits)
            torch.testing.assert_close(output.loss, expected.loss)


@PER_ENCODER
def test_document_vectors_come_with_the_logits(encoder: dict[str, Any]) -> None:
    model = build(encoder)
    batch = model.encode_texts(TEXTS[3:]).padded(np.arange(3), 0)
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
        (document,) = output.hidden_states
        torch.testing.assert_close(model.head(document), output.logits)
    assert document.shape == (3, model.encoder.get_output_dim())
    assert model(**batch).hidden_states is None


def test_a_document_without_words_has_the_class_frequencies() -> None:
    model = build(ENCODERS[0])
    # classes 2, 1 and 3 times; one more of each
    assert (
        np.exp(model.log_probabilities(["", " \t"])).tolist()
        == [pytest.approx([3 / 9, 2 / 9, 4 / 9])] * 2
    )
    assert model.log_probabilities([]).shape == (0, 3)


def test_forward_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="expected input_ids, or token_ids or rows"):
        build(ENCODERS[0])()


def test_vectors_of_the_file_are_in_the_model(vectors: Path) -> None:
    model = build(ENCODERS[0], vectors, normalize=False)
    line = vectors.read_text().splitlines()[1].split(" ")
    row = model.embedder.weight[model.tokenizer.convert_tokens_to_ids(line[0])]
    assert row.tolist() == pytest.approx([float(each) for each in line[1:]])


def test_config_is_self_contained_and_json(vectors: Path, tmp_path: Path) -> None:
    build(ENCODERS[0], vectors).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["embedder"] == {
        "type": "static",
        "num_embeddings": len(WORDS) + 2,
        "embedding_dim": 5,
        "trainable": False,
        "normalize": True,
        "unknown": "zero",
        "own_rows": False,
        "ngram_buckets": 0,
    }
    assert config["encoder"]["patterns"] == {"4": 3, "2": 2}
    assert config["encoder"]["final_epsilon"] is True  # defaults may change, a model may not
    assert config["id2label"] == dict(zip("012", LABELS, strict=True))
    assert config["sopa_plugin"]["model"] == "text_classifier"
    assert str(tmp_path) not in (tmp_path / "config.json").read_text()


def test_auto_classes(tmp_path: Path) -> None:
    model = build(ENCODERS[0])
    model.save(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).encoder == model.config.encoder
    loaded, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    batch = tokenizer(["a good film", "bad"], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(loaded(**batch).logits, model(**batch).logits)


def test_loading_draws_no_progress_bar(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build(ENCODERS[0]).save(tmp_path)
    for enabled in (True, False):
        switch = "enable_progress_bar" if enabled else "disable_progress_bar"
        getattr(transformers_logging, switch)()
        capfd.readouterr()
        load_model(tmp_path)
        assert capfd.readouterr().err == ""
        assert transformers_logging.is_progress_bar_enabled() == enabled  # others' stay


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    build({"type": "bilstm", "hidden_dim": 2}).save(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    weights["encoder.lstm.bias"] = weights.pop("encoder.forward_lstm.bias_ih_l0")
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"model\.safetensors: changed since training.*--accept"):
        load_model(tmp_path)
    names = r"missing: encoder\.forward_lstm\.bias_ih_l0; unknown: encoder\.lstm\.bias\)"
    with pytest.raises(UserError, match=names):
        load_model(tmp_path, accept_changed=True)
    (tmp_path / "digests.json").unlink()  # as of runs before there were any
    with pytest.raises(UserError, match=names):
        load_model(tmp_path)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match="the weights cannot be read"):
        load_model(tmp_path)
    file.unlink()
    with pytest.raises(UserError, match="the weights cannot be read"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("encoder", "patterns", {"5": 2**31}),
        ("encoder", "patterns", {str(2**31): 5}),
        ("head", "hidden_dim", 2**40),
        ("embedder", "num_embeddings", 2**40),
        ("embedder", "config", {"num_labels": 2**40}),  # as of a transformer
    ],
)
def test_sizes_beyond_the_weights_are_refused_before_anything_is_made(
    part: str, key: str, value: Any, tmp_path: Path
) -> None:
    build(ENCODERS[0]).save(tmp_path)
    (tmp_path / "digests.json").unlink()
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config[part][key] = value
    file.write_text(json.dumps(config))
    with pytest.raises(UserError, match=rf"config\.json: {part}\.{key}.*the largest is 17, found"):
        load_model(tmp_path)


def test_so_is_a_number_of_classes_without_names(tmp_path: Path) -> None:
    build(ENCODERS[0]).save(tmp_path)
    (tmp_path / "digests.json").unlink()
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    del config["id2label"]
    file.write_text(json.dumps({**config, "num_labels": 10**9}))  # transformers would name them
    with pytest.raises(UserError, match=r"config\.json: num_labels.*the largest is 17, found"):
        load_model(tmp_path)


def test_many_classes_keep_their_order(tmp_path: Path) -> None:
    labels = [f"class {number}" for number in range(12)]
    model = Model.from_params(
        {
            "embedder": {"type": "static", "embedding_dim": 3},
            "encoder": ENCODERS[0],
        },
        tokenizer=make_tokenizer(WORDS),
        labels=labels,
    )
    model.save(tmp_path)
    assert load_model(tmp_path).labels == labels


PLUGIN = """
from sopa_plugin.encoders import Seq2VecEncoder

@Seq2VecEncoder.register("first_token")
class FirstToken(Seq2VecEncoder):
    def __init__(self, input_dim: int) -> None:
        super().__init__()
        self.dim = input_dim

    def forward(self, tokens, mask):
        return tokens[:, 0] * mask[:, :1]

    def get_output_dim(self) -> int:
        return self.dim
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of one's own with an encoder `first_token`, gone after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(names, "_plugins", {})
    (tmp_path / "my_parts.py").write_text(PLUGIN)
    names.import_plugins(["my_parts"])
    yield "first_token"
    del names.registered[Seq2VecEncoder]["first_token"], sys.modules["my_parts"]


def test_a_fresh_process_predicts_the_same(plugin: str, vectors: Path, tmp_path: Path) -> None:
    """With the package that it was made with, without the vector file."""
    model = build({"type": plugin}, vectors)
    model.save(tmp_path)
    vectors.unlink()
    program = f"""
import json, sys, transformers
import sopa_plugin.models
sys.path.append({str(tmp_path)!r})
import my_parts
p = transformers.pipeline("text-classification", model={str(tmp_path)!r}, top_k=None)
json.dump([{{e["label"]: e["score"] for e in each}} for each in p({TEXTS!r})], sys.stdout)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    expected = np.exp(model.log_probabilities(TEXTS))
    for scores, row in zip(json.loads(done.stdout), expected, strict=True):
        assert [scores[label] for label in LABELS] == pytest.approx(row.tolist(), rel=1e-5)


def test_transformers_trainer_trains_it(tmp_path: Path) -> None:
    model = build(ENCODERS[0])
    tokenizer = model.tokenizer
    texts = [("good film", 2), ("very good", 2), ("bad film", 0), ("not good", 0)] * 8
    data = [{**tokenizer(text), "labels": label} for text, label in texts]
    before = model.log_probabilities(["good film"])[0, 2]
    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=10, learning_rate=0.02, report_to=[], use_cpu=True,
        per_device_train_batch_size=8, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    trainer = Trainer(
        model, arguments, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer)
    )
    trainer.train()
    assert model.log_probabilities(["good film"])[0, 2] > before
    assert trainer.evaluate(data)["eval_loss"] < 0.9  # ln 3 is 1.1
    trainer.save_model(str(tmp_path / "saved"))
    again = TextClassifier.from_pretrained(tmp_path / "saved")
    assert torch.equal(again.head.output.weight, model.head.output.weight.cpu())


def test_parameters_are_counted_by_part(vectors: Path) -> None:
    counts = build(ENCODERS[0], vectors).parameter_counts()
    arcs = 3 * (3 + 2) + 2 * 1  # main path and inner self-loops of 4 states, main path of 2
    epsilons = 3 * 3 + 2
    head = (5 * 4 + 4) + (4 * 3 + 3)
    assert counts["embedder"] == 5 * 8
    assert counts["encoder_stored"] == arcs * 6 + epsilons
    assert counts["encoder_formula"] == (2 * 5 + 3) * (3 * 4 + 2 * 2)
    assert counts["head"] == head
    assert counts["trainable"] == counts["encoder"] + counts["head"]
    assert counts["total"] == counts["trainable"] + counts["embedder"]


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no trained model in it"):
        load_model(tmp_path)
    with pytest.raises(UserError, match="nowhere: no such folder; give"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: is a file, not a folder"):
        load_model(tmp_path / "file")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match="not the config of a sopa_plugin model"):
        load_model(tmp_path)


def test_for_other_classes_the_head_is_drawn_anew_and_nothing_else(tmp_path: Path) -> None:
    model = build({"type": "sopa", "patterns": {"4": 3, "2": 2}, "normalization": "batch"})
    model.encoder.document_vector.norm.running_mean.fill_(0.25)
    model.save(tmp_path)
    torch.manual_seed(0)
    other = TextClassifier.from_pretrained(tmp_path, num_labels=2, ignore_mismatched_sizes=True)
    after = other.state_dict()
    changed = {"head.output.weight", "head.output.bias", "class_log_prior"}
    for name, before in model.state_dict().items():
        assert name in changed or torch.equal(before, after[name]), name
    assert after["class_log_prior"].tolist() == [0, 0]
    # as `nn.Linear` draws them: uniform, within 1 / sqrt(4 hidden units)
    drawn = torch.cat([after["head.output.weight"].flatten(), after["head.output.bias"]])
    assert drawn.abs().max() <= 0.5
    assert len(drawn.unique()) == 10
    torch.manual_seed(0)
    again = TextClassifier.from_pretrained(tmp_path, num_labels=2, ignore_mismatched_sizes=True)
    assert torch.equal(again.head.output.weight, other.head.output.weight)


def test_other_patterns_are_drawn_anew(tmp_path: Path) -> None:
    model = build({"type": "sopa", "patterns": {"4": 3, "2": 2}, "semiring": "max_sum"})
    model.save(tmp_path)
    torch.manual_seed(0)
    other = TextClassifier.from_pretrained(
        tmp_path,
        ignore_mismatched_sizes=True,
        encoder={**model.config.encoder, "patterns": {"3": 7}},
    )
    assert other.encoder.arcs.weight.norm(dim=1).tolist() == pytest.approx([1] * 5 * 7)
    assert other.encoder.document_vector.no_match.tolist() == [-2] * 7
    assert other.encoder.document_vector.norm.weight.tolist() == [1] * 7
    assert torch.equal(other.embedder.weight, model.embedder.weight)
    assert torch.equal(other.head.output.weight, model.head.output.weight)


def test_what_a_file_lacks_is_drawn_and_what_it_has_is_kept(tmp_path: Path) -> None:
    model = build({"type": "sopa", "patterns": {"4": 3, "2": 2}, "normalization": "batch"})
    model.encoder.document_vector.norm.running_mean.fill_(0.25)
    model.save(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    lacking = {"encoder.arcs.bias", "encoder.document_vector.norm.weight"}
    kept = {name: each for name, each in saved.items() if name not in lacking}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    after = TextClassifier.from_pretrained(tmp_path).state_dict()
    for name, before in kept.items():
        assert torch.equal(before, after[name]), name
    assert after["encoder.document_vector.norm.weight"].tolist() == [1] * 5
    assert 0 < after["encoder.arcs.bias"].abs().max() < 10


def test_vectors_of_another_vocabulary_are_drawn_anew(tmp_path: Path) -> None:
    model = build({"type": "sopa", "patterns": {"4": 3, "2": 2}})
    model.save(tmp_path)
    embedder = {**model.config.embedder, "num_embeddings": 20}
    other = TextClassifier.from_pretrained(
        tmp_path, ignore_mismatched_sizes=True, embedder=embedder
    )
    assert other.embedder.weight.norm(dim=1).tolist() == pytest.approx([1] * 20)


def test_building_a_model_draws_each_part_once() -> None:
    model = build({"type": "bilstm", "hidden_dim": 3})
    torch.manual_seed(0)
    torch.randn(len(WORDS) + 2, 5)  # of the embedder
    for part in (model.encoder.forward_lstm, model.encoder.backward_lstm):
        expected = torch.nn.LSTM(5, 3, batch_first=True)
        assert torch.equal(part.weight_hh_l0, expected.weight_hh_l0)
    assert torch.equal(model.head.hidden.weight, torch.nn.Linear(6, 4).weight)
    assert torch.equal(model.head.output.weight, torch.nn.Linear(4, 3).weight)


def test_outputs_come_as_tuples_too() -> None:
    model = build(ENCODERS[0])
    batch = model.encode_texts(TEXTS[:2], labels=[0, 1]).padded(np.arange(2), 0)
    output = model(**batch, output_hidden_states=True)
    loss, logits, (document,) = model(**batch, output_hidden_states=True, return_dict=False)
    assert torch.equal(loss, output.loss)
    assert torch.equal(logits, output.logits)
    assert torch.equal(document, output.hidden_states[0])
    expected = model.log_probabilities(TEXTS)
    model.config.return_dict = False
    assert len(model(input_ids=batch["input_ids"])) == 1
    assert np.array_equal(model.log_probabilities(TEXTS), expected)


def test_what_a_model_lacks_is_said(tmp_path: Path) -> None:
    model = build(ENCODERS[0])
    model.save(tmp_path)
    loaded = TextClassifier.from_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"no tokenizer: .*load_model\(folder\)"):
        loaded.log_probabilities(TEXTS)
    loaded.tokenizer = model.tokenizer
    assert np.array_equal(loaded.log_probabilities(TEXTS), model.log_probabilities(TEXTS))
    with pytest.raises(UserError, match="without embedder, encoder or head"):
        TextClassifier(TextClassifierConfig())
    for refused in (model.get_input_embeddings, lambda: model.resize_token_embeddings(20)):
        with pytest.raises(NotImplementedError, match="train a model with another tokenizer"):
            refused()


def test_a_batch_that_fails_leaves_the_model_in_training() -> None:
    model = build(ENCODERS[0]).train()
    documents = model.encode_texts(TEXTS)
    with pytest.raises(IndexError):
        model.logits(documents, iter([np.array([len(TEXTS)])]))
    assert model.training
