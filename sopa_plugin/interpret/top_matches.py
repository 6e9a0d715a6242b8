"""The k best matches of each pattern over any number of documents, exactly and in one pass."""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.interpret.match import Match
from sopa_plugin.interpret.matching import ArcScores, spell
from sopa_plugin.interpret.subject import Subject
from sopa_plugin.wfsa import Ends, Semiring, end_scores, first_tokens, trace

ALIGNED_AT_ONCE = 1024
"""Matches that are aligned at once."""


@dataclass(order=True)
class Found:
    """A phrase among the best, ordered from best to worst: its best match, met first where.

    Arguments:
        loss: the match's score, negated.
        document: which document it was met in.
        end: tokens up to the match's end, boundary tokens included.
        key: what is equal for repeats of the phrase.
        source: the document itself.
        count: how often it was met.
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
        # the best so far of each pattern: by phrase, and from best to worst
        self._tables: list[dict[Hashable, Found]] = [{} for _ in subject.names]
        self._ranked: list[list[Found]] = [[] for _ in subject.names]
        # what a match must score to be among the best of its pattern or to repeat one of them
        self._floors = [float("-inf")] * len(subject.names)
        self._read = 0

    def add(self, documents: Sequence[Any], scored: ArcScores) -> None:
        """Reads some more documents."""
        layout, semiring, arcs = scored.path_operands
        chosen = np.flatnonzero(self._enough(scored.best_scores, semiring).any(axis=1))
        all_bounds = arcs.offsets.cpu().numpy()
        lengths = np.diff(all_bounds)[chosen]
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        # shape: [tokens]; where the chosen documents' tokens are among all
        places = np.arange(bounds[-1]) + np.repeat(all_bounds[chosen] - bounds[:-1], lengths)
        arcs = arcs._replace(
            index=arcs.index[torch.from_numpy(places).to(arcs.index.device)],
            offsets=torch.from_numpy(bounds).to(arcs.offsets.device),
        )
        ids, found = scored.ids[places], end_scores(layout, semiring, arcs)
        tokens, patterns = np.nonzero(self._enough(found.scores, semiring))
        scores = found.scores.cpu().numpy()[tokens, patterns]
        order = np.lexsort((-scores, patterns))  # equal ones stay in order of position
        tokens, patterns, scores = tokens[order], patterns[order], scores[order]
        ends = Ends.at(found, arcs.offsets, tokens, patterns)
        starts = first_tokens(layout, found.steps.cpu().numpy(), ends)
        numbers = chosen[np.searchsorted(bounds, tokens, side="right") - 1]
        columns = patterns, scores, numbers, tokens + 1 - ends.firsts, starts, ends.ends
        for pattern, score, number, length, start, end in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            if score >= self._floors[pattern]:
                key = ids[start:end].tobytes()
                document = self._read + number
                self._keep(pattern, Found(-score, document, length, key, documents[number]))
        self._read += len(documents)

    def matches(self) -> list[tuple[Match, ...]]:
        """The best matches of each pattern, best first."""
        every = [(pattern, each) for pattern, ranked in enumerate(self._ranked) for each in ranked]
        every.sort(key=lambda pair: pair[1].document)
        spelt: dict[tuple[int, int, int], Match] = {}
        for start in range(0, len(every), ALIGNED_AT_ONCE):
            some = every[start : start + ALIGNED_AT_ONCE]
            sources = {each.document: each.source for _, each in some}
            texts = list(sources.values())
            scored = ArcScores.of(self.subject, self.subject.read(texts))
            layout, semiring, arcs = scored.path_operands
            words = dict(zip(sources, self.subject.words(texts), strict=True))
            firsts = dict(zip(sources, arcs.offsets.tolist(), strict=False))
            tokens = np.array([firsts[each.document] + each.end - 1 for _, each in some])
            patterns = np.array([pattern for pattern, _ in some])
            found = end_scores(layout, semiring, arcs)
            ends = Ends.at(found, arcs.offsets, tokens, patterns)
            paths = trace(layout, arcs, found.steps.cpu().numpy(), ends)
            for (pattern, each), path in zip(some, paths, strict=True):
                # the score as it was met: with other documents around it may be rounded otherwise
                path = replace(path, score=-each.loss)
                spelt[pattern, each.document, each.end] = spell(
                    self.subject, path, words[each.document], each.document, each.count
                )
        return [
            tuple(spelt[pattern, each.document, each.end] for each in ranked)
            for pattern, ranked in enumerate(self._ranked)
        ]

    def _enough(self, scores: Tensor, semiring: str) -> NDArray[np.bool_]:
        """Which `scores [..., K]` are of a match that may be among the best or repeat one."""
        held, zero = scores.cpu().numpy(), Semiring.named(semiring).zero
        enough: NDArray[np.bool_] = (held >= np.array(self._floors)) & (held != zero)
        return enough

    def _keep(self, pattern: int, found: Found) -> None:
        table, ranked = self._tables[pattern], self._ranked[pattern]
        known = table.get(found.key)
        if known is not None:
            known.count += 1
            if found.loss >= known.loss - _noise(known.loss):
                return
            found.count = known.count
            ranked.remove(known)
        table[found.key] = found
        insort(ranked, found)
        if len(ranked) > self.k:
            del table[ranked.pop().key]
        if len(ranked) == self.k:
            worst = ranked[-1].loss
            self._floors[pattern] = -worst - _noise(worst)


def _noise(score: float) -> float:
    """What a score may differ by from one batch to another; repeats of a phrase do."""
    return 1e-5 * max(1.0, abs(score))
