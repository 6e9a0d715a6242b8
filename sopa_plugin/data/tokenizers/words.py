"""Words of running text: the tokenizer for text that nobody has tokenised."""

from __future__ import annotations

import functools

from tokenizers import Regex, pre_tokenizers

from sopa_plugin.data.tokenizers.tokenizer import Tokenizer
from sopa_plugin.data.tokenizers.whitespace import WhitespaceTokenizer

# One alternative a kind of token, as the Penn Treebank and GloVe's vectors have them.
TOKENS = "|".join(
    [
        r"\w+?(?=n['’]t\b)",  # do of don't
        r"n['’]t\b",
        r"['’](?:s|re|ve|ll|d|m)\b",
        r"(?:\p{L}\.){2,}",  # u.s.
        r"\w+(?:[-.,/]\w+)*",  # re-imagining, 3.50, 1,000
        r"\.{2,}|-{2,}",
        r"[^\w\s]",
    ]
)


@Tokenizer.register("words")
class WordTokenizer(WhitespaceTokenizer):
    """Splits running text into words and punctuation; other words than the known are `[UNK]`.

    Registered as `words`. Punctuation is a token by itself, contractions are split as in the Penn
    Treebank (`do n't`, `it 's`), and what joins words or numbers (`re-imagining`, `3.50`) joins
    them. The vocabulary is that of `whitespace`, and so are the arguments.
    """

    @staticmethod
    @functools.cache  # the expression takes a millisecond to compile
    def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
        """What splits text into words."""
        return pre_tokenizers.Split(Regex(f"(?i){TOKENS}"), "removed", invert=True)

    def _words(self, text: str) -> list[str]:
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        return [word for word, _ in self.pre_tokenizer().pre_tokenize_str(text)]
