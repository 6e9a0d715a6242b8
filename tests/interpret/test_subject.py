"""Whole classifiers read: static and contextual vectors, SoPa and CNN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertTokenizerFast,
)

from sopa_plugin.data.tokenizers import WordTokenizer, make_tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.interpret.editing import mask
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.models import TextClassifier

TEXTS = [
    "the film is not funny , never dull",
    "good",
    "bad bad story .",
    "",
    "a very good film",
    "an unknown film",
]
ENCODERS: list[dict[str, Any]] = [
    {"type": "sopa", "patterns": {"2": 1, "3": 2, "5": 2}},
    {"type": "sopa", "patterns": {"4": 3}, "semiring": "max_sum"},
    {"type": "sopa_released", "patterns": {"3": 2, "4": 2}, "semiring": "max_product"},
    {"type": "cnn", "num_filters": 2, "window_sizes": [3, 1], "boundary_tokens": False},
]


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda each: "-".join(map(str, each.values())))
def test_probabilities_are_the_models_own(
    encoder: dict[str, Any], make_model: Callable[..., TextClassifier]
) -> None:
    model = make_model(**encoder)
    explainer = Explainer.from_model(model)
    expected = np.exp(model.log_probabilities(TEXTS))
    for text, row in zip(TEXTS, expected, strict=True):
        found = explainer.document(text)
        assert list(found.probabilities.values()) == pytest.approx(row.tolist(), abs=1e-5)
        assert found.tokens == tuple(text.split())


@pytest.mark.parametrize("encoder", ENCODERS[:3], ids=lambda each: "-".join(each))
def test_compiled_models_read_alike(
    encoder: dict[str, Any], make_model: Callable[..., TextClassifier], tmp_path: Path
) -> None:
    """By the arc scores of all words, by those of a batch, and as the run folder has them."""
    model = make_model(**encoder)
    model.save(tmp_path)
    compiled, plain = Explainer.from_model(model), Explainer.from_model(model)
    assert isinstance(plain.subject, ModelSubject)
    plain.subject.prepare = lambda: None  # type: ignore[method-assign]
    expected = plain.patterns(TEXTS * 30)
    assert plain.subject.compiled is None
    for explainer in (compiled, Explainer.from_run(tmp_path)):
        reading = explainer.patterns(TEXTS * 30)
        assert isinstance(explainer.subject, ModelSubject)
        assert explainer.subject.compiled is not None
        for pattern in expected:
            found = reading[pattern.name]
            assert found.best == pytest.approx(pattern.best, rel=1e-5)
            assert found.effect == pytest.approx(pattern.effect, abs=1e-5)
            for match, other in zip(found.matches, pattern.matches, strict=True):
                assert (match.tokens, match.count) == (other.tokens, other.count)
                assert (match.document, match.start) == (other.document, other.start)
                assert match.score == pytest.approx(other.score, rel=1e-5)


RUNNING = "A moving, funny film. It's superb: don't miss it!"
TOKENS = ("A", "moving", ",", "funny", "film", ".", "It", "'s", "superb", ":", "do", "n't", "miss")
TOKENS += ("it", "!")


@pytest.mark.parametrize("compiled", [True, False])
def test_words_of_running_text_are_the_tokens(
    compiled: bool, make_model: Callable[..., TextClassifier]
) -> None:
    """Every word under the pattern that read it, and none taken for a piece of another."""
    tokenizer = make_tokenizer(
        TOKENS[::2], lowercase=True, pre_tokenizer=WordTokenizer.pre_tokenizer()
    )
    model = make_model(tokenizer=tokenizer)
    explainer = Explainer.from_model(model)
    if compiled:
        explainer.subject.prepare()
    assert isinstance(explainer.subject, ModelSubject)
    assert (explainer.subject.compiled is not None) == compiled
    found = explainer.document(RUNNING, shown=99)
    assert found.tokens == TOKENS
    expected = np.exp(model.log_probabilities([RUNNING]))[0]
    assert list(found.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-5)
    for each in found.contributions:
        if each.match:
            assert each.match.tokens == TOKENS[each.match.start : each.match.end]


def test_a_tokenizer_may_be_given(
    make_model: Callable[..., TextClassifier], tmp_path: Path
) -> None:
    model = make_model()
    model.save(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"no tokenizer: give it one, from_model\(model, tokenizer"):
        Explainer.from_model(loaded)
    explainer = Explainer.from_model(loaded, tokenizer=AutoTokenizer.from_pretrained(tmp_path))
    expected = Explainer.from_model(model).document(TEXTS[0]).probabilities
    assert explainer.document(TEXTS[0]).probabilities == pytest.approx(expected)


def test_changed_models_are_compiled_anew(make_model: Callable[..., TextClassifier]) -> None:
    explainer = Explainer.from_model(make_model())
    assert isinstance(explainer.subject, ModelSubject)
    assert explainer.patterns(TEXTS)["3-1"].matches
    mask(explainer.subject, ["3-1"], "no_match")
    assert explainer.subject.compiled is None
    assert explainer.matches(TEXTS[0])["3-1"] is None
    assert not explainer.patterns(TEXTS)["3-1"].matches


def test_filters_of_a_cnn_read_as_patterns(make_model: Callable[..., TextClassifier]) -> None:
    """Each filter's best window, and leave-one-out on the CNN's own document vector."""
    model = make_model(**ENCODERS[3])
    explainer = Explainer.from_model(model, "no_match")
    text = TEXTS[0]
    found = {each.pattern: each for each in explainer.document(text).contributions}
    # Names go by window, the document vector by the order of `window_sizes`.
    assert list(explainer.subject.names) == ["2-1", "2-2", "4-1", "4-2"]
    assert list(explainer.subject.columns) == [2, 3, 0, 1]
    ids = torch.from_numpy(model.encode_texts([text]).ids)[None]
    vectors = model.embedder(ids, torch.ones_like(ids))
    document = model.encoder(vectors, torch.ones_like(ids))
    base = model.head(document).double()
    for number, (name, column) in enumerate(
        zip(explainer.subject.names, explainer.subject.columns, strict=True)
    ):
        window, convolution = (
            (3, model.encoder.convolutions[0]),
            (1, model.encoder.convolutions[1]),
        )[number < 2]
        scores = convolution(vectors.transpose(1, 2))[0, number % 2]
        match = found[name].match
        assert (match.start, match.end - match.start) == (int(scores.argmax()), window)
        assert match.score == pytest.approx(float(scores.detach().max()), rel=1e-4)
        changed = document.clone()
        changed[:, column] = 0.0
        again = model.head(changed).double()
        for label, effect in enumerate(found[name].effect.values()):
            odds = [
                x[0, label] - torch.cat([x[0, :label], x[0, label + 1 :]]).logsumexp(0)
                for x in (base, again)
            ]
            assert effect == pytest.approx(float((odds[0] - odds[1]).detach()), abs=1e-6)


def test_unknown_words_are_shown_as_they_were_written(
    make_model: Callable[..., TextClassifier],
) -> None:
    explainer = Explainer.from_model(make_model())
    assert explainer.document("Some  NEW good film").tokens == ("Some", "NEW", "good", "film")
    # A no-break space is part of a word.
    assert explainer.document("a\u00a0b \u00a0film\u00a0").tokens == (
        "a\u00a0b",
        "\u00a0film\u00a0",
    )


def test_vocabulary_leaves_special_tokens_out(make_model: Callable[..., TextClassifier]) -> None:
    reading = Explainer.from_model(make_model()).patterns(TEXTS, words=30)
    words = {word for pattern in reading for arc in pattern.arcs for word, _ in arc.words}
    assert "good" in words
    assert not any(word.startswith("[") for word in words)


@pytest.fixture
def contextual(tmp_path: Path, make_model: Callable[..., TextClassifier]) -> TextClassifier:
    """A small random BERT with word pieces before the patterns."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "film",
        "un",
        "##fun",
        "##ny",
        "good",
        ",",
        "not",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    tokenizer.model_max_length = 30
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=30,
    )
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    embedder = {"type": "transformer", "model": str(tmp_path)}
    return make_model(embedder, tokenizer)


