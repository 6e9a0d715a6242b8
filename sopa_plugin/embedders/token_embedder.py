"""The base class of everything that turns token ids into vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from sopa_plugin.registry import Registrable


class Found(NamedTuple):
    """What a file of vectors brought: its path, and the ids of the words that it has."""

    file: str
    ids: list[int]


class TokenEmbedder(nn.Module, Registrable):
    """Embeds tokens.

    A constructor reads no file and no hub: what the config names (a vector file, a model) is read
    in two steps when a model is first built for training, `resolve` before the constructor and
    `load_pretrained` after it. A saved model holds the resolved arguments and its own weights.
    `params` are a config's, `type` among them, every default written out (`fill_defaults`).
    """

    contextual: ClassVar[bool] = False
    """Whether a token's vector depends on the tokens around it."""

    trainable: bool
    """Whether its weights are trained. If not, they need no gradient, and the same token (or the
    same document, where `contextual`) has the same vectors for good, in training too."""

    capturable: bool = False
    """Whether a CUDA graph can hold its forward pass; see `Seq2VecEncoder.capturable`."""

    found: Found | None = None
    """Set by `load_pretrained`, where there is a file of word vectors."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Vectors `[batch, tokens, dim]` of `input_ids [batch, tokens]`.

        An embedder that is not `contextual` also takes ids and mask of any one shape
        (`[tokens]` gives `[tokens, dim]`). One with an argument `ngram_buckets`, if that is not 0,
        also takes `ngrams [words, 1 + MOST_NGRAMS]`: of some tokens their places among all of
        `input_ids`, and their n-grams (see `sopa_plugin.data.ngrams`).
        """
        raise NotImplementedError

    def get_output_dim(self) -> int:
        """Dimension of the vectors."""
        raise NotImplementedError

    @classmethod
    def pretrained_words(cls, params: Mapping[str, Any]) -> Iterator[str]:
        """Words for which `params` bring a vector, in the file's order."""
        raise NotImplementedError

    @classmethod
    def is_cased(cls, params: Mapping[str, Any]) -> bool | None:
        """Whether words that `params` name vectors for have capitals; None if they name none."""
        return None

    @classmethod
    def resolve(
        cls, params: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
    ) -> dict[str, Any]:
        """Constructor arguments that need no file; with `type`, or without it."""
        raise NotImplementedError

    def load_pretrained(
        self, params: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
    ) -> dict[str, Any]:
        """Fills the weights that `params` name; constructor arguments that only now are known."""
        raise NotImplementedError


def build_embedder(resolved: Mapping[str, Any]) -> TokenEmbedder:
    """An embedder from `type` and resolved arguments, its weights not yet read."""
    arguments = {key: each for key, each in resolved.items() if key != "type"}
    return TokenEmbedder.by_name(resolved["type"])(**arguments)


def embed(
    embedder: TokenEmbedder, input_ids: Tensor, attention_mask: Tensor, ngrams: Tensor | None
) -> Tensor:
    """What the embedder gives, which takes `ngrams` only where its tokenizer gives some."""
    given = () if ngrams is None else (ngrams,)
    vectors: Tensor = embedder(input_ids, attention_mask, *given)
    return vectors
