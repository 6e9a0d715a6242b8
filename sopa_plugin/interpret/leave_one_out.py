"""What a prediction rests on: the head run again without a pattern, the model without words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.data.batches import Documents
from sopa_plugin.data.ngrams import NewWords
from sopa_plugin.encoders.sopa_layers import FIRES
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.automaton import arcs_of
from sopa_plugin.interpret.explanation import Told
from sopa_plugin.interpret.matching import AFTER, BEFORE, ArcScores
from sopa_plugin.interpret.subject import Subject

Replacement = Literal["next", "no_match", "zero", "mean"]
CHUNK = 8192
"""Document vectors that the head sees at once."""


def log_odds(logits: Tensor) -> Tensor:
    """Log-odds of each class, `[..., labels]`: how much its score exceeds those of all the others.

    Of two classes, the difference of their scores.
    """
    if logits.shape[-1] == 1:
        return logits
    if logits.shape[-1] == 2:  # the same in one step
        return logits - logits.flip(-1)
    others = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    rest = logits[..., None, :].masked_fill(others, float("-inf")).logsumexp(dim=-1)
    return logits - rest


def held_values(
    subject: Subject, replacement: Replacement, means: Tensor | None = None
) -> Tensor | None:
    """The numbers of the document vector that stand for the patterns' own, `[K]`.

    None for `no_match`, where a score is replaced before any normalization, and for `next` where no
    means are known. Arguments as for `LeaveOneOut`.

    Raises:
        UserError: There is no such replacement, or means are missing.
    """
    if replacement == "no_match" or (replacement == "next" and means is None):
        return None
    if replacement == "zero":
        return subject.encoder.document_vector.of_zero()
    if replacement not in ("mean", "next"):
        known = ", ".join(get_args(Replacement))
        raise UserError(f"replacement: expected one of {known}, found {replacement!r}")
    if means is None:
        raise UserError("replacement 'mean' needs a data set to take the mean over")
    return means[torch.tensor(list(subject.columns), device=means.device)]


class DocumentScores:
    """What many documents' scores say of each pattern.

    Arguments:
        subject: whose patterns they are.
        scores: the operator's scores of every pattern in every document, `[documents, K]`.

    Attributes:
        best, mean: the highest score of each pattern as users see it, and the mean over the
            documents that it matches, `[K]`; -inf where it never matches.
        thresholds: from where on each pattern fires, `[K]`: halfway between those or, of a rule's,
            where it does; of one that never matches, infinite.
        matched, fires: where each pattern matches and where it fires, `[documents, K]`.
    """

    def __init__(self, subject: Subject, scores: Tensor) -> None:
        self.subject = subject
        self.scores = scores
        algebra = subject.encoder.options.algebra
        matched, shown = scores != algebra.zero, algebra.to_score(scores.double())
        never = shown.new_full((1, shown.shape[1]), -math.inf)
        best = torch.cat([never, shown.masked_fill(~matched, -math.inf)]).amax(dim=0)
        mean = shown.masked_fill(~matched, 0.0).sum(dim=0) / matched.sum(dim=0)
        mean = mean.where(matched.any(dim=0), -math.inf)
        thresholds = torch.where(matched.any(dim=0), (best + mean) / 2, math.inf)
        for pattern, rule in enumerate(subject.encoder.rules):
            if rule is not None:
                thresholds[pattern] = FIRES * rule.sure
        self.matched, self.best, self.mean, self.thresholds = (
            each.cpu().numpy() for each in (matched, best, mean, thresholds)
        )
        self.fires = fires_in(subject, scores, self.thresholds)

    @cached_property
    @torch.no_grad()
    def document_vectors(self) -> Tensor:
        """What the head sees, `[documents, dim]`."""
        return self.subject.document_vectors(self.scores).double()

    def document_vector_means(self) -> Tensor:
        """Means of these, `[dim]`."""
        return self.document_vectors.sum(0) / max(len(self.scores), 1)

    @torch.no_grad()
    def correlations(self) -> NDArray[np.float64]:
        """How alike patterns are in what the head sees of them, `[K, K]`; 0 of one with itself."""
        vectors = self.document_vectors - self.document_vector_means()
        vectors = torch.nn.functional.normalize(vectors, dim=0)[:, list(self.subject.columns)]
        found: NDArray[np.float64] = (vectors.T @ vectors).fill_diagonal_(0.0).cpu().numpy()
        return found

    def effects(
        self, leave_one_out: LeaveOneOut, instead: Tensor | None = None
    ) -> NDArray[np.float64]:
        """Mean contributions `[K, labels]` over the documents in which each pattern fires.

        `instead [n]` are the scores of next best matches, where `fires` is, for `next`.
        """
        documents, patterns = np.nonzero(self.fires)
        pairs = torch.from_numpy(documents), torch.from_numpy(patterns)
        total = np.zeros((self.fires.shape[1], len(self.subject.labels)))
        np.add.at(total, patterns, leave_one_out.of_pairs(self.scores, *pairs, instead))
        mean: NDArray[np.float64] = total / np.maximum(self.fires.sum(axis=0), 1)[:, None]
        return mean


def fires_in(
    subject: Subject, scores: Tensor, thresholds: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Where patterns fire, `[B, K]`, by the operator's `scores [B, K]` and `thresholds [K]`."""
    algebra = subject.encoder.options.algebra
    shown = algebra.to_score(scores.double()).cpu().numpy()
    found: NDArray[np.bool_] = (scores != algebra.zero).cpu().numpy() & (shown >= thresholds)
    return found


