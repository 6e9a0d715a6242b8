"""The base class of everything that makes a Hugging Face tokenizer for a data set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from transformers import PreTrainedTokenizerBase

from sopa_plugin.registry import Registrable


class Tokenizer(Registrable):
    """Makes the tokenizer that is saved with a model."""

    default_implementation: ClassVar[str | None] = "whitespace"

    def build(
        self, train: Iterable[str], dev: Iterable[str], pretrained_words: Iterable[str]
    ) -> PreTrainedTokenizerBase:
        """A tokenizer for documents like `train` and `dev`.

        `pretrained_words` are the words that have a frozen vector (see `TokenEmbedder`), most
        frequent first where the vector file is so ordered; none where vectors are trained.
        """
        raise NotImplementedError
