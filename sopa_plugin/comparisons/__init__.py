"""Comparisons of models: searches, whole tables of them, learning curves."""

from sopa_plugin.comparisons.description import Description
from sopa_plugin.comparisons.report import write_report, write_search_report
from sopa_plugin.comparisons.runner import Runner, run_search
from sopa_plugin.comparisons.space import Parameter, Search

__all__ = [
    "Description",
    "Parameter",
    "Runner",
    "Search",
    "run_search",
    "write_report",
    "write_search_report",
]