class LeaveOneOut:
    """Contributions by leave-one-out (paper, section 7).

    A pattern's contribution to a class is the class's log-odds minus those of the same document
    with the pattern's score replaced:
        `next`: by that of its next best match, which consumes no token of the phrase; where none is
            left, the number's mean stands in (or, if means are not known, no match);
        `no_match`: by what it is in a document that the pattern does not match (before any
            normalization, so other numbers of the document vector may change, too);
        `zero`: its number in the document vector becomes that of a score of 0: 0 itself, but
            for the encoder's output `excess`;
        `mean`: it becomes the number's mean over a data set.
    The paper zeroes scores that are products of probabilities, where no match is zero, too. No
    match and zero are far from any document vector that occurs, so that contributions by these say
    more of the pattern than of the document; `next` is the default.

    Arguments:
        subject: a subject with a head.
        replacement: which of them.
        means: means of the document vector, `[dim]`; for `mean` and `next`.
        classes: the classes that compete, by their numbers; of two, a contribution to the first is
            what speaks for it rather than the second. All by default.

    Raises:
        UserError: The subject has no head, there is no such replacement, or means are missing.
    """

    def __init__(
        self,
        subject: Subject,
        replacement: Replacement = "next",
        means: Tensor | None = None,
        classes: Sequence[int] | None = None,
    ) -> None:
        if not subject.labels:
            raise UserError("this encoder has no head, so nothing contributes to a class")
        self.subject = subject
        self.replacement = replacement
        self.classes = list(range(len(subject.labels)) if classes is None else classes)
        self._held = held_values(subject, replacement, means)
        self._usual = self._held if replacement == "next" else None

    @torch.no_grad()
    def evidence(self, scores: Tensor) -> NDArray[np.bool_]:
        """Where patterns count as evidence, `[B, K]`, by the operator's document scores `[B, K]`.

        For `next`, where they score at least as much as they usually do; else everywhere.
        """
        if self._usual is None:
            return np.ones(tuple(scores.shape), dtype=bool)
        vectors = self.subject.document_vectors(scores).cpu().numpy()
        found: NDArray[np.bool_] = vectors[:, self.subject.columns] >= self._usual.cpu().numpy()
        return found

    @torch.no_grad()
    def __call__(self, scored: ArcScores) -> NDArray[np.float64]:
        """Contributions `[B, K, labels]` in documents; none in one of which no pattern is asked."""
        scores = scored.scores
        instead = scored.every_next_best.flatten() if self.replacement == "next" else None
        documents, patterns = torch.from_numpy(np.indices(scores.shape).reshape(2, -1))
        found = self.of_pairs(scores, documents, patterns, instead).reshape(*scores.shape, -1)
        if self.subject.prior is not None:
            found[scored.documents.lengths == 0] = 0.0
        return found

    @torch.no_grad()
    def of_pairs(
        self, scores: Tensor, documents: Tensor, patterns: Tensor, instead: Tensor | None = None
    ) -> NDArray[np.float64]:
        """Contributions `[pairs, labels]` of `patterns [pairs]` in `documents [pairs]`.

        `instead [pairs]` holds the scores of next best matches, for `next`.
        """
        logits = self.subject.logits(self.subject.document_vectors(scores)).double()
        base = log_odds(logits[:, self.classes])
        without = self.logits_without(scores, documents, patterns, instead)[:, self.classes]
        without = log_odds(without)
        found: NDArray[np.float64] = (base[documents.to(base.device)] - without).cpu().numpy()
        return found

    @torch.no_grad()
    def logits_without(
        self, scores: Tensor, documents: Tensor, patterns: Tensor, instead: Tensor | None = None
    ) -> Tensor:
        """Class scores `[pairs, labels]`, with the score of one pattern replaced in each."""
        found = [scores.new_zeros(0, len(self.subject.labels), dtype=torch.float64)]
        for start in range(0, len(documents), CHUNK):
            part = slice(start, start + CHUNK)
            some, which = documents[part].to(scores.device), patterns[part].to(scores.device)
            given = None if instead is None else instead[part]
            found.append(self.subject.logits(self._without(scores[some], which, given)).double())
        return torch.cat(found)

    def _without(self, scores: Tensor, patterns: Tensor, instead: Tensor | None) -> Tensor:
        """Document vectors `[pairs, dim]` with the score of one pattern replaced in each."""
        pairs, zero = torch.arange(len(scores)), self.subject.encoder.options.algebra.zero
        held = torch.full((len(scores),), self._held is not None, device=scores.device)
        if self.replacement == "next":
            assert instead is not None
            held &= instead == zero
            scores[pairs, patterns] = torch.where(held, scores[pairs, patterns], instead)
        elif self.replacement == "no_match":
            scores[pairs, patterns] = zero
        vectors = self.subject.document_vectors(scores)
        if self._held is not None and held.any():
            vectors = vectors.clone()
            columns = torch.tensor(list(self.subject.columns), device=scores.device)[patterns]
            values = self._held.to(vectors)[patterns]
            vectors[pairs, columns] = torch.where(held, values, vectors[pairs, columns])
        return vectors