def test_word_pieces_are_the_tokens_and_special_ones_are_kept(
    contextual: TextClassifier,
) -> None:
    explainer = Explainer.from_model(contextual)
    text = "The unfunny film"
    found = explainer.document(text)
    assert found.tokens == ("[CLS]", "The", "un", "##fun", "##ny", "film", "[SEP]")
    expected = np.exp(contextual.log_probabilities([text]))[0]
    assert list(found.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-5)
    encoded = explainer.subject.read([text])
    assert explainer.subject.is_special(encoded.ids).tolist() == [True, *[False] * 5, True]
    # Without its words the document is what an empty text is.
    from sopa_plugin.interpret.leave_one_out import faithfulness

    label = int(expected.argmax())
    empty = np.exp(contextual.log_probabilities([""]))[0]
    ((fall, _),) = faithfulness(explainer.subject, encoded, np.ones(7, dtype=bool), [label])
    assert fall == pytest.approx(expected[label] - empty[label], abs=1e-5)


def test_pieces_of_a_word_are_joined_where_text_is_shown(contextual: TextClassifier) -> None:
    explainer = Explainer.from_model(contextual, "no_match")
    found = explainer.document("the unfunny film")
    assert "unfunny" in found.to_text()
    assert "##" not in found.to_text()
    reading = explainer.patterns(["the unfunny film", "good , not unfunny"], k=3, words=3)
    assert all(arc.words for pattern in reading for arc in pattern.arcs if arc.arc != "epsilon")


def test_nearest_words_in_context_are_of_many_documents(contextual: TextClassifier) -> None:
    texts = ["the film"] * 50 + ["unfunny"] * 50 + ["good"] * 300 + ["not ,"] * 10
    reading = Explainer.from_model(contextual).patterns(texts, k=1, words=8)
    everything = {"the", "film", "un", "##fun", "##ny", "good", "not", ","}  # none special
    for pattern in reading:
        for arc in pattern.arcs:
            if arc.arc != "epsilon":
                assert {word for word, _ in arc.words} == everything
                scores = [score for _, score in arc.words]
                assert scores == sorted(scores, reverse=True)


def test_an_encoder_without_patterns_is_refused(make_model: Callable[..., TextClassifier]) -> None:
    with pytest.raises(UserError, match="DanEncoder, which has no patterns to read; expected"):
        Explainer.from_model(make_model(type="dan"))
