"""Matches of a subject's patterns in encoded documents, aligned to words and states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.encoders import boundary_tokens
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.match import Match, Step
from sopa_plugin.interpret.subject import Encoded, Subject
from sopa_plugin.wfsa import (
    ArcEncoding,
    Arcs,
    Ends,
    EndScores,
    Layout,
    Path,
    Semiring,
    best_matches,
    document_scores,
    end_scores,
    first_tokens,
    spell_out,
    trace,
)

BEST_PATH = {"log": "max_sum", "sum_product": "max_product"}
"""The semiring that finds the best path where the encoder's own sums over all of them."""

BEFORE, AFTER = "‹s›", "‹/s›"
"""How the tokens that an encoder puts around documents (`boundary_tokens`) are written."""


@dataclass(frozen=True)
class ArcScores:
    """Arc scores of encoded documents, with boundary tokens where the encoder puts them.

    `arcs` are the operator's, in a semiring that selects (`semiring`); `width` boundary tokens
    stand on each side of a document. `ids [M]` are equal where tokens are the same word or boundary
    token.
    """

    layout: Layout
    semiring: str
    arcs: Arcs
    width: int
    ids: NDArray[np.int64]

    @property
    def algebra(self) -> Semiring:
        """The semiring itself."""
        return Semiring.named(self.semiring)

    @property
    def operands(self) -> tuple[Layout, str, Arcs]:
        """What the operator takes."""
        return self.layout, self.semiring, self.arcs

    def of(self, documents: NDArray[np.int64]) -> ArcScores:
        """The same for some of the documents."""
        bounds = self.arcs.offsets.cpu().numpy()
        lengths = np.diff(bounds)[documents]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        # shape: [tokens]; where those documents' tokens are
        tokens = np.arange(offsets[-1]) + np.repeat(bounds[documents] - offsets[:-1], lengths)
        arcs = self.arcs._replace(
            index=self.arcs.index[torch.from_numpy(tokens).to(self.arcs.index.device)],
            offsets=torch.from_numpy(offsets).to(self.arcs.offsets.device),
        )
        return replace(self, arcs=arcs, ids=self.ids[tokens])


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
    arcs = Arcs(scores, index, offsets, epsilon)
    return ArcScores(encoder.layout, semiring, arcs, width, ids)


def _with_boundaries(encoded: Encoded, width: int) -> NDArray[np.int64]:
    """The ids of all tokens; -1 for a boundary token before a document, -2 for one after it."""
    if not width:
        return encoded.ids
    ids, offsets = torch.from_numpy(encoded.ids), encoded.offsets.cpu()
    ids, offsets = boundary_tokens.wrap(ids, offsets, -1, width)
    for back in range(1, width + 1):
        ids[offsets[1:] - back] = -2
    return ids.numpy()


class Aligner:
    """Spells out matches that end at given tokens.

    Arguments:
        arcs: the arc scores of the documents.
    """

    def __init__(self, arcs: ArcScores) -> None:
        self.arcs = arcs

    @cached_property
    def found(self) -> EndScores:
        """What matches score that end at each token."""
        return end_scores(*self.arcs.operands)

    @cached_property
    def _steps(self) -> NDArray[np.uint8]:
        steps: NDArray[np.uint8] = self.found.steps.cpu().numpy()
        return steps

    @cached_property
    def _best(self) -> list[list[Path | None]]:
        return spell_out(self.arcs.layout, self.arcs.arcs, best_matches(*self.arcs.operands))

    def best_path(self, document: int, pattern: int) -> Path | None:
        """The path of the best match in a document, None where there is none."""
        return self._best[document][pattern]

    def paths(self, patterns: NDArray[np.int64], tokens: NDArray[np.int64]) -> list[Path]:
        """The best path of each pattern given that ends at the token given, all `[matches]`.

        Tokens are counted over all documents.
        """
        return trace(self.arcs.layout, self.arcs.arcs, self._steps, self._ends(patterns, tokens))

    def starts(self, patterns: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first tokens of those paths; an empty one starts after its last token."""
        return first_tokens(self.arcs.layout, self._steps, self._ends(patterns, tokens))

    def _ends(self, patterns: NDArray[np.int64], tokens: NDArray[np.int64]) -> Ends:
        return Ends.at(self.found, self.arcs.arcs.offsets, tokens, patterns)


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
    values = torch.tensor([*(arc.score for arc in path.arcs), path.score], dtype=torch.float64)
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
