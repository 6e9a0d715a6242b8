"""The base class of models that are trained by gradient, and what one is built from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from sopa_plugin.data.tokenizers import Tokenizer, build_tokenizer
from sopa_plugin.embedders import TokenEmbedder, configured
from sopa_plugin.encoders import Seq2VecEncoder
from sopa_plugin.heads import ClassifierHead
from sopa_plugin.models.model import Model, record
from sopa_plugin.models.rule_tokenizer import with_unknown_words
from sopa_plugin.registry import Lazy, LocalFile, fill_defaults
from sopa_plugin.rules import Rules
from sopa_plugin.rules.start import start_patterns, start_votes

_WITH_RULES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "embedder": {"type": ["static"]},
    "encoder": {
        "type": ["sopa"],
        "semiring": ["max_product"],
        "encoding": [None, "sigmoid"],
        "self_loops": ["state"],
        "epsilons": [True],
        "boundary_loops": [None, False],
        "final_epsilon": [True],
        "empty_matches": [False],
        "epsilon_scale": [None],
        "self_loop_scale": [None],
        "bias_scale": [1.0],
        "boundary_tokens": [False],
        "output": [None, "excess", "score"],
        "normalization": [None, "none"],
        "activation": ["none"],
    },
    "head": {"type": ["linear"]},
}
"""What the parts of a model with rules must be."""


class TextClassifierConfig(PreTrainedConfig):
    """What a `TextClassifier` is built from, with no file but its own.

    Attributes:
        embedder, encoder, head: the parts' `type` and constructor arguments.
        rules: those that patterns of the encoder began as (`Rules.to_json`).
        sopa_plugin: what made the model (see `sopa_plugin.models.model.record`).
    """

    model_type = "sopa_text_classifier"

    embedder: dict[str, Any] | None = None
    encoder: dict[str, Any] | None = None
    head: dict[str, Any] | None = None
    rules: dict[str, Any] | None = None
    sopa_plugin: dict[str, Any] | None = None
    pad_token_id: int | None = None


class NeuralModel(Model):
    """A model of three parts that is trained by gradient: `TextClassifier`, as a config sees it.

    Apart from that class, since transformers' models take seconds to import and the check of a
    config needs none.

    Arguments of a config:
        embedder: a `TokenEmbedder`.
        encoder: a `Seq2VecEncoder`.
        head: a `ClassifierHead`.
        rules: a file of rules (`sopa_plugin.rules`), each of which becomes patterns beside those of
            the encoder, which are free. Needs max-product over sigmoids with self-loops and
            epsilons, no normalization, and a linear head.
        fallback: the label where no rule fires.
        precedence: of a label, those that lose a vote where one of its rules fires.
    """

    @classmethod
    def from_parts(
        cls,
        embedder: Lazy[TokenEmbedder],
        encoder: Lazy[Seq2VecEncoder],
        tokenizer: PreTrainedTokenizerBase,
        labels: list[str],
        head: Lazy[ClassifierHead] = Lazy(ClassifierHead, "mlp"),  # noqa: B008
        rules: LocalFile | None = None,
        fallback: str | None = None,
        precedence: dict[str, list[str]] | None = None,
    ) -> Self:
        """A model to be trained: reads the files that the embedder's config names, and rules."""
        given = None if rules is None else _read_rules(rules, fallback, precedence)
        return cls._begun(embedder.params, encoder.params, head.params, tokenizer, labels, given)

    @classmethod
    def from_rules(
        cls,
        rules: Rules,
        texts: Sequence[str] = (),
        vectors: str | None = None,
        tokenizer: str = "words",
        lowercase: bool = False,
    ) -> Self:
        """A model of rules alone, which classifies as they vote; see `Rules.to_model`."""
        part = Tokenizer.from_params({"type": tokenizer, "lowercase": lowercase})
        words: dict[str, Any] = {"type": "static", "vectors": vectors, "trainable": False}
        if vectors is None:
            words["embedding_dim"] = 1
        known = [*texts, " ".join(rules.words)]
        split = build_tokenizer(part, known, (), configured.pretrained_words(words))
        model = cls._begun(
            words, {"type": "sopa", "patterns": {}}, "linear", split, list(rules.labels), rules
        )
        model.look_at(texts[: cls.most_looked_at])
        return model

    @classmethod
    def _begun(
        cls,
        embedder: Any,
        encoder: Any,
        head: Any,
        tokenizer: PreTrainedTokenizerBase,
        labels: list[str],
        given: Rules | None,
    ) -> Self:
        params = fill_defaults(TokenEmbedder, embedder)
        if given is not None and folds_case(tokenizer):
            given = given.without_case()
            given.require_sound()
        if given is not None:
            tokenizer = with_unknown_words(tokenizer, given, tokenizer.get_vocab())
        config = TextClassifierConfig(
            rules=None if given is None else given.to_json(),
            embedder=configured.resolve(params, tokenizer),
            encoder=fill_defaults(Seq2VecEncoder, encoder),
            head=fill_defaults(ClassifierHead, head),
            sopa_plugin=record(cls),
            id2label=dict(enumerate(labels)),
            label2id={label: number for number, label in enumerate(labels)},
            pad_token_id=tokenizer.pad_token_id,
        )
        build: Any = cls
        model = build(config)
        model.tokenizer = tokenizer
        words = model.embedder if given is None else model.embedder.vectors
        configured.load_pretrained(words, params, tokenizer)
        if given is not None:
            model.embedder.set_features(tokenizer.by_answers, tokenizer)
            start_patterns(model.encoder, given)
            start_votes(model.head.output, model.encoder, given, labels)
        return model  # type: ignore[no-any-return]

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Whether the parts can be those of a model with rules, where it has some."""
        if params.get("rules") is None:
            for key in ("fallback", "precedence"):
                if params.get(key) is not None:
                    yield key, "expected together with `rules`"
            if not any(params["encoder"].get("patterns", {"": 1}).values()):
                reason = "expected at least one pattern, as {states: number of patterns}, or rules"
                yield "encoder.patterns", reason
            return
        for part, wanted in _WITH_RULES.items():
            given = params[part]
            for key, values in wanted.items():
                if given.get(key) not in values:
                    expected = " or ".join(json.dumps(value) for value in values)
                    yield f"{part}.{key}", f"with rules, expected {expected}"

    @classmethod
    def own_words(cls, params: Mapping[str, Any]) -> list[str]:
        """The words that its rules name."""
        given = params.get("rules")
        return [] if given is None else Rules.read(given).words

    @classmethod
    def own_labels(cls, params: Mapping[str, Any]) -> Sequence[str]:
        """The labels that its rules vote for."""
        given = params.get("rules")
        if given is None:
            return ()
        return _read_rules(given, params["fallback"], params["precedence"]).labels

    @classmethod
    def pretrained_words(cls, params: Mapping[str, Any]) -> Iterator[str]:
        """Words that the embedder has frozen vectors for."""
        return configured.pretrained_words(fill_defaults(TokenEmbedder, params["embedder"]))

    @classmethod
    def is_cased(cls, params: Mapping[str, Any]) -> bool | None:
        """Whether words that the embedder has vectors of a file for have capitals."""
        return configured.is_cased(fill_defaults(TokenEmbedder, params["embedder"]))


def _read_rules(
    path: str, fallback: str | None, precedence: Mapping[str, Sequence[str]] | None
) -> Rules:
    return Rules.read(path).deciding(fallback, precedence or {})


def folds_case(tokenizer: PreTrainedTokenizerBase) -> bool:
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    return normalizer is not None and normalizer.normalize_str("A") == "a"
