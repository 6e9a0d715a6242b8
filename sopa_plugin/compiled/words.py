"""Text to word ids, without a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from tokenizers import normalizers
from torch import Tensor

from sopa_plugin.wfsa.kernels.threads import Compiled

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

_FREE = -1  # in a slot of the hash table that holds no word's id


class Words:
    """Splits text and numbers its words exactly as the saved whitespace tokenizer does.

    Arguments:
        words: the vocabulary, in the order of its ids.
        unknown: id of words that are not in it.
        lowercase: whether text is lower-cased first.
    """

    def __init__(self, words: Sequence[str], unknown: int, lowercase: bool) -> None:
        self.words = list(words)
        self.unknown = unknown
        self.lowercase = lowercase
        self._lower = normalizers.Lowercase().normalize_str
        self._letters, self._bounds = _join(self.words)
        # At most half full, so that a search seldom looks into more than two slots.
        self._slots = np.full(2 << len(self.words).bit_length(), _FREE, dtype=np.int32)
        _fill(self._letters, self._bounds, self._slots)

    def encode(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Ids of all words `[M]` of the documents, and where each starts in them `[B + 1]`."""
        letters, bounds = _join(self._lowered(texts) if self.lowercase else texts)
        ids = np.empty((len(letters) + len(texts)) // 2, dtype=np.int64)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        vocabulary = self._letters, self._bounds, self._slots
        count = _encode(letters, bounds, *vocabulary, self.unknown, ids, offsets)
        return torch.from_numpy(ids[:count]), torch.from_numpy(offsets)

    def _lowered(self, texts: Sequence[str]) -> list[str]:
        # Beyond ASCII, Python and the tokenizer differ: final sigma, newer Unicode letters.
        return [text.lower() if text.isascii() else self._lower(text) for text in texts]


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
    ids: Any,
    offsets: Any,
) -> int:
    """Fills `ids` and `offsets` for documents `text[documents[d]:documents[d + 1]]`; the words."""
    count = 0
    for document in range(len(documents) - 1):
        i, stop = documents[document], documents[document + 1]
        while i < stop:
            start = i
            # The six ASCII blanks and nothing else: a no-break space is part of a word.
            while i < stop and text[i] != 32 and not 9 <= text[i] <= 13:
                i += 1
            if i > start:
                word = slots[_slot(text, start, i, letters, bounds, slots)]
                ids[count] = unknown if word == _FREE else word
                count += 1
            i += 1
        offsets[document + 1] = count
    return count
