"""Words that a vocabulary lacks, told apart by their character n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

SIZES = (3, 4, 5)
"""Characters of an n-gram. fastText (Bojanowski et al., TACL 2017) takes 3 to 6."""

MOST_NGRAMS = 48
"""N-grams of a word, of longer ones the first: of 18 characters all."""


def character_ngrams(word: str, buckets: int) -> list[int]:
    """The hashed n-grams of a word, its begin and end marked: `MOST_NGRAMS` numbers from 1 on.

    0 stands for none. Those of the begin come first. The hash is CRC-32 of UTF-8, so that a saved
    model finds them again.
    """
    marked = f"<{word}>"
    pieces = (
        marked[start : start + size]
        for start in range(len(marked) - min(SIZES) + 1)
        for size in SIZES
        if start + size <= len(marked)
    )
    found = [crc32(piece.encode()) % buckets + 1 for piece in islice(pieces, MOST_NGRAMS)]
    return found + [0] * (MOST_NGRAMS - len(found))


class NewWords:
    """Words that a vocabulary lacks, numbered after it in the order in which they are met.

    Arguments:
        first: number of the first: the size of the vocabulary.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.words: dict[str, int] = {}
        self._entries: list[Sequence[int]] = []
        self._array = np.empty((0, 1 + MOST_NGRAMS), dtype=np.int64)

    def number(self, word: str, entry: Sequence[int]) -> int:
        """The number of a word, whose `entry` is its row in the vocabulary, and its n-grams."""
        number = self.words.setdefault(word, self.first + len(self.words))
        if number == self.first + len(self._entries):
            self._entries.append(entry)
        return number

    def entries(self) -> NDArray[np.int64]:
        """Of each word its row in the vocabulary, and its n-grams: `[words, 1 + MOST_NGRAMS]`."""
        if fresh := self._entries[len(self._array) :]:
            self._array = np.concatenate([self._array, np.array(fresh, dtype=np.int64)])
        return self._array