ARCS = "main_path", "self_loop", "epsilon"
TOP = 5
"""Contributions that count as a document's largest."""
LEAST = 1e-6
"""Log-odds; what is less is rounding."""

Arc = tuple[str, int]
"""An arc of a pattern: main_path, self_loop or epsilon, and the state that it leaves."""


@dataclass(frozen=True)
class Use(Told):
    """What one pattern does on labelled documents, and how its matches run where it fires.

    Arguments:
        loss, accuracy: by how much these rise when the pattern is held at its mean.
        precision: share of the documents in which it fires that have the label it speaks for.
        recall: share of that label's documents in which it fires.
        share: share of the documents to whose predicted label its contribution is among the five
            largest.
        fired: documents in which it fires.
        taken: by arc, the share of its matches there that take it.
        consumed: by arc, the words that it consumed there and how often, the most frequent first.
    """

    told = "loss", "accuracy", "precision", "recall", "share", "fired", "arcs"

    loss: float
    accuracy: float
    precision: float
    recall: float
    share: float
    fired: int
    taken: dict[Arc, float]
    consumed: dict[Arc, list[tuple[str, int]]]

    @property
    def arcs(self) -> list[dict[str, Any]]:
        """The arcs as plain values."""
        return [
            {"arc": arc, "state": state, "taken": share, "words": self.consumed[arc, state][:TOP]}
            for (arc, state), share in self.taken.items()
        ]


