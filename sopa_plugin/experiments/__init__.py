"""Experiments: random search, comparisons of models, learning curves and their tables."""

from __future__ import annotations

from sopa_plugin.experiments.description import Description
from sopa_plugin.experiments.parameters import Parameter
from sopa_plugin.experiments.report import write_report
from sopa_plugin.experiments.runner import Runner
from sopa_plugin.experiments.search import Search, run_search

__all__ = ["Description", "Parameter", "Runner", "Search", "run_search", "write_report"]
