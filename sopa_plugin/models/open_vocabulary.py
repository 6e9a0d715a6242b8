"""A word-level tokenizer whose unknown words are not all one: told apart by rules and n-grams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer
from transformers import (
    AutoTokenizer,
    BatchEncoding,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from sopa_plugin.data.batches import Text
from sopa_plugin.data.ngrams import MOST_NGRAMS, NewWords
from sopa_plugin.data.tokenizers import check_normalizer, normalized
from sopa_plugin.errors import UserError
from sopa_plugin.rules import Rules
from sopa_plugin.rules.start import tests_of
from sopa_plugin.rules.unknown import UnknownWords

_NO_NGRAMS = [0] * (1 + MOST_NGRAMS)


class OpenVocabularyTokenizer(PreTrainedTokenizerFast):
    """A word-level tokenizer that numbers unknown words by `UnknownWords`.

    Where these have n-grams, it also returns `ngrams`: a row for each unknown word of a text, its
    place among the text's tokens and `MOST_NGRAMS` numbers. At least one row, which may be zeros.

    Arguments:
        unknown_words: what `UnknownWords.to_json` gives; the other arguments are those of
            transformers' own class.
    """

    # no constructor: transformers would build the tokenizer of a class that has one anew
    @cached_property
    def by_answers(self) -> UnknownWords:
        """What numbers unknown words."""
        check_normalizer(self.backend_tokenizer)
        try:
            return UnknownWords.from_json(self.init_kwargs.get("unknown_words", {}))
        except ValueError as error:
            raise UserError(str(error)) from error

    def numbered(self, text: Text, encoding: Encoding, new_words: NewWords) -> list[int]:
        """The ids of a text's tokens, those of unknown words made the numbers that tell them."""
        numbers = encoding.ids
        if self.unk_token_id in numbers:
            for place, word in self._unknown(numbers, _spelt(text, encoding)):
                numbers[place] = self.by_answers.number(word, new_words)
        return numbers

    def _encode_plus(self, text: Any, *args: Any, **kwargs: Any) -> BatchEncoding:
        wanted = kwargs.pop("return_tensors", None)
        found = super()._encode_plus(text, *args, **kwargs)
        texts = [text] if isinstance(text, str) else text
        several = bool(found["input_ids"]) and isinstance(found["input_ids"][0], list)
        rows = found["input_ids"] if several else [found["input_ids"]]
        ngrams: list[list[list[int]]] = []
        for number, encoding in enumerate(found.encodings or ()):
            ngrams.append([])
            for place, word in self._unknown(rows[number], _spelt(texts[number], encoding)):
                rows[number][place], *of_word = self.by_answers.entry(word)
                ngrams[-1].append([sum(encoding.attention_mask[:place]), *of_word])
        if self.by_answers.ngram_buckets:
            alike = wanted is not None or kwargs["padding_strategy"] != "do_not_pad"
            least = max(1, *map(len, ngrams)) if alike and ngrams else 1
            ngrams = [each + [_NO_NGRAMS] * (least - len(each)) for each in ngrams]
            found["ngrams"] = ngrams if several else ngrams[0]
        found["input_ids"] = rows if several else rows[0]
        single = wanted is not None and not several
        return BatchEncoding(
            found.data, found.encodings, tensor_type=wanted, prepend_batch_axis=single
        )

    def _pad(self, encoded_inputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        padded = super()._pad(encoded_inputs, *args, **kwargs)
        if "ngrams" in padded:  # one example's, so as many as there are tokens
            missing = len(padded["input_ids"]) - len(padded["ngrams"])
            padded["ngrams"] = [*padded["ngrams"], *[_NO_NGRAMS] * missing]
        return padded

    def _unknown(self, ids: Sequence[int], words: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Places of the unknown among the tokens of a text, and the words as rules see them."""
        unknown, backend = self.unk_token_id, self.backend_tokenizer
        for place, (each, word) in enumerate(zip(ids, words, strict=True)):
            if each == unknown:
                yield place, normalized(backend, word)


def _spelt(text: Text, encoding: Encoding) -> list[str]:
    """The tokens as the text has them; those that were put around it are empty."""
    if isinstance(text, str):
        return [text[start:stop] for start, stop in encoding.offsets]
    places = zip(encoding.word_ids, encoding.offsets, strict=True)
    return ["" if word is None else text[word][start:stop] for word, (start, stop) in places]


class RuleTokenizer(OpenVocabularyTokenizer):
    """Its name in models that version 0.1 saved."""


def with_unknown_words(
    tokenizer: PreTrainedTokenizerBase, rules: Rules | None, ngram_buckets: int = 0
) -> OpenVocabularyTokenizer:
    """A word-level tokenizer that tells apart the words that it does not know.

    By rules, with rows for what these can say of such words, which take the place of those that it
    has of other rules; and by n-grams, if there are buckets, or it has n-grams already.

    Raises:
        UserError: it is not a tokenizer of whole words.
    """
    word_level: Any = tokenizer
    backend = json.loads(word_level.backend_tokenizer.to_str()) if tokenizer.is_fast else {}
    if backend.get("model", {}).get("type") != "WordLevel":
        raise UserError(
            "tokenizer: expected one of whole words (whitespace, words) with rules, or with "
            "embedder.ngram_buckets"
        )
    unknown: Any = tokenizer.unk_token_id
    before: dict[str, int] = {}
    if isinstance(tokenizer, OpenVocabularyTokenizer):
        before = tokenizer.by_answers.rows
        ngram_buckets = ngram_buckets or tokenizer.by_answers.ngram_buckets
    vocabulary = {
        word: row
        for word, row in backend["model"]["vocab"].items()
        if row == unknown or row not in before.values()
    }
    backend["model"]["vocab"] = vocabulary
    tests, named = ([], []) if rules is None else (tests_of(rules), rules.words)
    found = UnknownWords.of(tests, [*named, *vocabulary], unknown, len(vocabulary), ngram_buckets)
    for row in found.rows.values():
        if row != unknown:  # a name that is no token, with a blank inside
            vocabulary[f"[UNK {row}]"] = row
    names = [name for name in tokenizer.model_input_names if name != "ngrams"]
    return OpenVocabularyTokenizer(
        tokenizer_object=FastTokenizer.from_str(json.dumps(backend)),
        unknown_words=found.to_json(),
        pad_token=tokenizer.pad_token,
        unk_token=tokenizer.unk_token,
        split_special_tokens=tokenizer.split_special_tokens,
        model_input_names=[*names, "ngrams"] if ngram_buckets else names,
        **{key: each for key, each in tokenizer.init_kwargs.items() if key == "document_ids"},
    )


for _kind in (OpenVocabularyTokenizer, RuleTokenizer):  # each by the config of no model
    AutoTokenizer.register(type("_OfNone", (), {}), fast_tokenizer_class=_kind, exist_ok=True)
