"""Matches of a subject's patterns in encoded documents, aligned to words and states."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.data.batches import Documents
from sopa_plugin.encoders.sopa_layers import add_boundary_tokens
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.match import Match, Step
from sopa_plugin.interpret.subject import Subject
from sopa_plugin.wfsa import (
    ArcEncoding,
    Arcs,
    BestMatches,
    Ends,
    Layout,
    Path,
    Semiring,
    Taken,
    arcs_taken,
    best_matches,
    document_scores,
    end_scores,
    first_tokens,
    next_scores,
    spans_above,
    trace,
)

BEST_PATH = {"log": "max_sum", "sum_product": "max_product"}
"""The semiring that finds the best path where the encoder's own sums over all of them."""

BEFORE, AFTER = "‹s›", "‹/s›"
"""How the tokens that an encoder puts around documents (`boundary_tokens`) are written."""


@dataclass(frozen=True)
class ArcScores:
    """Some documents with the scores of their arcs, boundary tokens included.

    Attributes:
        subject: whose patterns these are.
        documents: the documents.
        layout: the patterns.
        semiring, arcs: what the encoder scores documents with.
        path_semiring, path_arcs: the same, or where the encoder sums over paths, what finds the
            best one.
        width: boundary tokens on each side of a document.
    """

    subject: Subject
    documents: Documents
    layout: Layout
    semiring: str
    arcs: Arcs
    path_semiring: str
    path_arcs: Arcs
    width: int

    @classmethod
    @torch.no_grad()
    def of(cls, subject: Subject, documents: Documents) -> ArcScores:
        """What the patterns' arcs score on each token; raises as `best_path_semiring`."""
        encoder, path_semiring = subject.encoder, best_path_semiring(subject)
        width, semiring = encoder.boundary_width, encoder.options.semiring
        arcs = path_arcs = subject.arcs(documents)
        if semiring == "sum_product":  # max-product holds logarithms
            path_arcs = arcs._replace(scores=arcs.scores.log(), epsilon=arcs.epsilon.log())
        given = semiring, arcs, path_semiring, path_arcs, width
        return cls(subject, documents, encoder.layout, *given)

    @cached_property
    @torch.no_grad()
    def scores(self) -> Tensor:
        """Document scores `[B, K]` as the encoder's semiring holds them."""
        if self.path_semiring == self.semiring and "best_matches" in vars(self):
            return self.best_matches.scores
        return document_scores(self.layout, self.semiring, self.arcs)

    @cached_property
    @torch.no_grad()
    def logits(self) -> Tensor:
        """Class scores `[B, labels]`."""
        subject = self.subject
        logits = subject.logits(subject.document_vectors(self.scores))
        if subject.prior is None:
            return logits
        empty = torch.from_numpy(self.documents.lengths == 0).to(logits.device)
        return torch.where(empty[:, None], subject.prior.to(logits), logits)

    @property
    def path_operands(self) -> tuple[Layout, str, Arcs]:
        """What `wfsa.end_scores`, `best_matches`, ... take to find the best paths."""
        return self.layout, self.path_semiring, self.path_arcs

    @cached_property
    @torch.no_grad()
    def best_matches(self) -> BestMatches:
        """Where and how the best match of each pattern in each document runs."""
        return best_matches(*self.path_operands)

    def taken(self, documents: NDArray[np.int64], patterns: NDArray[np.int64]) -> Taken:
        """The arcs that the best matches of `patterns [n]` in `documents [n]` take."""
        return arcs_taken(self.layout, self._steps, self._ends(documents, patterns))

    def paths(self, documents: NDArray[np.int64], patterns: NDArray[np.int64]) -> list[Path]:
        """The best matches of `patterns [n]` in `documents [n]`."""
        ends = self._ends(documents, patterns)
        return trace(self.layout, self.path_arcs, self._steps, ends)

    def spans(
        self, documents: NDArray[np.int64], patterns: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where these best matches begin and end, `[n]` each, counted over all documents."""
        ends = self._ends(documents, patterns)
        return first_tokens(self.layout, self._steps, ends), ends.ends

    def _ends(self, documents: NDArray[np.int64], patterns: NDArray[np.int64]) -> Ends:
        return Ends.of_best(self.best_matches, self.path_arcs.offsets, documents, patterns)

    @property
    def _steps(self) -> NDArray[np.uint8]:
        return self.best_matches.steps.cpu().numpy()

    @cached_property
    def consumed(self) -> NDArray[np.bool_]:
        """Which tokens the best match of each pattern consumes, `[M, K]`."""
        places = np.nonzero(self.best_matches.ends.cpu().numpy() >= 0)
        # shape: [B, K], counted over all documents; nothing lies from 0 to 0
        first, last = np.zeros((2, *self.best_matches.ends.shape), dtype=np.int64)
        first[places], last[places] = self.spans(*places)
        tokens = np.arange(len(self.arcs.index))
        document = np.searchsorted(self.arcs.offsets.cpu().numpy(), tokens, side="right") - 1
        inside: NDArray[np.bool_] = tokens[:, None] < last[document]
        inside &= first[document] <= tokens[:, None]
        return inside

    @cached_property
    @torch.no_grad()
    def without_phrases(self) -> ArcScores:
        """The same documents, in which no pattern can consume a token of its best match.

        What is left to a pattern is its next best match, before that phrase or behind it.
        """
        index, layout = self.arcs.index, self.layout
        consumed = torch.from_numpy(self.consumed).to(index.device)
        every = torch.arange(len(index), device=index.device)

        def without(arcs: Arcs, semiring: str) -> Arcs:
            scores = arcs.scores[index]
            for block in (*layout.main_path, *layout.loops):
                if block:
                    inside = consumed[:, block.first_pattern :]
                    scores[:, block.columns].masked_fill_(inside, Semiring.named(semiring).zero)
            return arcs._replace(scores=scores, index=every)

        arcs = path_arcs = without(self.arcs, self.semiring)
        if self.path_arcs is not self.arcs:
            path_arcs = without(self.path_arcs, self.path_semiring)
        return replace(self, arcs=arcs, path_arcs=path_arcs)

    def next_best(self, documents: NDArray[np.int64], patterns: NDArray[np.int64]) -> Tensor:
        """Scores `[n]` of the next best matches of `patterns [n]` in `documents [n]`.

        Those of `without_phrases`, where they can be found one by one for these alone.
        """
        found = next_scores(self.layout, self.semiring, self.arcs, documents, patterns)
        return self.without_phrases.scores[documents, patterns] if found is None else found

    @property
    def every_next_best(self) -> Tensor:
        """Those of all patterns in all documents, `[B, K]`."""
        every = np.indices(self.scores.shape).reshape(2, -1)
        return self.next_best(*every).reshape(self.scores.shape)

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Equal where tokens are the same word; -1 is a boundary token before a document, -2 after.

        shape: [M].
        """
        if not self.width:
            return self.documents.ids
        tokens, offsets = map(torch.from_numpy, (self.documents.ids, self.documents.offsets))
        return add_boundary_tokens(tokens, offsets, (-1, -2), self.width)[0].numpy()


def best_path_semiring(subject: Subject) -> str:
    """The semiring in which a best match is found.

    Raises:
        UserError: The encoder's semiring, over its encoding, has no best paths.
    """
    semiring = subject.encoder.options.semiring
    if Semiring.named(semiring).selects:
        return semiring
    if semiring not in BEST_PATH:
        raise UserError(f"semiring '{semiring}' sums over paths, so no match is the best")
    encoding = subject.encoder.options.encoding
    if semiring == "sum_product" and ArcEncoding.named(encoding).kind == "log_weight":
        raise UserError(
            f"semiring '{semiring}' over encoding '{encoding}' multiplies scores of either sign, "
            "so no match is the best; read a model with weights (encoding 'sigmoid' or 'exp')"
        )
    return BEST_PATH[semiring]


def with_boundaries(subject: Subject, words: Sequence[str]) -> tuple[str, ...]:
    """A document's words, with the tokens that the encoder puts around it."""
    width = subject.encoder.boundary_width
    return (BEFORE,) * width + tuple(words) + (AFTER,) * width


def spell(
    subject: Subject,
    paths: Sequence[Path],
    words: Sequence[Sequence[str]],
    documents: Sequence[int],
    counts: Sequence[int] | None = None,
    count_boundaries: bool = False,
) -> list[Match]:
    """Paths in words.

    Positions are those of a path's `words`, its document without boundary tokens; with
    `count_boundaries`, those of the document with them.
    """
    width = 0 if count_boundaries else subject.encoder.boundary_width
    algebra = Semiring.named(best_path_semiring(subject))
    held = [score for path in paths for score in (*(arc.score for arc in path.arcs), path.score)]
    shown = iter(algebra.to_score(torch.tensor(held, dtype=torch.float64)).tolist())
    found = []
    given = zip(paths, words, documents, counts or [1] * len(paths), strict=True)
    for path, spelt, document, count in given:
        tokens = with_boundaries(subject, spelt)
        length = len(tokens) - 2 * width
        steps = tuple(
            Step(arc.kind, arc.state, next(shown))
            if arc.token is None
            else Step(arc.kind, arc.state, next(shown), arc.token - width, tokens[arc.token])
            for arc in path.arcs
        )
        start, end = (min(max(each - width, 0), length) for each in (path.start, path.end))
        states, name = subject.encoder.layout.lengths[path.pattern], subject.names[path.pattern]
        found.append(Match(name, states, next(shown), document, start, end, steps, count))
    return found


class MatchesAsked(dict[str, Match | None]):
    """The best match of each pattern in a document, found when one asks for it; None: no match.

    Arguments:
        scored: documents.
        words: of the document.
        number: which of those scored it is.
        first: patterns that are found together, without the others.
        instead: whether to find next best matches, those of `without_phrases`.
        count_boundaries: as for `spell`.
    """

    def __init__(
        self,
        scored: ArcScores,
        words: Sequence[str],
        number: int = 0,
        first: Container[str] = (),
        instead: bool = False,
        count_boundaries: bool = False,
    ) -> None:
        self.scored, self.words, self.number, self.first = scored, words, number, first
        self.instead, self.count_boundaries = instead, count_boundaries

    def __missing__(self, name: str) -> Match | None:
        scored = self.scored.without_phrases if self.instead else self.scored
        names, of_first = scored.subject.names, name in self.first
        wanted = np.array([n for n, each in enumerate(names) if not of_first or each in self.first])
        found = wanted[scored.best_matches.ends[self.number].cpu().numpy()[wanted] >= 0]
        paths = scored.paths(np.full_like(found, self.number), found)
        given = [self.words] * len(paths), [0] * len(paths), None, self.count_boundaries
        self.update((names[n], None) for n in wanted.tolist())
        self.update((each.pattern, each) for each in spell(scored.subject, paths, *given))
        return self[name]


ALIGNED_AT_ONCE = 1024
"""Matches that are aligned at once."""


@dataclass(order=True)
class Found:
    """A phrase among the best, ordered from best to worst: its best match, met first where.

    `loss` is the match's score, negated, `end` counts tokens up to the match's end, boundary tokens
    included, `key` is equal for repeats of the phrase, `source` the document itself.
    """

    loss: float
    document: int
    end: int
    key: Hashable = field(compare=False)
    source: Any = field(compare=False)
    count: int = field(default=1, compare=False)


class TopMatches:
    """Keeps the `k` best matches of each pattern; repeats of a phrase count once.

    A match is the best path that ends at one token of one document. Ties go to the earlier
    document, then to the earlier end. Memory holds `k` phrases a pattern, whatever is read.
    A phrase's `count` is how often it was met; with contextual vectors, where its score differs
    from place to place, how often it was met with a score that was then among the best.

    Only documents that some pattern matches well enough are looked into, and only matches that
    are among the best in the end are aligned, for which their documents are read again.

    Arguments:
        subject: whose patterns are read.
        k: phrases to keep of each.
    """

    def __init__(self, subject: Subject, k: int) -> None:
        self.subject = subject
        self.k = k
        # the best so far of each pattern, by phrase
        self._tables: list[dict[Hashable, Found]] = [{} for _ in subject.names]
        # what a match must score to be among the best of its pattern or to repeat one of them
        self._floors = [float("-inf")] * len(subject.names)
        self._read = 0

    def add(self, documents: Sequence[Any], scored: ArcScores) -> None:
        """Reads some more documents, which share the new words of those before."""
        sums = scored.path_semiring != scored.semiring
        scores = document_scores(*scored.path_operands) if sums else scored.scores
        best = scores.cpu().numpy()
        if not self.subject.contextual:
            self._raise_floors(best)
        # those that may be among the best or repeat one of them
        floors = np.array(self._floors)
        where, patterns = np.nonzero(best >= floors)
        given = where, patterns, floors[patterns]
        found = spans_above(*scored.path_operands, *given)
        numbers, patterns = where[found.pairs], patterns[found.pairs]
        order = np.lexsort((-found.scores, patterns))  # equal ones stay in order of position
        ends = found.ends - scored.arcs.offsets.cpu().numpy()[numbers]
        columns = patterns, found.scores, numbers, ends, found.firsts, found.ends
        ids = scored.ids
        for pattern, score, number, length, start, end in zip(
            *(column[order].tolist() for column in columns), strict=True
        ):
            if score < self._floors[pattern]:
                continue
            best, key = self._tables[pattern], ids[start:end].tobytes()
            known = best.get(key)
            if known is not None and -score >= known.loss - _noise(known.loss):
                known.count += 1
                continue
            count = 1 if known is None else known.count + 1
            best[key] = Found(-score, self._read + number, length, key, documents[number], count)
            if len(best) > self.k:
                del best[max(best.values()).key]
            if len(best) == self.k:
                worst = max(best.values()).loss
                self._floors[pattern] = -worst - _noise(worst)
        self._read += len(documents)

    def matches(self) -> list[tuple[Match, ...]]:
        """The best matches of each pattern, best first."""
        every = [
            (number, place, each)
            for number, best in enumerate(self._tables)
            for place, each in enumerate(sorted(best.values()))
        ]
        every.sort(key=lambda found: found[2].document)
        spelt: dict[tuple[int, int], Match] = {}
        for start in range(0, len(every), ALIGNED_AT_ONCE):
            some = every[start : start + ALIGNED_AT_ONCE]
            sources = {each.document: each.source for *_, each in some}
            texts = list(sources.values())
            scored = ArcScores.of(self.subject, self.subject.read(texts))
            layout, semiring, arcs = scored.path_operands
            words = dict(zip(sources, self.subject.words(texts), strict=True))
            firsts = dict(zip(sources, arcs.offsets.tolist(), strict=False))
            tokens = np.array([firsts[each.document] + each.end - 1 for *_, each in some])
            found = end_scores(layout, semiring, arcs)
            ends = Ends.at(found, arcs.offsets, tokens, np.array([number for number, *_ in some]))
            paths = trace(layout, arcs, found.steps.cpu().numpy(), ends)
            numbers = [each.document for *_, each in some]
            matches = spell(
                self.subject,
                # scores as they were met: with other documents around they may be rounded otherwise
                [
                    replace(path, score=-each.loss)
                    for path, (*_, each) in zip(paths, some, strict=True)
                ],
                [words[number] for number in numbers],
                numbers,
                [each.count for *_, each in some],
            )
            places = [(number, place) for number, place, _ in some]
            spelt |= zip(places, matches, strict=True)
        return [
            tuple(spelt[number, place] for place in range(len(best)))
            for number, best in enumerate(self._tables)
        ]

    def _raise_floors(self, best: NDArray[np.floating]) -> None:
        """By the best scores of documents, `[B, K]`: where k differ, so do k phrases."""
        highest = -np.sort(-best, axis=0)
        differs = highest[1:] < highest[:-1] - _noise(highest[:-1])
        # shape: [B, K]; how many scores differ down to each
        ranks = np.cumsum(np.pad(differs, ((1, 0), (0, 0)), constant_values=True), axis=0)
        row = np.argmax(ranks == self.k, axis=0)
        reached = np.take_along_axis(highest, row[None], axis=0)[0]
        floors = np.where((ranks >= self.k).any(axis=0), reached - _noise(reached), -np.inf)
        self._floors = np.maximum(self._floors, floors).tolist()


def _noise(score: Any) -> Any:
    """What scores may differ by from one batch to another; repeats of a phrase do."""
    return 1e-5 * (1.0 + abs(score))
