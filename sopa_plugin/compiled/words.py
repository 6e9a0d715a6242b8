"""Text to rows of a table as a saved tokenizer numbers its tokens, without transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from tokenizers import Tokenizer, normalizers

from sopa_plugin.data.ngrams import NewWords
from sopa_plugin.data.tokenizers import (
    BLANKS,
    UNKNOWN,
    bounded,
    check_normalizer,
    max_tokens_of,
    normalized,
)
from sopa_plugin.rules.unknown import UnknownWords
from sopa_plugin.wfsa.kernels.threads import Compiled

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

_FREE = -1  # in a slot of the hash table that holds no word's id
_ON_BLANKS = {
    "type": "Split",
    "pattern": {"Regex": BLANKS},
    "behavior": "Removed",
    "invert": False,
}


def words_of(tokenizer: str, split_special_tokens: bool) -> Words | Pieces:
    """What splits text as a tokenizer does: fast code of ours if that is on blanks alone.

    Arguments:
        tokenizer: the whole tokenizer as JSON, as `tokenizer.json` has it.
        split_special_tokens: whether special tokens that a text spells out are ordinary text.
    """
    parts = json.loads(tokenizer)
    normalizer = parts["normalizer"] or {"type": "Sequence", "normalizers": []}
    steps = normalizer.get("normalizers", [normalizer])
    max_tokens = max_tokens_of(steps[0]) if steps else None
    folding = {each["type"] for each in steps[0 if max_tokens is None else 1 :]}
    vocabulary: dict[str, int] = parts["model"]["vocab"]
    plain = (
        parts["model"]["type"] == "WordLevel"
        and parts["pre_tokenizer"] == _ON_BLANKS
        and folding <= {"Lowercase"}
        and Tokenizer.from_str(tokenizer).num_special_tokens_to_add(False) == 0
        and split_special_tokens
        and all(each["special"] for each in parts["added_tokens"])
        and sorted(vocabulary.values()) == list(range(len(vocabulary)))
    )
    if not plain:
        return Pieces(tokenizer, split_special_tokens)
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    return Words(words, vocabulary[parts["model"]["unk_token"]], "Lowercase" in folding, max_tokens)


class Pieces:
    """Tokenizes by the `tokenizers` library, as a model's own tokenizer does; see `words_of`."""

    def __init__(self, tokenizer: str, split_special_tokens: bool) -> None:
        self.tokenizer = tokenizer
        self.split_special_tokens = split_special_tokens
        self._tokenizer = Tokenizer.from_str(tokenizer)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = split_special_tokens
        self.num_ids = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        self.unknown = int(self._tokenizer.token_to_id(UNKNOWN) or 0)

    def split(self, text: str) -> list[str]:
        """The tokens of a text as the vocabulary would have them."""
        (found,) = bounded(self._tokenizer.encode_batch, [text])
        words = (text[start:stop] for start, stop in found.offsets)
        return [normalized(self._tokenizer, word) for word in words]

    def encode(self, texts: Sequence[str]) -> tuple[Integers, Integers]:
        """Ids of all tokens `[M]` of the documents, and where each starts in them `[B + 1]`."""
        found = bounded(self._tokenizer.encode_batch_fast, list(texts))
        pieces = [encoding.ids for encoding in found]
        offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
        np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
        ids = np.fromiter(chain.from_iterable(pieces), np.int64, int(offsets[-1]))
        return ids, offsets


