"""Soft patterns as weighted finite-state automata (paper, sections 2 and 3). Needs torch alone."""

from __future__ import annotations

from sopa_plugin.wfsa.encodings import ArcEncoding
from sopa_plugin.wfsa.layout import Arcs, BestMatches, EndScores, Layout
from sopa_plugin.wfsa.operator import best_matches, document_scores, end_scores
from sopa_plugin.wfsa.paths import (
    Arc,
    Ends,
    Path,
    Taken,
    arcs_taken,
    first_tokens,
    k_best_matches,
    scores_of_arcs,
    span_scores,
    spell_out,
    trace,
)
from sopa_plugin.wfsa.products import arc_products
from sopa_plugin.wfsa.semirings import Semiring

__all__ = [
    "Arc",
    "ArcEncoding",
    "Arcs",
    "BestMatches",
    "EndScores",
    "Ends",
    "Layout",
    "Path",
    "Semiring",
    "Taken",
    "arc_products",
    "arcs_taken",
    "best_matches",
    "document_scores",
    "end_scores",
    "first_tokens",
    "k_best_matches",
    "scores_of_arcs",
    "span_scores",
    "spell_out",
    "trace",
]
