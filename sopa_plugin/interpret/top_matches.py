"""The k best matches of each pattern over any number of documents, exactly and in one pass."""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.interpret.match import Match
from sopa_plugin.interpret.matching import Aligner, ArcScores, arc_scores, spell
from sopa_plugin.interpret.subject import Subject

ALIGNED_AT_ONCE = 1024
"""Documents whose matches are aligned at once."""


@dataclass(eq=False)
class Found:
    """A phrase among the best: its best match, where it was met first, how often.

    Arguments:
        rank: orders from best to worst: the score, negated, and the position: the document and
            the tokens up to the match's end, boundary tokens included.
        key: what is equal for repeats of the phrase.
        source: the document itself.
        count: how often it was met.
    """

    rank: tuple[float, int, int]
    key: Hashable
    source: Any
    count: int = 1

    @property
    def score(self) -> float:
        """The match's score."""
        return -self.rank[0]

    @property
    def document(self) -> int:
        """Which document it was met in."""
        return self.rank[1]

    @property
    def end(self) -> int:
        """Tokens up to the match's end."""
        return self.rank[2]


_rank = attrgetter("rank")


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
        # the best so far of each pattern: by phrase, and from best to worst
        self._tables: list[dict[Hashable, Found]] = [{} for _ in subject.names]
        self._ranked: list[list[Found]] = [[] for _ in subject.names]
        # what a match must score to be among the best of its pattern or to repeat one of them
        self._floors = [float("-inf")] * len(subject.names)
        self._read = 0

    def add(self, documents: Sequence[Any], arcs: ArcScores, best: Tensor) -> None:
        """Reads some more documents, whose best matches score `best [B, K]`."""
        chosen = np.flatnonzero(self._enough(best, arcs).any(axis=1))
        arcs = arcs.of(chosen)
        aligner = Aligner(arcs)
        ends = aligner.found.scores
        tokens, patterns = np.nonzero(self._enough(ends, arcs))
        scores = ends.cpu().numpy()[tokens, patterns]
        order = np.lexsort((-scores, patterns))  # equal ones stay in order of position
        tokens, patterns, scores = tokens[order], patterns[order], scores[order]
        starts = aligner.starts(patterns, tokens)
        bounds = arcs.arcs.offsets.cpu().numpy()
        places = np.searchsorted(bounds, tokens, side="right") - 1
        columns = patterns, scores, chosen[places], tokens + 1 - bounds[places], starts, tokens
        for pattern, score, document, end, start, token in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            if score >= self._floors[pattern]:
                rank, key = (-score, self._read + document, end), arcs.ids[start : token + 1]
                self._keep(pattern, Found(rank, key.tobytes(), documents[document]))
        self._read += len(documents)

    def matches(self) -> list[tuple[Match, ...]]:
        """The best matches of each pattern, best first."""
        every = [found for ranked in self._ranked for found in ranked]
        wanted = sorted({found.document: found for found in every}.items())
        spelt: dict[tuple[int, int], Match] = {}
        for start in range(0, len(wanted), ALIGNED_AT_ONCE):
            some = dict(wanted[start : start + ALIGNED_AT_ONCE])
            sources = [found.source for found in some.values()]
            arcs = arc_scores(self.subject, self.subject.read(sources))
            words = self.subject.words(sources)
            places = {document: place for place, document in enumerate(some)}
            here = [
                (pattern, rank, places[found.document], found)
                for pattern, ranked in enumerate(self._ranked)
                for rank, found in enumerate(ranked)
                if found.document in places
            ]
            bounds = arcs.arcs.offsets.tolist()
            paths = Aligner(arcs).paths(
                np.array([pattern for pattern, *_ in here]),
                np.array([bounds[place] + found.end - 1 for *_, place, found in here]),
            )
            for (pattern, rank, place, found), path in zip(here, paths, strict=True):
                # as it was met first: with other documents around it may be rounded otherwise
                path = replace(path, score=found.score)
                spelt[pattern, rank] = spell(
                    self.subject, path, words[place], found.document, found.count
                )
        return [
            tuple(spelt[pattern, rank] for rank in range(len(ranked)))
            for pattern, ranked in enumerate(self._ranked)
        ]

    def _enough(self, scores: Tensor, arcs: ArcScores) -> NDArray[np.bool_]:
        """Which `scores [..., K]` are of a match that may be among the best or repeat one."""
        held = scores.cpu().numpy()
        enough: NDArray[np.bool_] = (held >= np.array(self._floors)) & (held != arcs.algebra.zero)
        return enough

    def _keep(self, pattern: int, found: Found) -> None:
        table, ranked = self._tables[pattern], self._ranked[pattern]
        known = table.get(found.key)
        if known is not None:
            known.count += 1
            if found.score <= known.score + _noise(known.score):
                return
            found.count = known.count
            ranked.remove(known)
        table[found.key] = found
        insort(ranked, found, key=_rank)
        if len(ranked) > self.k:
            del table[ranked.pop().key]
        if len(ranked) == self.k:
            lowest = ranked[-1].score
            self._floors[pattern] = lowest - _noise(lowest)


def _noise(score: float) -> float:
    """What a score may differ by from one batch to another; repeats of a phrase do."""
    return 1e-5 * max(1.0, abs(score))
