"""Matches of a subject's patterns in encoded documents, aligned to words and states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.encoders import boundary_tokens
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.match import Match, Step
from sopa_plugin.interpret.match_starts import find_starts
from sopa_plugin.interpret.subject import Encoded, Subject
from sopa_plugin.wfsa import ArcEncoding, Layout, Semiring, best_matches, document_scores
from sopa_plugin.wfsa.dispatch import MAX_SEMIRINGS
from sopa_plugin.wfsa.kernels.plan import columns_of
from sopa_plugin.wfsa.paths import Arc, trace

BEST_PATH = {"log": "max_sum", "sum_product": "max_product"}
"""The semiring that finds the best path where the encoder's own sums over all of them."""

BEFORE, AFTER = "‹s›", "‹/s›"
"""How the tokens that an encoder puts around documents (`boundary_tokens`) are written."""


@dataclass(frozen=True)
class ArcScores:
    """Arc scores of encoded documents, with boundary tokens where the encoder puts them.

    `scores [N, R]`, `index [M]`, `offsets [B + 1]` and `epsilon [Q]` are the operator's, in a
    semiring that selects (`semiring`); `width` boundary tokens stand on each side of a document.
    `ids [M]` are equal where tokens are the same word or boundary token.
    """

    layout: Layout
    semiring: str
    scores: Tensor
    index: Tensor
    offsets: Tensor
    epsilon: Tensor
    width: int
    ids: NDArray[np.int64]

    @property
    def algebra(self) -> Semiring:
        """The semiring itself."""
        return Semiring.named(self.semiring)

    @property
    def operands(self) -> tuple[Layout, str, Tensor, Tensor, Tensor, Tensor]:
        """What the operator takes."""
        return self.layout, self.semiring, self.scores, self.index, self.offsets, self.epsilon

    def of(self, documents: NDArray[np.int64]) -> ArcScores:
        """The same for some of the documents."""
        bounds = self.offsets.cpu().numpy()
        lengths = np.diff(bounds)[documents]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        # shape: [tokens]; where those documents' tokens are
        tokens = np.arange(offsets[-1]) + np.repeat(bounds[documents] - offsets[:-1], lengths)
        return replace(
            self,
            index=self.index[torch.from_numpy(tokens).to(self.index.device)],
            offsets=torch.from_numpy(offsets).to(self.offsets.device),
            ids=self.ids[tokens],
        )


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


def arc_scores(subject: Subject, encoded: Encoded) -> ArcScores:
    """What the patterns' arcs score on each token, in the semiring of best paths."""
    encoder, semiring = subject.encoder, best_path_semiring(subject)
    index, offsets, width = encoded.index, encoded.offsets, encoder.boundary_width
    with torch.no_grad():
        if encoded.arcs is not None:
            scores, epsilon = encoded.arcs
            if width:
                index, offsets = boundary_tokens.wrap(index, offsets, len(scores) - 1, width)
        else:
            rows, index, offsets = encoder.wrap(encoded.rows, index, offsets)
            scores, epsilon = encoder.arc_scores(rows)
        scores, epsilon = scores.detach(), epsilon.detach()
        if encoder.options.semiring == "sum_product":  # max-product holds logarithms
            scores, epsilon = scores.log(), epsilon.log()
    ids = _with_boundaries(encoded, width)
    return ArcScores(encoder.layout, semiring, scores, index, offsets, epsilon, width, ids)


def _with_boundaries(encoded: Encoded, width: int) -> NDArray[np.int64]:
    """The ids of all tokens; -1 for a boundary token before a document, -2 for one after it."""
    if not width:
        return encoded.ids
    ids, offsets = torch.from_numpy(encoded.ids), encoded.offsets.cpu()
    ids, offsets = boundary_tokens.wrap(ids, offsets, -1, width)
    for back in range(1, width + 1):
        ids[offsets[1:] - back] = -2
    return ids.numpy()


class Path(NamedTuple):
    """The best path of `pattern` that ends after `end` tokens: arcs, and what each scores."""

    pattern: int
    end: int
    score: float
    arcs: tuple[Arc, ...]
    values: tuple[float, ...]

    @property
    def start(self) -> int:
        """Tokens before the match."""
        return self.end - sum(arc.token is not None for arc in self.arcs)


