"""Matches of a subject's patterns in encoded documents, aligned to words and states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.encoders.sopa_layers import add_boundary_tokens
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.match import Match, Step
from sopa_plugin.interpret.subject import Encoded, Subject
from sopa_plugin.wfsa import (
    ArcEncoding,
    Arcs,
    Layout,
    Path,
    Semiring,
    best_matches,
    document_scores,
    spell_out,
)

BEST_PATH = {"log": "max_sum", "sum_product": "max_product"}
"""The semiring that finds the best path where the encoder's own sums over all of them."""

BEFORE, AFTER = "‹s›", "‹/s›"
"""How the tokens that an encoder puts around documents (`boundary_tokens`) are written."""


@dataclass(frozen=True)
class ArcScores:
    """Some documents with the scores of their arcs, boundary tokens included.

    Attributes:
        encoded: the documents.
        layout: the patterns.
        semiring, arcs: what the encoder scores documents with.
        path_semiring, path_arcs: the same, or where the encoder sums over paths, what finds the
            best one.
        width: boundary tokens on each side of a document.
    """

    encoded: Encoded
    layout: Layout
    semiring: str
    arcs: Arcs
    path_semiring: str
    path_arcs: Arcs
    width: int

    @classmethod
    @torch.no_grad()
    def of(cls, subject: Subject, encoded: Encoded) -> ArcScores:
        """What the patterns' arcs score on each token.

        Raises:
            UserError: The encoder's semiring, over its encoding, has no best paths.
        """
        encoder, path_semiring = subject.encoder, best_path_semiring(subject)
        width, semiring = encoder.boundary_width, encoder.options.semiring
        if encoded.arcs is None:
            *_, arcs = encoder.operands(encoded.rows, encoded.index, encoded.offsets)
        else:
            scores, epsilon = encoded.arcs
            index, offsets = encoded.index, encoded.offsets
            if width:
                index, offsets = add_boundary_tokens(index, offsets, len(scores) - 1, width)
            arcs = Arcs(scores, index, offsets, epsilon)
        path_arcs = arcs
        if semiring == "sum_product":  # max-product holds logarithms
            path_arcs = arcs._replace(scores=arcs.scores.log(), epsilon=arcs.epsilon.log())
        return cls(encoded, encoder.layout, semiring, arcs, path_semiring, path_arcs, width)

    @cached_property
    @torch.no_grad()
    def scores(self) -> Tensor:
        """Document scores `[B, K]` as the encoder's semiring holds them."""
        return document_scores(self.layout, self.semiring, self.arcs)

    @property
    def path_operands(self) -> tuple[Layout, str, Arcs]:
        """What `wfsa.end_scores`, `best_matches`, ... take to find the best paths."""
        return self.layout, self.path_semiring, self.path_arcs

    @cached_property
    @torch.no_grad()
    def best_scores(self) -> Tensor:
        """What the best match of each pattern in each document scores, `[B, K]`."""
        same = self.path_semiring == self.semiring
        return self.scores if same else document_scores(*self.path_operands)

    def best_paths(self) -> list[list[Path | None]]:
        """The best match of each pattern in each document, `[B][K]`; None where there is none."""
        return spell_out(self.layout, self.path_arcs, best_matches(*self.path_operands))

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Equal where tokens are the same word; -1 is a boundary token before a document, -2 after.

        shape: [M].
        """
        if not self.width:
            return self.encoded.ids
        ids, offsets = add_boundary_tokens(
            torch.from_numpy(self.encoded.ids), self.encoded.offsets.cpu(), -1, self.width
        )
        for back in range(1, self.width + 1):
            ids[offsets[1:] - back] = -2
        return ids.numpy()


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
    path: Path,
    words: Sequence[str],
    document: int = 0,
    count: int = 1,
    count_boundaries: bool = False,
) -> Match:
    """A path in words.

    Positions are those of `words`, the document without its boundary tokens; with
    `count_boundaries`, those of the document with them.
    """
    tokens = with_boundaries(subject, words)
    width = 0 if count_boundaries else subject.encoder.boundary_width
    length = len(tokens) - 2 * width
    algebra = Semiring.named(best_path_semiring(subject))
    values = torch.tensor([*(arc.score for arc in path.arcs), path.score], dtype=torch.float64)
    *shown, score = algebra.to_score(values).tolist()
    steps = tuple(
        Step(arc.kind, arc.state, value)
        if arc.token is None
        else Step(arc.kind, arc.state, value, arc.token - width, tokens[arc.token])
        for arc, value in zip(path.arcs, shown, strict=True)
    )
    start, end = (min(max(each - width, 0), length) for each in (path.start, path.end))
    states = subject.encoder.layout.lengths[path.pattern]
    return Match(subject.names[path.pattern], states, score, document, start, end, steps, count)
