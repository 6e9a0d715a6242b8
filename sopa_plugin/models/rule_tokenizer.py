"""The tokenizer of a model with rules: unknown words have the row of what rules say of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer as FastTokenizer
from transformers import (
    AutoTokenizer,
    BatchEncoding,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from sopa_plugin.data.tokenizers import normalized
from sopa_plugin.rules import Rules
from sopa_plugin.rules.start import tests_of
from sopa_plugin.rules.unknown import UnknownWords


class RuleTokenizer(PreTrainedTokenizerFast):
    """A word-level tokenizer that numbers unknown words by `UnknownWords`.

    Arguments:
        unknown_words: what `UnknownWords.to_json` gives; the other arguments are those of
            transformers' own class.
    """

    # no constructor: transformers would build the tokenizer of a class that has one anew
    @cached_property
    def by_answers(self) -> UnknownWords:
        """What numbers unknown words."""
        return UnknownWords.from_json(self.init_kwargs["unknown_words"])

    def with_unknown(self, text: str, ids: Sequence[int]) -> list[int]:
        """The `ids` of a text's tokens, those of unknown words made the rows of their answers."""
        if self.unk_token_id not in ids:
            return list(ids)
        offsets = self.backend_tokenizer.encode(text, add_special_tokens=False).offsets
        return self._numbered(ids, [text[start:stop] for start, stop in offsets])

    def _encode_plus(self, text: Any, *args: Any, **kwargs: Any) -> BatchEncoding:
        wanted = kwargs.pop("return_tensors", None)
        found = super()._encode_plus(text, *args, **kwargs)
        texts = [text] if isinstance(text, str) else text
        several = bool(found["input_ids"]) and isinstance(found["input_ids"][0], list)
        rows = found["input_ids"] if several else [found["input_ids"]]
        for number, encoding in enumerate(found.encodings or ()):
            given = texts[number]
            words = (
                [given[start:stop] for start, stop in encoding.offsets]
                if isinstance(given, str)
                else [given[place] if place is not None else "" for place in encoding.word_ids]
            )
            rows[number] = self._numbered(rows[number], words)
        found["input_ids"] = rows if several else rows[0]
        single = wanted is not None and not several
        return BatchEncoding(
            found.data, found.encodings, tensor_type=wanted, prepend_batch_axis=single
        )

    def _numbered(self, ids: Sequence[int], words: Sequence[str]) -> list[int]:
        unknown, backend = self.unk_token_id, self.backend_tokenizer
        return [
            self.by_answers.row(normalized(backend, word)) if each == unknown else each
            for each, word in zip(ids, words, strict=True)
        ]


def with_unknown_words(tokenizer: PreTrainedTokenizerBase, rules: Rules) -> RuleTokenizer:
    """A word-level tokenizer with rows for what rules can say of words that it does not know.

    They take the place of those that it has of other rules.
    """
    word_level: Any = tokenizer
    backend = json.loads(word_level.backend_tokenizer.to_str())
    unknown: Any = tokenizer.unk_token_id
    before = tokenizer.by_answers.rows.values() if isinstance(tokenizer, RuleTokenizer) else ()
    vocabulary = {
        word: row
        for word, row in backend["model"]["vocab"].items()
        if row == unknown or row not in before
    }
    backend["model"]["vocab"] = vocabulary
    known = [*rules.words, *vocabulary]
    found = UnknownWords.of(tests_of(rules), known, unknown, len(vocabulary))
    for row in found.rows.values():
        if row != unknown:  # a name that is no token, with a blank inside
            vocabulary[f"[UNK {row}]"] = row
    return RuleTokenizer(
        tokenizer_object=FastTokenizer.from_str(json.dumps(backend)),
        unknown_words=found.to_json(),
        pad_token=tokenizer.pad_token,
        unk_token=tokenizer.unk_token,
        split_special_tokens=tokenizer.split_special_tokens,
        model_input_names=tokenizer.model_input_names,
    )


class _OfNoModel:
    """What transformers wants to know a tokenizer by."""


AutoTokenizer.register(_OfNoModel, fast_tokenizer_class=RuleTokenizer, exist_ok=True)
