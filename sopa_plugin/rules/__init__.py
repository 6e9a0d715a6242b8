"""Rules that people write, as soft patterns whose arcs are sure."""

from __future__ import annotations

from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.rules.rule import Rule, Rules

__all__ = ["Rule", "RuleMatcher", "Rules"]