class Aligner:
    """Spells out matches that end at given tokens.

    Arguments:
        arcs: the arc scores of the documents.
    """

    def __init__(self, arcs: ArcScores) -> None:
        self.arcs = arcs
        self.best = best_matches(*arcs.operands)
        self._steps = self.best.steps.cpu().numpy()
        self._offsets = arcs.offsets.cpu().numpy()
        self._scores = arcs.scores.cpu().numpy()
        self._index = arcs.index.cpu().numpy()
        self._epsilon = arcs.epsilon.cpu().numpy()

    def best_path(self, document: int, pattern: int) -> Path | None:
        """The path of the best match in a document, None where there is none."""
        end = int(self.best.ends[document, pattern])
        score = float(self.best.scores[document, pattern])
        return self.path(document, pattern, end, score) if end >= 0 else None

    def path(self, document: int, pattern: int, end: int, score: float) -> Path:
        """The path of the best match of `pattern` that ends after `end` tokens.

        Whether it ends with an epsilon is told by `score`, the match's: the path that adds up to it
        is the one. Of two that do, the one without.
        """
        start, stop = self._offsets[document : document + 2]
        layout = self.arcs.layout
        finals = (False, True) if layout.epsilons and layout.final_epsilon else (False,)
        candidates = []
        for final in finals:
            arcs = trace(layout, self._steps[start:stop], pattern, end, final)
            values = tuple(self._value(arc, pattern, start) for arc in arcs)
            whole = bool(arcs) and arcs[0].state == 0
            difference = abs(self._product(values) - score) if whole else float("inf")
            candidates.append((difference, final, Path(pattern, end, score, arcs, values)))
        return min(candidates, key=lambda each: each[:2])[2]

    def starts(
        self, patterns: NDArray[np.int64], tokens: NDArray[np.int64], scores: NDArray[np.floating]
    ) -> NDArray[np.int64]:
        """The first token of the best match of each pattern given that ends at the token given.

        All are `[matches]`. Tokens are counted over all documents; an empty match starts after
        its last token.
        """
        layout = self.arcs.layout
        documents = np.searchsorted(self._offsets, tokens, side="right") - 1
        firsts = self._offsets[documents]
        if self.arcs.semiring not in MAX_SEMIRINGS:
            columns = documents, patterns, tokens + 1 - firsts, scores
            found = zip(*(column.tolist() for column in columns), strict=True)
            paths = [self.path(*each) for each in found]
            return firsts + np.array([path.start for path in paths], dtype=np.int64)
        starts = np.empty(len(tokens), dtype=np.int64)
        find_starts(
            columns_of(layout),
            layout.epsilons and layout.final_epsilon,
            not layout.empty_matches,
            np.asarray(self._scores, dtype=np.float32),
            self._index,
            np.asarray(self._epsilon, dtype=np.float32),
            self._steps,
            patterns,
            tokens,
            firsts,
            np.asarray(scores, dtype=np.float32),
            starts,
        )
        return starts

    def _value(self, arc: Arc, pattern: int, start: int) -> float:
        layout = self.arcs.layout
        blocks = {"main_path": layout.main_path, "self_loop": layout.loops}
        block = blocks.get(arc.kind, layout.epsilon_arcs)[arc.state]
        if block is None:  # a wrong guess at how the path ends
            return float(self.arcs.algebra.zero)
        column = block.start + pattern - block.first_pattern
        if arc.token is None:
            return float(self._epsilon[column])
        return float(self._scores[self._index[start + arc.token], column])

    def _product(self, values: tuple[float, ...]) -> float:
        if self.arcs.semiring in MAX_SEMIRINGS:
            return math.fsum(values)
        return float(self.arcs.algebra.prod(torch.tensor(values, dtype=torch.float64), dim=0))


def spell(
    subject: Subject,
    path: Path,
    words: Sequence[str],
    document: int = 0,
    count: int = 1,
    width: int | None = None,
) -> Match:
    """A path in words.

    Positions are those of the document without its boundary tokens, `width` before it; with
    `width=0`, and `words` that hold them, they are counted.
    """
    width = subject.encoder.boundary_width if width is None else width
    length = len(words)
    algebra = Semiring.named(best_path_semiring(subject))
    values = torch.tensor([*path.values, path.score], dtype=torch.float64)
    *shown, score = algebra.to_score(values).tolist()
    steps = []
    for arc, value in zip(path.arcs, shown, strict=True):
        position = None if arc.token is None else arc.token - width
        token = None if position is None else word_at(words, position)
        steps.append(Step(arc.kind, arc.state, value, position, token))
    return Match(
        subject.names[path.pattern],
        subject.encoder.layout.lengths[path.pattern],
        score,
        document,
        min(max(path.start - width, 0), length),
        min(max(path.end - width, 0), length),
        tuple(steps),
        count,
    )


def word_at(words: Sequence[str], position: int) -> str:
    """The word at a position; a boundary token before the first and after the last."""
    return BEFORE if position < 0 else AFTER if position >= len(words) else words[position]


def scores_of_documents(subject: Subject, encoded: Encoded, arcs: ArcScores) -> Tensor:
    """Document scores `[B, K]` as the encoder's own semiring holds them."""
    with torch.no_grad():
        if subject.encoder.options.semiring != arcs.semiring:
            return subject.encoder.pattern_scores(encoded.rows, encoded.index, encoded.offsets)
        return document_scores(*arcs.operands)
