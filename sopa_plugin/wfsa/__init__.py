"""Soft patterns as weighted finite-state automata (paper, sections 2 and 3). Needs torch alone.

Names are looked up when they are used: the CPU kernels need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        next_scores,
        scores_of_arcs,
        span_scores,
        spans_above,
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
    "next_scores",
    "scores_of_arcs",
    "span_scores",
    "spans_above",
    "spell_out",
    "trace",
]

_MODULES = ("layout", "encodings", "semirings", "operator", "products", "paths")
"""In the order in which they import one another, so that the first that has a name defines it."""


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        found = import_module(f"{__name__}.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
