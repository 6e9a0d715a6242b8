"""The base class of models that are trained by gradient, and what one is built from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from sopa_plugin.embedders import TokenEmbedder, configured
from sopa_plugin.encoders import Seq2VecEncoder
from sopa_plugin.heads import ClassifierHead
from sopa_plugin.models.model import Model, record
from sopa_plugin.registry import Lazy, fill_defaults


class TextClassifierConfig(PreTrainedConfig):
    """What a `TextClassifier` is built from, with no file but its own.

    Attributes:
        embedder, encoder, head: the parts' `type` and constructor arguments.
        sopa_plugin: what made the model (see `sopa_plugin.models.model.record`).
    """

    model_type = "sopa_text_classifier"

    embedder: dict[str, Any] | None = None
    encoder: dict[str, Any] | None = None
    head: dict[str, Any] | None = None
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
    """

    @classmethod
    def from_parts(
        cls,
        embedder: Lazy[TokenEmbedder],
        encoder: Lazy[Seq2VecEncoder],
        tokenizer: PreTrainedTokenizerBase,
        labels: list[str],
        head: Lazy[ClassifierHead] = Lazy(ClassifierHead, "mlp"),  # noqa: B008
    ) -> Self:
        """A model to be trained: reads the files that the embedder's config names."""
        params = fill_defaults(TokenEmbedder, embedder.params)
        config = TextClassifierConfig(
            embedder=configured.resolve(params, tokenizer),
            encoder=fill_defaults(Seq2VecEncoder, encoder.params),
            head=fill_defaults(ClassifierHead, head.params),
            sopa_plugin=record(cls),
            id2label=dict(enumerate(labels)),
            label2id={label: number for number, label in enumerate(labels)},
            pad_token_id=tokenizer.pad_token_id,
        )
        build: Any = cls
        model = build(config)
        model.tokenizer = tokenizer
        configured.load_pretrained(model.embedder, params, tokenizer)
        return model  # type: ignore[no-any-return]

    @classmethod
    def pretrained_words(cls, params: Mapping[str, Any]) -> Iterator[str]:
        """Words that the embedder has frozen vectors for."""
        return configured.pretrained_words(fill_defaults(TokenEmbedder, params["embedder"]))

    @classmethod
    def is_cased(cls, params: Mapping[str, Any]) -> bool | None:
        """Whether words that the embedder has vectors of a file for have capitals."""
        return configured.is_cased(fill_defaults(TokenEmbedder, params["embedder"]))
