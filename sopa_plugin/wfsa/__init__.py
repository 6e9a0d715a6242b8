"""Soft patterns as weighted finite-state automata (paper, sections 2 and 3). Needs torch alone."""

from __future__ import annotations

from sopa_plugin.wfsa.encodings import ArcEncoding
from sopa_plugin.wfsa.layout import Layout
from sopa_plugin.wfsa.operator import BestMatches, best_matches, document_scores, end_scores
from sopa_plugin.wfsa.semirings import Semiring

__all__ = [
    "ArcEncoding",
    "BestMatches",
    "Layout",
    "Semiring",
    "best_matches",
    "document_scores",
    "end_scores",
]
