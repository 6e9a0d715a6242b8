"""What is read: an encoder of soft patterns, where its token vectors come from, what uses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.match import pattern_names, unknown_pattern

VOCABULARY_CHUNK = 4096


class Encoded(NamedTuple):
    """Some documents as an encoder takes them (see `sopa_plugin.encoders.packing`).

    Where the arc scores of all words are known beforehand, `arcs` holds them and `rows` is empty:
    scores `[words, R]` (and a last row for boundary tokens) and epsilon scores `[Q]`.
    """

    rows: Tensor  # [rows, dim]
    index: Tensor  # type: ignore[assignment]  # [tokens]
    offsets: Tensor  # [documents + 1]
    ids: NDArray[np.int64]  # [tokens]; equal where tokens are the same word
    arcs: tuple[Tensor, Tensor] | None = None


class Subject(ABC):
    """An encoder with what stands before and behind it.

    Attributes:
        encoder: the soft patterns; of a CNN, those that it is equal to.
        names: the patterns' names, in the encoder's order.
        columns: which number of the document vector each pattern's score becomes.
        labels: the classes; empty where no head is read.
    """

    encoder: SopaEncoder
    columns: Sequence[int]
    labels: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The patterns' names, in the encoder's order."""
        return pattern_names(self.encoder.layout.lengths)

    def number(self, name: str) -> int:
        """Which pattern `name` is.

        Raises:
            UserError: There is no such pattern.
        """
        if name not in self.names:
            raise unknown_pattern(name, self.names)
        return self.names.index(name)

    def prepare(self) -> None:  # noqa: B027  (there may be nothing to do)
        """Makes ready to read many documents."""

    @abstractmethod
    def read(self, documents: Sequence[Any]) -> Encoded:
        """Documents split into tokens and embedded."""

    @abstractmethod
    def embed(self, documents: Sequence[NDArray[np.int64]]) -> Encoded:
        """Documents given as token ids, embedded."""

    @abstractmethod
    def words(self, documents: Sequence[Any]) -> list[tuple[str, ...]]:
        """The tokens of documents as people read them."""

    @property
    def contextual(self) -> bool:
        """Whether a token's vector depends on its document, so that there is no vocabulary."""
        return False

    def vocabulary(self) -> Iterator[tuple[list[str], Tensor]]:
        """All known words with their vectors, in chunks; none where vectors depend on context."""
        return iter(())

    def is_special(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which tokens the tokenizer put around the document, to be kept whatever is dropped."""
        return np.zeros(len(ids), dtype=bool)

    def document_vectors(self, scores: Tensor) -> Tensor:
        """What the head sees, `[B, dim]`, from the operator's document scores `[B, K]`."""
        weight = self.encoder.arcs.weight
        return self.encoder.document_vector(scores, weight.dtype)  # type: ignore[no-any-return]

    def logits(self, vectors: Tensor) -> Tensor:
        """Class scores `[B, labels]` of document vectors `[B, dim]`."""
        raise UserError("this encoder has no head, so nothing contributes to a class")

    @property
    def prior(self) -> Tensor | None:
        """Class scores of a document without a token, `[labels]`, where no part is asked."""
        return None

    @torch.no_grad()
    def classify(self, encoded: Encoded, scores: Tensor) -> Tensor:
        """Class scores `[B, labels]` of documents with the operator's `scores [B, K]`."""
        logits = self.logits(self.document_vectors(scores))
        if self.prior is None:
            return logits
        empty = encoded.offsets.diff() == 0
        return torch.where(empty[:, None], self.prior.to(logits), logits)


class EncoderSubject(Subject):
    """A bare encoder, with word vectors and, if wanted, a head of any kind.

    Documents are sequences of tokens. Encoder and head are put into evaluation mode.

    Arguments:
        encoder: the patterns.
        vectors: each word's vector (other words have the zero vector), or a function from the
            tokens of a document to their vectors `[tokens, dim]`.
        head: a function from document vectors to class scores.
        labels: the classes, in the head's order.
    """

    def __init__(
        self,
        encoder: SopaEncoder,
        vectors: Mapping[str, ArrayLike] | Callable[[Sequence[str]], ArrayLike],
        head: Callable[[Tensor], Tensor] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        if (head is None) != (not labels):
            raise UserError("a head and its labels come together; found one of them")
        self.encoder = encoder.eval()
        self.columns = range(encoder.get_output_dim())
        self.labels = tuple(labels)
        self._vectors = vectors
        self._head = head.eval() if isinstance(head, nn.Module) else head
        self._ids: dict[str, int] = {}
        self._words: list[str] = []

    def read(self, documents: Sequence[Sequence[str]]) -> Encoded:
        """Documents given as tokens, embedded."""
        return self.embed(
            [np.array([self._id(word) for word in words], dtype=np.int64) for words in documents]
        )

    def embed(self, documents: Sequence[NDArray[np.int64]]) -> Encoded:
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *documents])
        offsets = np.cumsum([0, *(len(document) for document in documents)])
        if isinstance(self._vectors, Mapping):
            distinct, index = np.unique(ids, return_inverse=True)
            rows = self._rows([self._words[number] for number in distinct])
        else:
            index = np.arange(len(ids))
            found = [
                self._tensor(self._vectors([self._words[number] for number in document]))
                for document in documents
                if len(document)
            ]
            rows = torch.cat([*found, self._rows([])])
        return Encoded(rows, torch.from_numpy(index), torch.from_numpy(offsets), ids)

    def words(self, documents: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        return [tuple(document) for document in documents]

    def vocabulary(self) -> Iterator[tuple[list[str], Tensor]]:
        if isinstance(self._vectors, Mapping):
            words = list(self._vectors)
            for start in range(0, len(words), VOCABULARY_CHUNK):
                chunk = words[start : start + VOCABULARY_CHUNK]
                yield chunk, self._rows(chunk)

    @property
    def contextual(self) -> bool:
        return not isinstance(self._vectors, Mapping)

    def logits(self, vectors: Tensor) -> Tensor:
        return self._head(vectors) if self._head else super().logits(vectors)

    def _id(self, word: str) -> int:
        number = self._ids.setdefault(word, len(self._words))
        if number == len(self._words):
            self._words.append(word)
        return number

    def _rows(self, words: Sequence[str]) -> Tensor:
        assert isinstance(self._vectors, Mapping) or not words
        rows = torch.zeros(len(words), self.encoder.get_input_dim())
        for place, word in enumerate(words):
            if word in self._vectors:  # type: ignore[operator]
                rows[place] = self._tensor(self._vectors[word])  # type: ignore[index]
        return rows

    @staticmethod
    def _tensor(values: ArrayLike) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=torch.float32)
