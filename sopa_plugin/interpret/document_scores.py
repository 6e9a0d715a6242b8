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


class DocumentScores:
    """The operator's scores of every pattern in every document, `[documents, K]`.

    They are read twice: a pattern's best and mean are known only at the end, and whether it fires
    in a document depends on them.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.documents = 0
        patterns = len(subject.names)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as this object)
        self._dtype = np.dtype(np.float32)
        self._matched = np.zeros(patterns, dtype=np.int64)
        self._sum = np.zeros(patterns)
        self._best = np.full(patterns, -np.inf)

    def add(self, scores: Tensor) -> None:
        """Takes the scores `[B, K]` of some more documents."""
        held = scores.cpu().numpy()
        if not self.documents:
            self._dtype = held.dtype
        self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(held).tobytes())
        self.documents += len(held)
        shown, matched = self._shown(scores)
        self._matched += matched.sum(axis=0)
        self._sum += np.where(matched, shown, 0.0).sum(axis=0)
        self._best = np.maximum(
            self._best, np.where(matched, shown, -np.inf).max(axis=0, initial=-np.inf)
        )

    @property
    def best(self) -> NDArray:
        """The highest score of each pattern, as users see it; -inf where it never matches."""
        return self._best

    @property
    def mean(self) -> NDArray:
        """The mean score over the documents that a pattern matches; -inf where there are none."""
        mean = self._sum / np.maximum(self._matched, 1)
        return np.where(self._matched > 0, mean, -np.inf)

    @property
    def matched(self) -> NDArray:
        """The share of documents that a pattern matches."""
        return self._matched / max(self.documents, 1)

    def chunks(self) -> Iterator[Tensor]:
        """All scores again, some documents at a time."""
        patterns = len(self.subject.names)
        size = CHUNK * patterns * self._dtype.itemsize
        self._file.seek(0)
        while data := self._file.read(size):
            found = np.frombuffer(data, dtype=self._dtype).reshape(-1, patterns)
            yield torch.from_numpy(found.copy())

    def document_vector_means(self) -> Tensor:
        """Means of what the head sees, `[dim]`."""
        total, documents = torch.zeros(()), 0
        for scores in self.chunks():
            with torch.no_grad():
                total = total + self.subject.document_vectors(self._placed(scores)).double().sum(0)
            documents += len(scores)
        return total / max(documents, 1)

    def fires(self, scores: Tensor) -> NDArray:
        """Where a score lies nearer to the pattern's best than to its mean, bool `[B, K]`."""
        shown, matched = self._shown(scores)
        fires: NDArray = matched & (shown >= (self.best + self.mean) / 2)
        return fires

    def firing(self, leave_one_out: LeaveOneOut | None) -> tuple[NDArray, NDArray]:
        """The share of documents in which each pattern fires `[K]`, and its effect there.

        The effect `[K, labels]` is its mean contribution; of no labels where no head is read.
        """
        labels = len(self.subject.labels) if leave_one_out else 0
        count = np.zeros(len(self.subject.names), dtype=np.int64)
        total = np.zeros((len(self.subject.names), labels))
        for scores in self.chunks():
            documents, patterns = np.nonzero(self.fires(scores))
            np.add.at(count, patterns, 1)
            if leave_one_out:
                pairs = torch.from_numpy(documents), torch.from_numpy(patterns)
                np.add.at(total, patterns, leave_one_out.of_pairs(self._placed(scores), *pairs))
        effect = total / np.maximum(count, 1)[:, None]
        return count / max(self.documents, 1), effect

    def _shown(self, scores: Tensor) -> tuple[NDArray, NDArray]:
        """Scores as users see them, and where there is a match."""
        algebra = self.subject.encoder.options.algebra
        scores = scores.double()
        return algebra.to_score(scores).cpu().numpy(), (scores != algebra.zero).cpu().numpy()

    def _placed(self, scores: Tensor) -> Tensor:
        return scores.to(self.subject.encoder.arcs.weight.device)
