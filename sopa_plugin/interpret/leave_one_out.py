"""What a prediction rests on: the head run again without a pattern, the model without words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.errors import UserError
from sopa_plugin.interpret.matching import ArcScores
from sopa_plugin.interpret.subject import Subject

Replacement = Literal["no_match", "zero", "mean"]
Spans = Sequence[tuple[int, int]]
"""Where phrases are: the first token, and the one after the last."""

CHUNK = 8192
"""Document vectors that the head sees at once."""


def log_odds(logits: Tensor) -> Tensor:
    """Log-odds of each class, `[..., labels]`: how much its score exceeds those of all the others.

    Of two classes, the difference of their scores.
    """
    if logits.shape[-1] == 1:
        return logits
    others = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    rest = logits[..., None, :].masked_fill(others, float("-inf")).logsumexp(dim=-1)
    return logits - rest


def held_values(
    subject: Subject, replacement: Replacement, means: Tensor | None = None
) -> Tensor | None:
    """The numbers of the document vector that stand for the patterns' own, `[K]`.

    None for `no_match`, where a score is replaced before any normalization. Arguments as for
    `LeaveOneOut`.

    Raises:
        UserError: There is no such replacement, or means are missing.
    """
    if replacement == "no_match":
        return None
    if replacement == "zero":
        return subject.encoder.document_vector.of_zero()
    if replacement != "mean":
        known = ", ".join(get_args(Replacement))
        raise UserError(f"replacement: expected one of {known}, found {replacement!r}")
    if means is None:
        raise UserError("replacement 'mean' needs a data set to take the mean over")
    return means[torch.tensor(list(subject.columns), device=means.device)]


class DocumentScores:
    """What many documents' scores say of each pattern.

    A pattern fires in a document where its score lies nearer to its best than to its mean.

    Arguments:
        subject: whose patterns they are.
        scores: the operator's scores of every pattern in every document, `[documents, K]`.

    Attributes:
        best, mean: the highest score of each pattern as users see it, and the mean over the
            documents that it matches, `[K]`; -inf where it never matches.
        matched, fires: where each pattern matches and where it fires, `[documents, K]`.
    """

    def __init__(self, subject: Subject, scores: Tensor) -> None:
        self.subject = subject
        self.scores = scores
        algebra = subject.encoder.options.algebra
        shown = algebra.to_score(scores.double()).cpu().numpy()
        self.matched: NDArray[np.bool_] = (scores != algebra.zero).cpu().numpy()
        count = self.matched.sum(axis=0)
        self.best = np.where(self.matched, shown, -np.inf).max(axis=0, initial=-np.inf)
        total = np.where(self.matched, shown, 0.0).sum(axis=0)
        self.mean = np.where(count > 0, total / np.maximum(count, 1), -np.inf)
        self.fires: NDArray[np.bool_] = self.matched & (shown >= (self.best + self.mean) / 2)

    @torch.no_grad()
    def document_vector_means(self) -> Tensor:
        """Means of what the head sees, `[dim]`."""
        vectors = self.subject.document_vectors(self.scores).double()
        return vectors.sum(0) / max(len(vectors), 1)

    def effects(self, leave_one_out: LeaveOneOut) -> NDArray[np.float64]:
        """Mean contributions `[K, labels]` over the documents in which each pattern fires."""
        documents, patterns = np.nonzero(self.fires)
        pairs = torch.from_numpy(documents), torch.from_numpy(patterns)
        total = np.zeros((self.fires.shape[1], len(self.subject.labels)))
        np.add.at(total, patterns, leave_one_out.of_pairs(self.scores, *pairs))
        mean: NDArray[np.float64] = total / np.maximum(self.fires.sum(axis=0), 1)[:, None]
        return mean


class LeaveOneOut:
    """Contributions by leave-one-out (paper, section 7).

    A pattern's contribution to a class is the class's log-odds minus those of the same document
    with the pattern's score replaced:
        `no_match`: by what it is in a document that the pattern does not match (before any
            normalization, so other numbers of the document vector may change, too);
        `zero`: its number in the document vector becomes that of a score of 0: 0 itself, but
            for the encoder's output `excess`;
        `mean`: it becomes the number's mean over a data set.
    The paper zeroes scores that are products of probabilities, where no match is zero, too. Where
    scores are logarithms or normalized, 0 is an ordinary score: there `no_match` is what names the
    phrases that a prediction rests on (`faithfulness` measures it), and it is the default.

    Arguments:
        subject: a subject with a head.
        replacement: which of them.
        means: means of the document vector, `[dim]`; for `mean`.

    Raises:
        UserError: The subject has no head, there is no such replacement, or means are missing.
    """

    def __init__(
        self, subject: Subject, replacement: Replacement = "no_match", means: Tensor | None = None
    ) -> None:
        if not subject.labels:
            raise UserError("this encoder has no head, so nothing contributes to a class")
        self.subject = subject
        self._held = held_values(subject, replacement, means)

    @torch.no_grad()
    def __call__(self, scores: Tensor) -> NDArray[np.float64]:
        """Contributions `[B, K, labels]` from the operator's document scores `[B, K]`."""
        batch, patterns = scores.shape
        documents = torch.arange(batch).repeat_interleave(patterns)
        found = self.of_pairs(scores, documents, torch.arange(patterns).repeat(batch))
        return found.reshape(batch, patterns, -1)

    @torch.no_grad()
    def of_pairs(self, scores: Tensor, documents: Tensor, patterns: Tensor) -> NDArray[np.float64]:
        """Contributions `[pairs, labels]` of `patterns [pairs]` in `documents [pairs]`."""
        base = log_odds(self.subject.logits(self.subject.document_vectors(scores)).double())
        found = [base.new_zeros(0, base.shape[1])]
        for some, which in zip(documents.split(CHUNK), patterns.split(CHUNK), strict=True):
            some, which = some.to(scores.device), which.to(scores.device)
            without = self.subject.logits(self._without(scores[some], which))
            found.append(base[some] - log_odds(without.double()))
        return torch.cat(found).cpu().numpy()  # type: ignore[no-any-return]

    def _without(self, scores: Tensor, patterns: Tensor) -> Tensor:
        """Document vectors `[pairs, dim]` with the score of one pattern replaced in each."""
        pairs = torch.arange(len(scores), device=scores.device)
        if self._held is None:
            scores[pairs, patterns] = self.subject.encoder.options.algebra.zero
            return self.subject.document_vectors(scores)
        vectors = self.subject.document_vectors(scores).clone()
        columns = torch.tensor(list(self.subject.columns), device=scores.device)[patterns]
        vectors[pairs, columns] = self._held.to(vectors)[patterns]
        return vectors


