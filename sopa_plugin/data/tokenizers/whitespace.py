"""Words between blanks: the tokenizer for text that is tokenised already, as the paper's is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal, get_args

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from sopa_plugin.data.tokenizers.tokenizer import Tokenizer
from sopa_plugin.errors import UserError

PADDING = "[PAD]"
UNKNOWN = "[UNK]"
Vocabulary = Literal["train", "train_dev", "vectors"]
# ASCII blanks only: words of SST hold no-break spaces, which str.split would split on.
BLANKS = r"[ \t\n\r\f\v]+"


@Tokenizer.register("whitespace")
class WhitespaceTokenizer(Tokenizer):
    """Splits text on blanks and knows the words of a vocabulary; other words are `[UNK]`.

    Registered as `whitespace`. Blanks are space, tab, newline, carriage return, form feed and
    vertical tab. `[PAD]` has id 0 and `[UNK]` id 1; then come the words of the documents, most
    frequent first and in order of appearance where equally frequent; then the words that only
    the vector file has, in its order. Documents may have any length. (A text's own word `[PAD]` has
    id 0, too: it counts as a token, with the vector of padding.)

    Arguments:
        lowercase: Lower-case all text. The saved tokenizer does it too, so new text at prediction
            is lower-cased just as the training text was.
        vocabulary: Which words are known:
            `train`: those of the training documents;
            `train_dev`: and those of the development documents (the paper's experiments);
            `vectors`: and the first `max_pretrained_words` of the vector file, so that a word
            first seen at prediction has its vector too; needs frozen vectors;
            null: `vectors` where the embedder has frozen vectors from a file, else `train`.
        max_pretrained_words: How many words of the vector file to take at most.
        min_count: Words rarer than this in the documents are left out.
    """

    def __init__(
        self,
        lowercase: bool = False,
        vocabulary: Vocabulary | None = None,
        max_pretrained_words: int = 50_000,
        min_count: int = 1,
    ) -> None:
        for key, message in self.check_params(
            {
                "vocabulary": vocabulary,
                "max_pretrained_words": max_pretrained_words,
                "min_count": min_count,
            }
        ):
            raise ValueError(f"{key}: {message}")
        self.lowercase = lowercase
        self.vocabulary = vocabulary
        self.max_pretrained_words = max_pretrained_words
        self.min_count = min_count
        self._normalizer = normalizers.Lowercase() if lowercase else None

    def build(
        self, train: Iterable[str], dev: Iterable[str], pretrained_words: Iterable[str]
    ) -> PreTrainedTokenizerBase:
        """The tokenizer over the chosen vocabulary.

        Raises:
            UserError: `vocabulary` is `vectors` and there are no pretrained words.
        """
        words = self._choose(train, dev, iter(pretrained_words))
        return make_tokenizer(words, self.lowercase, self.pre_tokenizer())

    @staticmethod
    def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
        """What splits text into words."""
        return pre_tokenizers.Split(Regex(BLANKS), "removed")

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Problems with the values of `vocabulary`, `max_pretrained_words` and `min_count`."""
        vocabulary = params.get("vocabulary")
        if vocabulary not in (None, *get_args(Vocabulary)):
            names = ", ".join(get_args(Vocabulary))
            yield "vocabulary", f"expected one of {names}, found {vocabulary!r}"
        for key in ("max_pretrained_words", "min_count"):
            if params.get(key, 1) < 1:
                yield key, f"expected at least 1, found {params[key]}"

    def _choose(
        self, train: Iterable[str], dev: Iterable[str], pretrained_words: Iterator[str]
    ) -> list[str]:
        """The words of the vocabulary, in order."""
        counts: Counter[str] = Counter()
        for document in train:
            counts.update(self._words(document))
        pretrained = []
        if self.vocabulary in ("vectors", None):
            pretrained = self._single_words(pretrained_words)
        if self.vocabulary == "vectors" and not pretrained:
            raise UserError(
                "tokenizer.vocabulary is 'vectors', but the embedder has no frozen vectors from a "
                "file. Name a vector file and freeze it (embedder.vectors, embedder.trainable: "
                "false), or choose 'train' or 'train_dev'."
            )
        if pretrained or self.vocabulary == "train_dev":
            for document in dev:
                counts.update(self._words(document))
        frequent = [word for word, count in counts.most_common() if count >= self.min_count]
        return list(dict.fromkeys([*frequent, *pretrained]))

    def _words(self, text: str) -> list[str]:
        """The words of a document, as the built tokenizer will see them."""
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        return [word for word in re.split(BLANKS, text) if word]

    def _single_words(self, pretrained_words: Iterator[str]) -> list[str]:
        """The first of `pretrained_words`; those that hold blanks can never be a token."""
        split = (self._words(word) for word in pretrained_words)
        words = (words[0] for words in split if len(words) == 1)
        return list(islice(words, self.max_pretrained_words))


def make_tokenizer(
    words: Iterable[str],
    lowercase: bool = False,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
) -> PreTrainedTokenizerFast:
    """A tokenizer that numbers `words` from 2 in their order, and splits on blanks by default."""
    vocabulary = {PADDING: 0, UNKNOWN: 1}
    for word in words:
        vocabulary.setdefault(word, len(vocabulary))
    backend = FastTokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizer or WhitespaceTokenizer.pre_tokenizer()
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        # "[PAD]" written in a text is not cut out of the word that it stands in.
        split_special_tokens=True,
        model_input_names=["input_ids", "attention_mask"],
    )
