"""What `python -m sopa_plugin.bench` measures: soft patterns beside their alternatives."""

from __future__ import annotations

from sopa_plugin.benchmarks.run import SECTIONS, run_benchmarks

__all__ = ["SECTIONS", "run_benchmarks"]
