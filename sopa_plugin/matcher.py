"""The former name of `sopa_plugin.compiled`, kept for one release."""

from __future__ import annotations

from sopa_plugin.compiled import load_matcher

__all__ = ["load_matcher"]
