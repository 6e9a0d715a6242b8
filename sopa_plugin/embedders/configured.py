"""From an embedder's config to the embedder of a model, in the steps of `TokenEmbedder`.

`params` are a config's, `type` among them, every default written out (`fill_defaults`); `resolved`
is what a saved model holds: `type` and the constructor's arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from sopa_plugin.embedders.token_embedder import TokenEmbedder


def pretrained_words(params: Mapping[str, Any]) -> Iterator[str]:
    """Words that the embedder has vectors of a file for."""
    return _kind(params).pretrained_words(_arguments(params))


def is_cased(params: Mapping[str, Any]) -> bool | None:
    """Whether words that the embedder has vectors of a file for have capitals; None without one."""
    return _kind(params).is_cased(_arguments(params))


def resolve(params: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What the embedder is built from, with no file but its own."""
    arguments = _kind(params).resolve(_arguments(params), tokenizer)
    return {"type": params["type"], **arguments}


def build(resolved: Mapping[str, Any]) -> TokenEmbedder:
    """The embedder, its weights not yet read."""
    return _kind(resolved)(**_arguments(resolved))


def embed(
    embedder: TokenEmbedder, input_ids: Tensor, attention_mask: Tensor, ngrams: Tensor | None
) -> Tensor:
    """What the embedder gives, which takes `ngrams` only where its tokenizer gives some."""
    given = () if ngrams is None else (ngrams,)
    vectors: Tensor = embedder(input_ids, attention_mask, *given)
    return vectors


def load_pretrained(
    embedder: TokenEmbedder, params: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
) -> dict[str, Any]:
    """Fills the weights that `params` name; what belongs to `resolved` besides."""
    return embedder.load_pretrained(_arguments(params), tokenizer)


def _kind(params: Mapping[str, Any]) -> type[TokenEmbedder]:
    return TokenEmbedder.by_name(params["type"])


def _arguments(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in params.items() if key != "type"}
