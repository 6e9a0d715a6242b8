"""Rules that people write: read, checked, made patterns."""

from __future__ import annotations

from sopa_plugin.rules.rule import Rule, Rules

__all__ = ["Rule", "Rules"]
