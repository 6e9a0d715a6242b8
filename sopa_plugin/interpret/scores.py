"""Document scores of a whole data set, kept in a temporary file instead of memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.interpret.leave_one_out import LeaveOneOut
from sopa_plugin.interpret.subject import Subject

CHUNK = 2048
"""Documents whose scores are in memory at once."""


class DocumentScores:
    """The operator's scores of every pattern in every document, `[documents, K]`.

    They are read twice: a pattern's best and mean are known only at the end, and whether it fires
    in a document depends on them.

    Attributes:
        documents: how many there are.
        best: the highest score of each pattern, as users see it; -inf where it never matches.
    """

    def __init__(self, subject: Subject) -> None:
        patterns = len(subject.names)
        self.subject = subject
        self.documents = 0
        self.best = np.full(patterns, -np.inf)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as this object)
        self._dtype = np.dtype(np.float32)
        self._matched = np.zeros(patterns, dtype=np.int64)
        self._sum = np.zeros(patterns)

    def add(self, scores: Tensor) -> None:
        """Takes the scores `[B, K]` of some more documents."""
        held = np.ascontiguousarray(scores.cpu().numpy())
        self._dtype = held.dtype
        self._file.write(held.tobytes())
        self.documents += len(held)
        shown, matched = self._shown(scores)
        self._matched += matched.sum(axis=0)
        self._sum += np.where(matched, shown, 0.0).sum(axis=0)
        best = np.where(matched, shown, -np.inf).max(axis=0, initial=-np.inf)
        self.best = np.maximum(self.best, best)

    @property
    def mean(self) -> NDArray:
        """The mean score over the documents that a pattern matches; -inf where there are none."""
        mean = self._sum / np.maximum(self._matched, 1)
        return np.where(self._matched > 0, mean, -np.inf)

    @property
    def matched(self) -> NDArray:
        """The share of documents that a pattern matches."""
        return self._matched / max(self.documents, 1)

    def document_vector_means(self) -> Tensor:
        """Means of what the head sees, `[dim]`."""
        total = torch.zeros(())
        for scores in self._chunks():
            with torch.no_grad():
                total = total + self.subject.document_vectors(scores).double().sum(0)
        return total / max(self.documents, 1)

    def firing(self, leave_one_out: LeaveOneOut | None) -> tuple[NDArray, NDArray]:
        """The share of documents in which each pattern fires `[K]`, and its effect there.

        A pattern fires where its score lies nearer to its best than to its mean. The effect
        `[K, labels]` is its mean contribution; of no labels where no head is read.
        """
        labels = len(self.subject.labels) if leave_one_out else 0
        count = np.zeros(len(self.best), dtype=np.int64)
        total = np.zeros((len(self.best), labels))
        least = (self.best + self.mean) / 2
        for scores in self._chunks():
            shown, matched = self._shown(scores)
            documents, patterns = np.nonzero(matched & (shown >= least))
            np.add.at(count, patterns, 1)
            if leave_one_out:
                pairs = torch.from_numpy(documents), torch.from_numpy(patterns)
                np.add.at(total, patterns, leave_one_out.of_pairs(scores, *pairs))
        return count / max(self.documents, 1), total / np.maximum(count, 1)[:, None]

    def _chunks(self) -> Iterator[Tensor]:
        """All scores again, some documents at a time."""
        self._file.seek(0)
        size = CHUNK * len(self.best) * self._dtype.itemsize
        while data := self._file.read(size):
            found = np.frombuffer(data, dtype=self._dtype).reshape(-1, len(self.best))
            yield torch.tensor(found).to(self.subject.encoder.arcs.weight.device)

    def _shown(self, scores: Tensor) -> tuple[NDArray, NDArray]:
        """Scores as users see them, and where there is a match."""
        algebra = self.subject.encoder.options.algebra
        scores = scores.double()
        return algebra.to_score(scores).cpu().numpy(), (scores != algebra.zero).cpu().numpy()
