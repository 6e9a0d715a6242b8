"""The k best matches of each pattern over any number of documents, exactly and in one pass."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.interpret.match import Match
from sopa_plugin.interpret.matching import Aligner, ArcScores, Path, scores_at_ends, spell
from sopa_plugin.interpret.subject import Encoded, Subject

Candidates = NDArray[np.int64]


@dataclass
class Found:
    """A phrase among the best: its best match, where it was met first, how often."""

    path: Path
    document: int
    source: Any
    count: int = 1

    @property
    def rank(self) -> tuple[float, int, int]:
        """Orders from best to worst: by score, then by position."""
        return -self.path.score, self.document, self.path.end


class TopMatches:
    """Keeps the `k` best matches of each pattern; repeats of a phrase count once.

    A match is the best path that ends at one token of one document. Ties go to the earlier
    document, then to the earlier end. Memory holds `k` phrases a pattern, whatever is read.
    A phrase's `count` is how often it was met; with contextual vectors, where its score differs
    from place to place, how often it was met with a score that was then among the best.

    Arguments:
        subject: whose patterns are read.
        k: phrases to keep of each.
    """

    def __init__(self, subject: Subject, k: int) -> None:
        self.subject = subject
        self.k = k
        self._tables: list[dict[Hashable, Found]] = [{} for _ in subject.names]
        self._read = 0

    def add(self, documents: Sequence[Any], encoded: Encoded, arcs: ArcScores) -> None:
        """Reads some more documents."""
        # shape: [K, M], a pattern's scores side by side
        ends = np.ascontiguousarray(scores_at_ends(arcs).T)
        zero = arcs.algebra.zero
        waiting = [
            _ranked(scores, max(self._floor(pattern), zero), zero)
            for pattern, scores in enumerate(ends)
        ]
        bounds = arcs.offsets.cpu().numpy()
        size = 2 * self.k
        while any(len(candidates) for candidates in waiting):
            now = [candidates[:size] for candidates in waiting]
            self._consider(documents, encoded, arcs, ends, now, bounds)
            waiting = [
                candidates[size:][ends[pattern, candidates[size:]] >= self._floor(pattern)]
                for pattern, candidates in enumerate(waiting)
            ]
            size *= 2
        self._read += len(documents)

    def matches(self) -> list[tuple[Match, ...]]:
        """The best matches of each pattern, best first."""
        sources = {
            found.document: found.source for table in self._tables for found in table.values()
        }
        words = dict(zip(sources, self.subject.words(list(sources.values())), strict=True))
        return [
            tuple(
                spell(self.subject, found.path, words[found.document], found.document, found.count)
                for found in sorted(table.values(), key=lambda each: each.rank)
            )
            for table in self._tables
        ]

    def _floor(self, pattern: int) -> float:
        """The score that a match must reach to be among the best or to repeat one of them."""
        table = self._tables[pattern]
        if len(table) < self.k:
            return float("-inf")
        worst = min(found.path.score for found in table.values())
        return worst - _noise(worst)

    def _consider(
        self,
        documents: Sequence[Any],
        encoded: Encoded,
        arcs: ArcScores,
        ends: NDArray[np.floating],
        candidates: Sequence[Candidates],
        bounds: NDArray[np.int64],
    ) -> None:
        """Aligns candidates, their documents at once, and keeps what is among the best."""
        numbers = [np.searchsorted(bounds, each, side="right") - 1 for each in candidates]
        needed = np.unique(np.concatenate(numbers))
        places = {int(document): place for place, document in enumerate(needed)}
        aligner = Aligner(arcs.of(needed.tolist()))
        for pattern, (tokens, owners) in enumerate(zip(candidates, numbers, strict=True)):
            for token, document in zip(tokens.tolist(), owners.tolist(), strict=True):
                score = float(ends[pattern, token])
                if score < self._floor(pattern):
                    break
                end = token + 1 - int(bounds[document])
                path = aligner.path(places[document], pattern, end, score)
                key = _key(path, encoded.document_ids(document), arcs.width)
                found = Found(path, self._read + document, documents[document])
                self._keep(self._tables[pattern], key, found)

    def _keep(self, table: dict[Hashable, Found], key: Hashable, found: Found) -> None:
        known = table.get(key)
        if known is not None:
            known.count += 1
            if found.path.score > known.path.score + _noise(known.path.score):
                found.count = known.count
                table[key] = found
            return
        table[key] = found
        if len(table) > self.k:
            worst = max(table, key=lambda each: table[each].rank)
            del table[worst]


def _noise(score: float) -> float:
    """What a score may differ by from one batch to another; repeats of a phrase do."""
    return 1e-5 * max(1.0, abs(score))


def _ranked(scores: NDArray[np.floating], floor: float, zero: float) -> Candidates:
    """The tokens at which a match of `floor` or more ends, best first, then by position."""
    tokens = np.flatnonzero((scores >= floor) & (scores != zero))
    return tokens[np.argsort(-scores[tokens], kind="stable")]


def _key(path: Path, ids: NDArray[np.int64], width: int) -> Hashable:
    """What is equal for repeats of a phrase: its words, and the boundary tokens that it takes."""
    start, end = path.start - width, path.end - width
    inside = ids[max(start, 0) : max(end, 0)]
    before, after = min(end, 0) - min(start, 0), max(end, len(ids)) - max(start, len(ids))
    return inside.tobytes(), before, after
