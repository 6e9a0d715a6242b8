"""Experiments: random search, comparisons of models, learning curves and their tables."""

from __future__ import annotations

from sopa_plugin.comparisons.description import Description
from sopa_plugin.comparisons.parameters import Parameter
from sopa_plugin.comparisons.report import write_report
from sopa_plugin.comparisons.runner import Runner
from sopa_plugin.comparisons.search import Search, run_search

__all__ = ["Description", "Parameter", "Runner", "Search", "run_search", "write_report"]
