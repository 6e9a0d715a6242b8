"""Documents tokenised once, and batches of them: packed, embedded or padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.data.ngrams import NewWords
from sopa_plugin.data.sources import check_encodable
from sopa_plugin.data.tokenizers import bounded, in_batches

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Integers = NDArray[np.int64]
Batch = dict[str, Tensor]
Text = str | Sequence[str]
"""A text, or its words where they are split already; a tokenizer may split these once more."""

EVALUATION_BATCH = 256
EVALUATION_TOKENS = 2**14  # of a padded batch: bounds the memory of an evaluation
LENGTH_NOISE = 0.1  # AllenNLP's default padding noise: lengths count as alike within 10 %


@dataclass(frozen=True)
class Documents:
    """Tokenised documents, end to end.

    Attributes:
        ids: token ids of all documents, `[tokens]`; document d is `ids[offsets[d]:offsets[d + 1]]`.
            Unknown words that n-grams tell apart have the numbers of `new_words`.
        offsets: where each document starts, `[documents + 1]`.
        labels: class numbers, `[documents]`; None where they are not known.
        vectors: vectors of all tokens, `[tokens, dim]`, where a frozen embedder has been run once
            for all epochs; may be a memory-mapped file.
        new_words: those with n-grams; None where a tokenizer tells none apart.
    """

    ids: Integers
    offsets: Integers
    labels: Integers | None = None
    vectors: NDArray[np.floating] | None = None
    new_words: NewWords | None = None

    @classmethod
    def encode(
        cls,
        texts: Sequence[Text],
        tokenizer: PreTrainedTokenizerBase,
        labels: Sequence[int] | None = None,
        new_words: NewWords | None = None,
    ) -> Documents:
        """Tokenises `texts`, in full: what is too long for its model, an embedder deals with.

        New words are added to `new_words`, if it is given.
        """
        if new_words is None:
            new_words = NewWords(len(tokenizer))
        ids, lengths = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for some in in_batches(texts):
            try:
                pieces = _token_ids(some, tokenizer, new_words)
            except (UnicodeEncodeError, TypeError):  # as the library finds no fault but this
                for number, text in enumerate(texts, start=1):
                    check_encodable("".join(text), f"text {number}")
                raise
            lengths.append(np.fromiter(map(len, pieces), np.int64, len(pieces)))
            ids.append(np.fromiter(chain.from_iterable(pieces), np.int64, lengths[-1].sum()))
        return cls(
            np.concatenate(ids),
            _offsets(np.concatenate(lengths)),
            None if labels is None else np.array(labels[:], dtype=np.int64),
            new_words=new_words,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Integers:
        """Number of tokens of each document, `[documents]`."""
        return np.diff(self.offsets)

    @property
    def known_ids(self) -> Integers:
        """`ids` of the vocabulary alone, `[tokens]`: of a new word its row there."""
        return self._split(self.ids)[0]

    @cached_property
    def _num_ids(self) -> int:
        return int(self.ids.max(initial=-1)) + 1

    def packed(self, documents: Integers) -> Batch:
        """Distinct `token_ids [rows]`, `index [tokens]`, `offsets [batch + 1]` and labels.

        With new words also `ngrams [new rows, 1 + MOST_NGRAMS]`: which row, and its n-grams.
        """
        tokens, offsets = self.tokens_of(documents)
        ids = self.ids[tokens]
        # What np.unique does, without sorting.
        used = np.zeros(self._num_ids, dtype=np.bool_)
        used[ids] = True
        distinct = np.flatnonzero(used)
        row = np.empty(self._num_ids, dtype=np.int64)
        row[distinct] = np.arange(len(distinct))
        token_ids, ngrams = self._split(distinct)
        return self._batch(
            documents, token_ids=token_ids, index=row[ids], offsets=offsets, **ngrams
        )

    def embedded(self, documents: Integers) -> Batch:
        """Vectors `rows [tokens, dim]`, `index [tokens]`, `offsets [batch + 1]` and labels."""
        assert self.vectors is not None
        tokens, offsets = self.tokens_of(documents)
        rows = np.asarray(self.vectors[tokens])
        return self._batch(documents, rows=rows, index=np.arange(len(tokens)), offsets=offsets)

    def padded(self, documents: Integers, padding: int) -> Batch:
        """`input_ids` and `attention_mask [batch, longest or 1]`, and labels.

        With new words also `ngrams [new tokens, 1 + MOST_NGRAMS]`: which of the tokens that are not
        padding, and its n-grams.
        """
        tokens, offsets = self.tokens_of(documents)
        lengths = np.diff(offsets)
        mask = np.arange(max(lengths.max(initial=0), 1)) < lengths[:, None]
        input_ids = np.full(mask.shape, padding, dtype=np.int64)
        input_ids[mask], ngrams = self._split(self.ids[tokens])
        mask = mask.astype(np.int64)
        return self._batch(documents, input_ids=input_ids, attention_mask=mask, **ngrams)

    def tokens_of(self, documents: Integers) -> tuple[Integers, Integers]:
        """Where the tokens of some documents are, `[tokens]`, and those documents' own offsets."""
        offsets = _offsets(self.lengths[documents])
        shifts = self.offsets[documents] - offsets[:-1]
        return np.arange(offsets[-1]) + np.repeat(shifts, np.diff(offsets)), offsets

    def _split(self, ids: Integers) -> tuple[Integers, dict[str, Integers]]:
        """`ids [...]` of the vocabulary alone, and the places and n-grams of those that are new."""
        if self.new_words is None or not self.new_words.words:
            return ids, {}
        places = np.flatnonzero(ids >= self.new_words.first)
        entries = self.new_words.entries()[ids[places] - self.new_words.first]
        known = ids.copy()
        known[places] = entries[:, 0]
        entries[:, 0] = places  # a copy
        return known, {"ngrams": entries}

    def _batch(self, documents: Integers, **arrays: NDArray) -> Batch:
        batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if self.labels is not None:
            batch["labels"] = torch.from_numpy(self.labels[documents])
        return batch