@torch.no_grad()
def measure_use(
    chunks: Iterable[tuple[ArcScores, Sequence[int]]],
    thresholds: NDArray[np.float64],
    effects: NDArray[np.float64],
    means: Tensor,
    leave_one_out: LeaveOneOut,
) -> list[Use]:
    """Each pattern's use.

    Arguments:
        chunks: some documents at a time and the numbers of their labels; all share new words.
        thresholds: from where on each pattern fires, `[K]`.
        effects: mean contributions where it does, `[K, labels]`.
        means: what patterns are held at.
        leave_one_out: makes the contributions of which the largest count.
    """
    subject, patterns = leave_one_out.subject, len(effects)
    held = LeaveOneOut(subject, "mean", means)
    # shape: [K]; the label that each pattern speaks for
    speaks_for = np.where(abs(effects).max(axis=1) < LEAST, -1, effects.argmax(axis=1))
    # shape: [K]; sums over documents
    fired, hits, loss, accuracy, top = np.zeros((5, patterns))
    labels = np.zeros(len(subject.labels))
    taken: Counter[tuple[int, ...]] = Counter()
    consumed: Counter[tuple[int, ...]] = Counter()
    spelt: dict[int, str] = {}
    for scored, given in chunks:
        scores, gold = scored.scores, np.array(given)
        fires = fires_in(subject, scores, thresholds)
        fired += fires.sum(axis=0)
        hits += (fires & (gold[:, None] == speaks_for)).sum(axis=0)
        labels += np.bincount(gold, minlength=len(labels))
        places = np.nonzero(fires)
        steps = scored.taken(*places)
        # shape: [4, arcs taken]: match, pattern, number of the kind in `ARCS`, state
        kinds = np.where(steps.looped, 1, np.where(steps.tokens < 0, 2, 0))
        each = np.stack([steps.paths, places[1][steps.paths], kinds, steps.states])
        taken.update(map(tuple, np.unique(each, axis=1)[1:].T.tolist()))
        words = np.stack([*each[1:], scored.ids[steps.tokens]])[:, steps.tokens >= 0]
        consumed.update(map(tuple, words.T.tolist()))
        asked = np.flatnonzero(scored.documents.lengths >= (subject.prior is not None))
        scores, gold = scores[torch.from_numpy(asked).to(scores.device)], gold[asked]
        predicted = subject.logits(subject.document_vectors(scores)).double().cpu()
        before = predicted.log_softmax(dim=-1).numpy()
        pairs = torch.from_numpy(np.indices(scores.shape).reshape(2, -1))
        without = held.logits_without(scores, *pairs).cpu().log_softmax(dim=-1)
        after = without.reshape(*scores.shape, -1).numpy()
        every = np.arange(len(gold))
        loss += (before[every, gold][:, None] - after[every, :, gold]).sum(axis=0)
        right = (before.argmax(axis=1) == gold).astype(int)[:, None]
        accuracy += ((after.argmax(axis=2) == gold[:, None]) - right).sum(axis=0)
        sizes = np.abs(leave_one_out(scored)[asked, :, before.argmax(axis=1)])
        largest = np.argsort(-sizes, axis=1, kind="stable")[:, :TOP]
        np.add.at(top, largest[np.take_along_axis(sizes, largest, axis=1) > LEAST], 1)
        new = list({key[-1] for key in consumed} - spelt.keys() - {-1, -2})
        spelt |= zip(new, subject.spell(new, scored.documents.new_words), strict=True)
    spelt |= {-1: BEFORE, -2: AFTER}
    layout = subject.encoder.layout
    arcs_of_each = [[arc[:2] for arc in arcs_of(layout, pattern)] for pattern in range(patterns)]
    shares = [dict.fromkeys(arcs, 0.0) for arcs in arcs_of_each]
    by_arc: list[dict[Arc, list[tuple[str, int]]]] = [
        {arc: [] for arc in arcs} for arcs in arcs_of_each
    ]
    for (pattern, kind, state), count in taken.items():
        shares[pattern][ARCS[kind], state] = float(count / fired[pattern])
    for (pattern, kind, state, word), count in consumed.most_common():
        by_arc[pattern][ARCS[kind], state].append((spelt[word], count))
    documents, of_label = max(labels.sum(), 1), np.maximum(labels[speaks_for], 1)
    columns = (
        loss / documents, accuracy / documents, hits / np.maximum(fired, 1), hits / of_label,
        top / documents, fired.astype(int),
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), shares, by_arc, strict=True)
    return [Use(*row) for row in rows]


TOKENS_AT_ONCE = 2**16
"""Tokens of documents that are classified at once."""


@torch.no_grad()
def class_probabilities(
    subject: Subject, documents: Sequence[NDArray[np.int64]], new_words: NewWords | None
) -> NDArray[np.float64]:
    """Probabilities `[documents, labels]` of documents given as ids."""
    ends = np.cumsum([len(ids) for ids in documents]) // TOKENS_AT_ONCE
    found = []
    for some in np.split(np.arange(len(documents)), 1 + np.flatnonzero(np.diff(ends))):
        parts = [documents[n] for n in some.tolist()]
        offsets = np.cumsum([0, *map(len, parts)])
        read = Documents(np.concatenate(parts), offsets, new_words=new_words)
        logits = ArcScores.of(subject, read).logits
        found.append(logits.double().softmax(dim=-1).cpu().numpy())
    return np.concatenate(found)


def faithfulness(
    subject: Subject, documents: Documents, named: NDArray[np.bool_], labels: Sequence[int]
) -> NDArray[np.float64]:
    """Whether the words that are `named` are what a class rests on (ERASER, DeYoung et al. 2020).

    Arguments:
        subject: a subject with a head.
        documents: as `Subject.read` gives them.
        named: which of their tokens an explanation names, `[tokens]`.
        labels: the number of each document's class.

    Returns:
        Of each document, `[documents, 2]`: comprehensiveness, by how much the probability of the
        class falls when the words are dropped; sufficiency, by how much it falls when they alone
        are kept.
    """
    special, bounds = subject.is_special(documents.ids), documents.offsets[1:-1]
    parts: list[NDArray[np.int64]] = []
    for kept in (np.ones_like(named), ~named | special, named | special):
        halves = zip(*(np.split(each, bounds) for each in (documents.ids, kept)), strict=True)
        parts += [ids[some] for ids, some in halves]
    found = class_probabilities(subject, parts, documents.new_words).reshape(
        3, -1, len(subject.labels)
    )
    of_label: NDArray[np.float64] = found[:, np.arange(len(labels)), labels].T
    return of_label[:, :1] - of_label[:, 1:]
