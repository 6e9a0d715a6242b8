"""Tokenizers: what makes the Hugging Face tokenizer of a data set."""

from __future__ import annotations

from sopa_plugin.data.tokenizers.pretrained import PretrainedTokenizer
from sopa_plugin.data.tokenizers.tokenizer import Tokenizer
from sopa_plugin.data.tokenizers.whitespace import WhitespaceTokenizer
from sopa_plugin.data.tokenizers.words import WordTokenizer

__all__ = ["PretrainedTokenizer", "Tokenizer", "WhitespaceTokenizer", "WordTokenizer"]