@torch.no_grad()
def faithfulness(
    subject: Subject, ids: NDArray[np.int64], spans: Spans, label: int
) -> tuple[float, float]:
    """Whether the words of `spans` are what a class rests on (ERASER, DeYoung et al. 2020).

    Arguments:
        subject: a subject with a head.
        ids: the document's tokens, as `Subject.read` gives them.
        spans: the phrases that an explanation names.
        label: the class's number.

    Returns:
        Comprehensiveness, by how much the probability of the class falls when the words are
        dropped; sufficiency, by how much it falls when they alone are kept.
    """
    named = np.zeros(len(ids), dtype=bool)
    for start, end in spans:
        named[start:end] = True
    special = subject.is_special(ids)
    encoded = subject.embed([ids, ids[~named | special], ids[named | special]])
    logits = subject.classify(encoded, ArcScores.of(subject, encoded).scores)
    probabilities = logits.double().softmax(dim=-1)
    whole, without, alone = probabilities[:, label].tolist()
    return whole - without if spans else 0.0, whole - alone


def random_spans(spans: Spans, length: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Spans as long as the given ones at random places: what a faithful explanation must beat."""
    found = []
    for start, end in spans:
        begin = int(random.integers(0, length - (end - start) + 1))
        found.append((begin, begin + end - start))
    return found
