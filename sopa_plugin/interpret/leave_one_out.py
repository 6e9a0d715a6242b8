"""What each pattern contributes to the classes: the head run again without its score."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.errors import UserError
from sopa_plugin.interpret.subject import Subject

Replacement = Literal["no_match", "zero", "mean"]
CHUNK = 8192


def log_odds(logits: Tensor) -> Tensor:
    """Log-odds of each class, `[..., labels]`: how much its score exceeds those of all the others.

    Of two classes, the difference of their scores.
    """
    if logits.shape[-1] == 1:
        return logits
    others = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    rest = logits[..., None, :].masked_fill(others, float("-inf")).logsumexp(dim=-1)
    return logits - rest


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
    phrases that a prediction rests on (`Faithfulness` measures it), and it is the default.

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
        if replacement not in get_args(Replacement):
            known = ", ".join(get_args(Replacement))
            raise UserError(f"replacement: expected one of {known}, found {replacement!r}")
        if replacement == "mean" and means is None:
            raise UserError("replacement 'mean' needs a data set to take the mean over")
        self.subject = subject
        self.replacement = replacement
        self.means = means

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
            without = self.subject.logits(self._replaced(scores[some], which))
            found.append(base[some] - log_odds(without.double()))
        return torch.cat(found).cpu().numpy()  # type: ignore[no-any-return]

    def _replaced(self, scores: Tensor, patterns: Tensor) -> Tensor:
        """Document vectors `[pairs, dim]` with the score of one pattern replaced in each."""
        pairs = torch.arange(len(scores), device=scores.device)
        if self.replacement == "no_match":
            scores = scores.clone()
            scores[pairs, patterns] = self.subject.encoder.options.algebra.zero
            return self.subject.document_vectors(scores)
        vectors = self.subject.document_vectors(scores).clone()
        columns = torch.tensor(list(self.subject.columns), device=scores.device)[patterns]
        if self.replacement == "zero" or self.means is None:
            zeros = self.subject.encoder.document_vector.of_zero()
            vectors[pairs, columns] = zeros.to(vectors)[patterns]
        else:
            vectors[pairs, columns] = self.means.to(vectors)[columns]
        return vectors
