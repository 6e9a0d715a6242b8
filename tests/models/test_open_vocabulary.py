"""Words that have no vector: learned, and the same in every way to a model."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tokenizers import Regex, normalizers
from transformers import AutoTokenizer, Trainer, TrainingArguments, pipeline

from sopa_plugin.compiled import load_compiled
from sopa_plugin.data.tokenizers import check_normalizer, make_tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.editing import SURE, reword
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.models import Model, TextClassifier, load_model
from sopa_plugin.models.open_vocabulary import RuleTokenizer, with_unknown_words
from sopa_plugin.training import run_experiment

ENCODERS: dict[str, dict[str, Any]] = {
    "sopa": {"patterns": {"3": 4, "2": 4}, "dropout": 0.0},
    "cnn": {"window_sizes": [2], "num_filters": 4},
    "bilstm": {"hidden_dim": 4},
    "dan": {"word_dropout": 0.0},
}
VECTORS = """\
wonderful 1 0 0 0
beautiful 0.9 0.1 0 0
terrible -1 0 0 0.1
horrible -0.9 -0.1 0 0
film 0 0 1 0
the 0 0 0.9 0.3
was 0.1 0 0.5 -0.8
"""
TRAIN = ["the film was wonderful zork", "the film was terrible", "film beautiful", "was horrible"]
PARAMS: dict[str, Any] = {
    "type": "static",
    "own_rows": True,
    "ngram_buckets": 5000,
    "normalize": False,
}
UNKNOWN = [
    *("zork", "zorks", "Zork", "wonderfull", "beautifull", "horribel", "1987", "1988", "x"),
    *("film", "the"),
]


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    path = tmp_path / "vectors.txt"
    path.write_text(VECTORS)
    return str(path)


def built(
    vectors: str, encoder: str = "sopa", options: dict[str, Any] | None = None, **model: Any
) -> Any:
    torch.manual_seed(0)
    embedder = {"type": "static", "vectors": vectors, "own_rows": True, "ngram_buckets": 300}
    params = {
        "embedder": embedder,
        "encoder": {"type": encoder, **ENCODERS[encoder], **(options or {})},
        "head": "linear",
        **model,
    }
    words = dict.fromkeys(" ".join(TRAIN).split())
    model_: Any = Model.from_params(params, tokenizer=make_tokenizer(words), labels=["bad", "good"])
    with torch.no_grad():  # as if something had been learned
        for each in model_.embedder.parameters():
            if each.requires_grad:
                each[1:] += torch.randn_like(each[1:]) / 4
    return model_.eval()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_unknown_words_are_the_same_in_every_way_to_a_model(
    encoder: str, vectors: str, tmp_path: Path
) -> None:
    """In memory, loaded, compiled, padded on either side, in a pipeline, in a `Trainer`."""
    draw = random.Random(1)
    texts = [" ".join(draw.choices(UNKNOWN, k=draw.randint(0, 9))) for _ in range(60)]
    assert_all_alike(built(vectors, encoder), texts, tmp_path / "saved")


def test_so_they_are_with_rules(vectors: str, tmp_path: Path) -> None:
    rules = [
        {"label": "good", "pattern": [{"IS_TITLE": True}]},
        {"label": "bad", "pattern": [{"LIKE_NUM": True}, {"LENGTH": {">=": 4}}]},
    ]
    (tmp_path / "rules.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    model = built(vectors, rules=str(tmp_path / "rules.jsonl"), fallback="bad")
    draw = random.Random(2)
    texts = [" ".join(draw.choices(UNKNOWN, k=draw.randint(0, 9))) for _ in range(60)]
    assert_all_alike(model, texts, tmp_path / "saved")
    ways = model.document_vectors(model.encode_texts(["Zork", "zork", "Zorks", "1987", "1988"]))
    assert len(ways.unique(dim=0)) == 5


def assert_all_alike(model: Any, texts: list[str], folder: Path) -> None:
    expected = model.log_probabilities(texts)
    one = model.document_vectors(model.encode_texts(["x x", "zorks zorks", "1987 1987"]))
    assert len(one.unique(dim=0)) == 3  # not one unknown word
    folder.mkdir()
    model.save(folder)
    np.testing.assert_allclose(load_model(folder).log_probabilities(texts), expected, atol=1e-6)
    compiled = load_compiled(folder)
    assert (compiled is not None) is (model.reason_not_compiled() is None)
    if compiled is not None:
        np.testing.assert_allclose(compiled.log_probabilities(texts), expected, atol=1e-6)
        np.testing.assert_allclose(
            compiled.log_probabilities(["film"]), model.log_probabilities(["film"]), atol=1e-6
        )

    loaded = TextClassifier.from_pretrained(folder).eval()
    read = AutoTokenizer.from_pretrained(folder)
    logits = loaded(**read(texts, padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(logits.detach().log_softmax(1).numpy(), expected, atol=1e-5)

    classify = pipeline("text-classification", model=str(folder), top_k=None)
    for batch_size in (1, 7):
        found = [
            {each["label"]: each["score"] for each in answer}
            for answer in classify(texts, batch_size=batch_size)
        ]
        scores = [[each[label] for label in model.labels] for each in found]
        np.testing.assert_allclose(np.log(scores), expected, atol=1e-5)

    arguments = TrainingArguments(str(folder / "trainer"), report_to=[], use_cpu=True)
    trainer = Trainer(loaded, arguments, processing_class=read)
    rows = Dataset.from_list([dict(read(text)) for text in texts])
    answered = torch.from_numpy(trainer.predict(rows).predictions).log_softmax(1)
    np.testing.assert_allclose(answered.numpy(), expected, atol=1e-5)


def test_words_cut_off_have_no_ngrams(vectors: str) -> None:
    model = built(vectors)
    batch = model.tokenizer(["the zorks", "zorks x film"], padding=True, return_tensors="pt")
    cut = {name: each[:, :1] for name, each in batch.items() if name != "ngrams"}
    whole = model.tokenizer(["the", "zorks"], padding=True, return_tensors="pt")
    torch.testing.assert_close(model(**cut, ngrams=batch["ngrams"]).logits, model(**whole).logits)


def test_a_misspelt_word_is_near_what_was_meant(vectors: str) -> None:
    model = built(vectors)
    model.embedder.own_rows.reset_parameters()
    plain: Any = Model.from_params(
        {"embedder": {**PARAMS, "vectors": vectors}, "encoder": "mean", "head": "linear"},
        tokenizer=make_tokenizer(" ".join(TRAIN).split()),
        labels=["bad", "good"],
    )
    words = ["wonderfull", "horribel", "wonderful", "horrible", "1987"]
    found = plain.document_vectors(plain.encode_texts(words))
    nearest = torch.cosine_similarity(found[:2, None], found[None, 2:4], dim=-1)
    assert nearest[0, 0] > 0.5 > nearest[0, 1]
    assert nearest[1, 1] > 0.5 > nearest[1, 0]
    assert not found[4].any()  # has no n-gram of any word


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_class_that_only_words_without_a_vector_tell_is_learned(
    encoder: str, vectors: str, tmp_path: Path
) -> None:
    draw, rows = random.Random(3), {"train": 120, "dev": 40, "test": 40}
    for split, count in rows.items():
        lines = ["label\ttext"]
        for _ in range(count):
            label = draw.choice(["flurb", "glip"])
            # in test, of spellings that were never seen
            tell = label + (draw.choice("abcde") if split != "test" else draw.choice("xyz"))
            words = [*draw.choices(["the", "film", "was"], k=4), tell]
            draw.shuffle(words)
            lines.append(f"{label}\t{' '.join(words)}")
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    config = {
        "dataset": {"type": "text", "path": str(tmp_path)},
        "model": {
            "embedder": {"type": "static", "vectors": vectors, **PARAMS, "normalize": True},
            "encoder": {"type": encoder, **ENCODERS[encoder]},
            "head": "linear",
        },
        "trainer": {"num_epochs": 10, "batch_size": 20, "optimizer": {"type": "adam", "lr": 0.05}},
    }
    metrics = run_experiment(config, tmp_path / "run")
    assert metrics["test_accuracy"] >= 0.9
    if encoder != "sopa":
        return
    config["model"]["embedder"] = {"type": "static", "vectors": vectors}
    assert run_experiment(config, tmp_path / "without")["test_accuracy"] < 0.7


def test_it_is_explained_by_the_words_themselves(vectors: str) -> None:
    model = built(vectors)
    explainer = Explainer.from_model(model)
    found = explainer.document("the Zorks was wonderfull")
    assert "Zorks" in found.to_text()
    expected = model.log_probabilities(["the Zorks was wonderfull"])[0]
    assert found.probabilities == pytest.approx(
        dict(zip(model.labels, np.exp(expected), strict=True)), abs=1e-5
    )
    (pattern, *_) = explainer.patterns(["Zorks Blubs", "Blubs Zorks"])
    assert {"Zorks", "Blubs"} & set(pattern.to_text().split())


@pytest.mark.parametrize("boundary_tokens", [False, True])
def test_compiled_it_is_explained_alike_and_no_word_is_kept(
    boundary_tokens: bool, vectors: str
) -> None:
    model = built(vectors, options={"boundary_tokens": boundary_tokens})
    texts = ["the Zorks was wonderfull", "zorks film blubs", "", "the film", "blubs Zorks"] * 30
    plain, compiled = (Explainer.from_model(model) for _ in range(2))
    plain.subject.prepare = lambda: None  # type: ignore[method-assign]
    expected, found = (
        each.patterns(texts, labelled=(texts, [0] * len(texts))) for each in (plain, compiled)
    )
    assert (plain.subject.compiled, compiled.subject.compiled is None) == (None, False)
    for pattern in expected:
        other = found[pattern.name]
        assert other.effect == pytest.approx(pattern.effect, abs=1e-5)
        assert other.use.consumed == pattern.use.consumed
        for match, same in zip(other.matches, pattern.matches, strict=True):
            assert (match.tokens, match.count) == (same.tokens, same.count)
            assert match.score == pytest.approx(same.score, rel=1e-5)
    for explainer in (plain, compiled):
        one, two = (explainer.subject.read([word]) for word in ("unheard", "unseen"))
        assert one.ids.tolist() == two.ids.tolist() == [one.new_words.first]
        assert not explainer.subject.vectors(one).equal(explainer.subject.vectors(two))


def test_a_word_is_put_on_the_arc_that_its_ngrams_are_nearest_to(vectors: str) -> None:
    subject = ModelSubject(built(vectors))
    edited, _ = reword(subject, TRAIN, "3-1", allow=["wonderfull"])
    assert edited.names == subject.names
    arcs, path = (
        edited.encoder.arcs,
        [b.origin + subject.number("3-1") for b in edited.encoder.layout.main_path],
    )
    (vector,) = edited.vectors(edited.read(["wonderfull"]))
    scores = arcs.weight[path] @ vector + arcs.bias[path]
    assert scores.max().item() == pytest.approx(SURE, abs=1e-4)


def test_more_rules_keep_what_was_learned(vectors: str, tmp_path: Path) -> None:
    from sopa_plugin.rules import Rules

    (tmp_path / "rules.jsonl").write_text('{"label": "good", "pattern": [{"IS_TITLE": true}]}\n')
    model = built(vectors)
    more = model.with_rules(Rules.read(str(tmp_path / "rules.jsonl")))
    for text in ("zork zorks", "wonderfull film x"):
        ids, new = (each.encode_texts([text]) for each in (model, more))
        free = [place for place, rule in enumerate(more.encoder.rules) if rule is None]
        torch.testing.assert_close(more.document_vectors(new)[:, free], model.document_vectors(ids))


def test_it_needs_a_tokenizer_of_words(tmp_path: Path) -> None:
    pieces = AutoTokenizer.from_pretrained(_word_pieces(tmp_path))
    with pytest.raises(UserError, match=r"expected one of whole words .*ngram_buckets"):
        with_unknown_words(pieces, None, 10)


def _word_pieces(folder: Path) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]").save_pretrained(folder)
    return folder


def test_a_tokenizer_saved_under_its_former_name_is_read(tmp_path: Path) -> None:
    with_unknown_words(make_tokenizer(["a"]), None, 0).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    saved = json.loads(file.read_text())
    del saved["unknown_words"]["ngram_buckets"]
    file.write_text(json.dumps({**saved, "tokenizer_class": "RuleTokenizer"}))
    read = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(read, RuleTokenizer)
    assert dict(read("a b")) == {"input_ids": [2, 1], "attention_mask": [1, 1]}


@pytest.mark.parametrize(
    ("buckets", "key", "value"),
    [
        (300, "ngram_buckets", 10**9),
        (300, "ngram_buckets", -7),
        (300, "rows", {"": 9000}),
        (300, "rows", {"": 10**30}),
        (0, "rows", {"": 9000}),
        (0, "rows", {"": -1}),
        (0, "rows", {"": 10**30}),
    ],
)
def test_words_beyond_the_weights_are_refused_when_a_model_is_read(
    buckets: int, key: str, value: Any, vectors: str, tmp_path: Path
) -> None:
    model = built(vectors, embedder={**PARAMS, "vectors": vectors, "ngram_buckets": buckets})
    model.tokenizer = with_unknown_words(model.tokenizer, None, buckets)
    model.save(tmp_path)
    (tmp_path / "digests.json").unlink()  # a stranger writes what digests he likes
    file = tmp_path / "tokenizer_config.json"
    saved = json.loads(file.read_text())
    saved["unknown_words"][key] = value
    file.write_text(json.dumps(saved))
    with pytest.raises(UserError, match=r"has no vector|cannot be read"):
        load_model(tmp_path)
    compiled = tmp_path / "compiled.safetensors"
    with safe_open(compiled, framework="numpy") as opened:
        record = json.loads(opened.metadata()["sopa_plugin"])
    record["words"]["unknown_words"][key] = value
    save_file(load_file(compiled), compiled, {"sopa_plugin": json.dumps(record)})
    with pytest.raises(UserError, match=r"or a damaged one|cannot be read"):
        load_compiled(tmp_path)


def test_words_that_are_split_already_are_read_as_the_text_is(vectors: str) -> None:
    model = built(vectors)
    texts = ["the film was zorks", "beautifull , horribel", "", "1987 zork zork"]
    split = [text.split() for text in texts]
    expected = model.log_probabilities(texts)
    assert len({*expected[:, 0].tolist()}) == 4
    np.testing.assert_allclose(model.log_probabilities(split), expected, rtol=1e-6)
    explainer = Explainer.from_model(model)
    for text, words in zip(texts, split, strict=True):
        alone, given = explainer.document(text), explainer.document(words)
        assert given.tokens == alone.tokens == tuple(words)
        assert given.to_dict() == alone.to_dict()
    called = model.tokenizer(split, is_split_into_words=True, padding=True, return_tensors="pt")
    logits = model(**called).logits.log_softmax(-1).detach().numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_what_replaces_any_expression_is_refused() -> None:
    """Words are normalized one by one, where nothing bounds the time that an expression takes."""
    tokenizer = make_tokenizer(["good"], lowercase=True, max_tokens=9)
    backend: Any = with_unknown_words(tokenizer, None, 10).backend_tokenizer
    check_normalizer(backend)
    replaces = normalizers.Replace(Regex("(?:o|o){22}(?!)"), "")
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), replaces])
    with pytest.raises(UserError, match="may not replace a regular expression"):
        check_normalizer(backend)


@pytest.mark.parametrize("name", ["slots", "members"])
def test_rows_that_there_are_not_are_found_when_a_model_is_loaded(
    name: str, vectors: str, tmp_path: Path
) -> None:
    built(vectors).save(tmp_path)
    weights = load_file(file := tmp_path / "model.safetensors")
    weights[f"embedder.own_rows.{name}"][-1] = 5000
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(UserError, match="do not fit together"):
        load_model(tmp_path, accept_changed=True)


def test_a_setting_that_only_a_prediction_needs_is_tried_when_a_model_is_loaded(
    vectors: str, tmp_path: Path
) -> None:
    built(vectors, "cnn").save(tmp_path)
    config = json.loads((file := tmp_path / "config.json").read_text())
    file.write_text(json.dumps(config | {"pad_token_id": {"a": None}}))
    with pytest.raises(UserError, match="do not fit together"):
        load_model(tmp_path, accept_changed=True)
