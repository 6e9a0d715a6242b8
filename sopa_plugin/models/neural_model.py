"""The base class of models that are trained by gradient, and what one is built from."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from sopa_plugin.data.tokenizers import UNKNOWN, Tokenizer, build_tokenizer, folds_case
from sopa_plugin.embedders import StaticEmbedder, TokenEmbedder
from sopa_plugin.encoders import Seq2VecEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.heads import ClassifierHead
from sopa_plugin.models.model import Model
from sopa_plugin.models.open_vocabulary import OpenVocabularyTokenizer, with_unknown_words
from sopa_plugin.models.saved import record
from sopa_plugin.registry import Lazy, LocalFile, fill_defaults
from sopa_plugin.rules import Rules
from sopa_plugin.rules.start import carry_over, start_patterns, start_votes

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
        "boundary_tokens": [False, "marked"],
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
        sopa_plugin: what made the model (see `sopa_plugin.models.saved.record`).
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
        rules_read: Rules | None = None,
    ) -> Self:
        """A model to be trained: reads the files that the embedder's config names, and rules."""
        given = rules_read
        if given is None:
            params = {"rules": rules, "fallback": fallback, "precedence": precedence}
            given = cls.read_rules(params)
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
        known = [*texts, " ".join(rules.words) or UNKNOWN]  # a tokenizer has some word
        split = build_tokenizer(part, known, (), StaticEmbedder.pretrained_words(words))
        model = cls._begun(
            words, {"type": "sopa", "patterns": {}}, "linear", split, list(rules.labels), rules
        )
        model.look_at(texts)
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
        ngram_buckets = params.get("ngram_buckets", 0)
        if given is not None or ngram_buckets:
            tokenizer = with_unknown_words(tokenizer, given, ngram_buckets)
        kind = TokenEmbedder.by_name(params["type"])
        config = TextClassifierConfig(
            rules=None if given is None else given.to_json(),
            embedder={"type": params["type"], **kind.resolve(params, tokenizer)},
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
        config.embedder |= words.load_pretrained(params, tokenizer)
        if given is not None:
            unknown: Any = tokenizer
            model.embedder.set_features(unknown.by_answers, tokenizer)
            start_patterns(model.encoder, given)
            start_votes(model.head.output, model.encoder, given, labels)
        return model  # type: ignore[no-any-return]

    def with_rules(self, rules: Rules) -> Self:
        """A copy with more rules, or that asks more of tokens (`Rules.asked`).

        All weights are this model's, and those of what is new as rules start them: where the new
        rules do not fire it predicts as this one, but for what they give there (`settle_votes`).

        Arguments:
            rules: those of this model, and others after them.

        Raises:
            UserError: this model's parts are not those of a model with rules, or its tokenizer
                folds the case of words that the rules ask for.
        """
        old: Any = self
        config = copy.deepcopy(old.config)
        parts = {
            "embedder": config.embedder,
            "encoder": fill_defaults(Seq2VecEncoder, config.encoder),
            "head": config.head if rules.rules else {"type": "linear"},  # of no vote, any will do
        }
        problems = [f"{path}: {reason}" for path, reason in _unsuited(parts)]
        kind = getattr(getattr(old.tokenizer, "backend_tokenizer", None), "model", None)
        if type(kind).__name__ != "WordLevel":
            problems.append("tokenizer: with rules, expected one of whole words")
        if folds_case(old.tokenizer):
            problems += [fault.reason for fault in rules.without_case().faults]
        if problems:
            raise UserError(f"this model cannot have these rules: {'; '.join(problems)}")
        tokenizer = with_unknown_words(old.tokenizer, rules)
        config.rules = rules.to_json()
        config.embedder["num_embeddings"] = len(tokenizer)
        build: Any = type(self)
        model = build(config).train(old.training).to(old.device)
        model.tokenizer = tokenizer
        before = Rules.from_json(old.config.rules) if old.config.rules else None
        words = old.embedder if before is None else old.embedder.vectors
        rows = _former_rows(tokenizer, old.tokenizer)
        state = words.state_dict()
        for name in ("weight", "own_rows.slots"):  # a row for each word
            if name in state:
                state[name] = state[name][rows]
        model.embedder.vectors.load_state_dict(state)
        model.embedder.set_features(tokenizer.by_answers, tokenizer)
        start_patterns(model.encoder, rules)
        kept = carry_over(old.encoder, before, model.encoder, rules)
        weights = old.head.state_dict()
        if len(kept) < model.encoder.get_output_dim():
            start_votes(model.head.output, model.encoder, rules, model.labels)
            votes = model.head.output.weight.detach()
            votes[:, kept] = weights["output.weight"]
            weights["output.weight"] = votes
        model.head.load_state_dict(weights)
        model.class_log_prior.copy_(old.class_log_prior)
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
        yield from _unsuited(params)

    @classmethod
    def read_rules(cls, params: Mapping[str, Any]) -> Rules | None:
        """The rules in the file that a config names; raises `UserError` for those that are none."""
        if params.get("rules") is None:
            return None
        return Rules.read(params["rules"]).deciding(params["fallback"], params["precedence"] or {})


def _unsuited(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Arguments of the parts that do not go with rules."""
    for part, given in params.items():
        for key, values in _WITH_RULES.get(part, {}).items():
            if given.get(key) not in values:
                expected = " or ".join(json.dumps(value) for value in values)
                yield f"{part}.{key}", f"with rules, expected {expected}"
                if key == "type":  # another has other arguments
                    break


def _former_rows(tokenizer: OpenVocabularyTokenizer, former: Any) -> list[int]:
    """For each row of a tokenizer, the one that the `former` tokenizer gave its word."""
    rows = list(range(len(tokenizer)))
    for answers, row in tokenizer.by_answers.rows.items():
        rows[row] = former.unk_token_id
        if isinstance(former, OpenVocabularyTokenizer):
            found = dict(zip(tokenizer.by_answers.questions.tests, answers, strict=True))
            asked = former.by_answers.questions.tests
            rows[row] = former.by_answers.row_of("".join(found[test] for test in asked))
    return rows