def are_split(texts: Sequence[Text]) -> bool:
    """Whether they are words rather than texts; they are all one or all the other."""
    return len(texts) > 0 and not isinstance(texts[0], str)


def _token_ids(
    texts: list[Any], tokenizer: PreTrainedTokenizerBase, new_words: NewWords
) -> list[list[int]]:
    """What calling the tokenizer gives, in half the time where it is one of `tokenizers`."""
    split, backend = are_split(texts), getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        given = tokenizer(texts, is_split_into_words=split, verbose=False)
        return given["input_ids"]  # type: ignore[no-any-return]
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = tokenizer.split_special_tokens
    numbered = getattr(tokenizer, "numbered", None)  # of one that tells unknown words apart
    if numbered is None:
        found = bounded(lambda some: backend.encode_batch_fast(some, split), texts)
        return [encoding.ids for encoding in found]
    found = bounded(lambda some: backend.encode_batch(some, split), texts)
    return [numbered(text, each, new_words) for text, each in zip(texts, found, strict=True)]


def _offsets(lengths: Integers) -> Integers:
    return np.concatenate(([0], np.cumsum(lengths)))


def training_batches(
    lengths: Integers,
    batch_size: int,
    seed: int,
    epoch: int,
    num_processes: int = 1,
    by_length: bool = True,
) -> list[list[Integers]]:
    """One epoch of steps, each a list with one batch of document numbers a process.

    Every document comes exactly once. The order depends on `seed` and `epoch` alone. A step takes
    `batch_size` documents a process; the last step shares out what is left, which the step before
    takes over where it is less than one document a process.

    Arguments:
        lengths: tokens of each document, `[documents]`.
        batch_size: documents of a batch.
        seed: of the order.
        epoch: number of the epoch.
        num_processes: batches of a step.
        by_length: whether the documents of a step are of like length (within `LENGTH_NOISE`).
    """
    if len(lengths) < num_processes:
        raise ValueError(f"{len(lengths)} documents cannot be shared by {num_processes} processes")
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(lengths))
    step_size = batch_size * num_processes
    if by_length:
        noise = random.uniform(1 - LENGTH_NOISE, 1 + LENGTH_NOISE, len(lengths))
        order = order[np.argsort((lengths * noise)[order], kind="stable")]
    cuts = np.arange(step_size, len(order), step_size)
    if len(cuts) and len(order) - cuts[-1] < num_processes:
        cuts = cuts[:-1]
    steps = np.split(order, cuts)
    return [np.array_split(steps[i], num_processes) for i in random.permutation(len(steps))]


def evaluation_batches(
    lengths: Integers, batch_size: int = EVALUATION_BATCH, max_tokens: int = EVALUATION_TOKENS
) -> Iterator[Integers]:
    """Document numbers in batches of like length, longest first; every document comes once.

    A batch has at most `batch_size` documents and, padded, at most `max_tokens` tokens, unless a
    single document is longer.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        size = min(batch_size, max(max_tokens // longest, 1))
        yield order[start : start + size]
        start += size