class Words:
    """Splits text and numbers its words exactly as the saved whitespace tokenizer does.

    Arguments:
        words: the vocabulary, in the order of its ids.
        unknown: id of words that are not in it.
        lowercase: whether text is lower-cased first.
        max_tokens: how many words of a text are kept; None keeps all.
    """

    def __init__(
        self, words: Sequence[str], unknown: int, lowercase: bool, max_tokens: int | None = None
    ) -> None:
        self.words = list(words)
        self.num_ids = len(self.words)
        if not 0 <= unknown < self.num_ids:
            raise ValueError(f"unknown: expected one of {self.num_ids} words, found {unknown}")
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens: expected 1 at least, found {max_tokens}")
        self.unknown = unknown
        self.lowercase = lowercase
        self.max_tokens = max_tokens
        self._lower = normalizers.Lowercase().normalize_str
        self._letters, self._bounds = _join(self.words)
        # At most half full, so that a search seldom looks into more than two slots.
        self._slots = np.full(2 << len(self.words).bit_length(), _FREE, dtype=np.int32)
        _fill(self._letters, self._bounds, self._slots)

    def encode(self, texts: Sequence[str]) -> tuple[Integers, Integers]:
        """Ids of all words `[M]` of the documents, and where each starts in them `[B + 1]`."""
        letters, bounds = _join(self._lowered(texts) if self.lowercase else texts)
        ids = np.empty((len(letters) + len(texts)) // 2, dtype=np.int64)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        vocabulary = self._letters, self._bounds, self._slots
        most = len(ids) if self.max_tokens is None else self.max_tokens
        count = _encode(letters, bounds, *vocabulary, self.unknown, most, ids, offsets)
        return ids[:count], offsets

    def spelt(self, text: str) -> list[str]:
        """The words of a text as it has them."""
        return [word for word in re.split(BLANKS, text) if word][: self.max_tokens]

    def split(self, text: str) -> list[str]:
        """The words of a text as the vocabulary would have them."""
        (lowered,) = self._lowered([text]) if self.lowercase else [text]
        return self.spelt(lowered)

    def _lowered(self, texts: Sequence[str]) -> list[str]:
        # Beyond ASCII, Python and the tokenizer differ: final sigma, newer Unicode letters.
        return [text.lower() if text.isascii() else self._lower(text) for text in texts]


class WithUnknown:
    """Numbers words that are not in the vocabulary by what rules say of them, or as new words.

    Arguments:
        words: splits text, and numbers the words that it knows.
        unknown_words: numbers the others.
    """

    def __init__(self, words: Words | Pieces, unknown_words: UnknownWords) -> None:
        self.words, self.unknown_words = words, unknown_words
        if isinstance(words, Pieces):
            check_normalizer(Tokenizer.from_str(words.tokenizer))
        self.num_ids = words.num_ids

    def encode(
        self, texts: Sequence[str], new_words: NewWords | None = None
    ) -> tuple[Integers, Integers, Integers]:
        """Ids of all words `[M]`, where each document starts in them `[B + 1]`, and new words.

        New words have n-grams, and ids from `num_ids` on; see `NewWords.entries`. They are added to
        `new_words`, if it is given.
        """
        ids, offsets = self.words.encode(texts)
        new_words = NewWords(self.num_ids) if new_words is None else new_words
        places = np.flatnonzero(ids == self.words.unknown)
        documents = np.searchsorted(offsets, places, side="right") - 1
        split: dict[int, list[str]] = {}
        for place, document in zip(places.tolist(), documents.tolist(), strict=True):
            if document not in split:
                split = {document: self.words.split(texts[document])}
            word = split[document][place - int(offsets[document])]
            ids[place] = self.unknown_words.number(word, new_words)
        return ids, offsets, new_words.entries()

    def every_kind(self) -> tuple[Integers, Integers, Integers | None]:
        """A document with a word of each kind that is not in the vocabulary, as of `encode`."""
        entries = np.array(self.unknown_words.entries(), dtype=np.int64)
        offsets = np.array([0, len(entries)])
        if not self.unknown_words.ngram_buckets:
            return entries[:, 0], offsets, None
        return self.num_ids + np.arange(len(entries)), offsets, entries


def _join(texts: Sequence[str]) -> tuple[Bytes, Integers]:
    """All texts in UTF-8, end to end, and where each starts, `[texts + 1]`."""
    encoded = [text.encode() for text in texts]
    bounds = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=bounds[1:])
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), bounds


# FNV-1a, 64 bits (Fowler, Noll and Vo): a multiplication a byte, and good on short words.
_OFFSET_BASIS = np.uint64(14695981039346656037)
_PRIME = np.uint64(1099511628211)


@njit
def _hash(text: Any, start: Any, stop: Any) -> Any:
    value = _OFFSET_BASIS
    for i in range(start, stop):
        value = (value ^ np.uint64(text[i])) * _PRIME
    return value


@njit
def _slot(
    text: Any,
    start: Any,
    stop: Any,
    letters: Any,
    bounds: Any,
    slots: Any,
) -> Any:
    """The slot of the word `text[start:stop]`, or the free one where it belongs."""
    last = len(slots) - 1
    slot = np.int64(_hash(text, start, stop) & np.uint64(last))
    while slots[slot] != _FREE:
        first, size = bounds[slots[slot]], bounds[slots[slot] + 1] - bounds[slots[slot]]
        same = size == stop - start
        i = 0
        while same and i < size:
            same = letters[first + i] == text[start + i]
            i += 1
        if same:
            break
        slot = (slot + 1) & last
    return slot


@Compiled
def _fill(letters: Any, bounds: Any, slots: Any) -> None:
    """Enters each word of the vocabulary."""
    for word in range(len(bounds) - 1):
        slots[_slot(letters, bounds[word], bounds[word + 1], letters, bounds, slots)] = word


@Compiled
def _encode(
    text: Any,
    documents: Any,
    letters: Any,
    bounds: Any,
    slots: Any,
    unknown: int,
    most: int,
    ids: Any,
    offsets: Any,
) -> int:
    """Fills `ids` and `offsets` for documents `text[documents[d]:documents[d + 1]]`; the words.

    Of each document the first `most` words are taken.
    """
    count = 0
    for document in range(len(documents) - 1):
        i, stop = documents[document], documents[document + 1]
        while i < stop and count - offsets[document] < most:
            start = i
            while i < stop and text[i] != 32 and not 9 <= text[i] <= 13:
                i += 1
            if i > start:
                word = slots[_slot(text, start, i, letters, bounds, slots)]
                ids[count] = unknown if word == _FREE else word
                count += 1
            i += 1
        offsets[document + 1] = count
    return count
