"""Trained classifiers compiled to lookups, additions and maxima; needs torch, not transformers.

`TextClassifier.to_matcher` compiles a model.
"""

from __future__ import annotations

from sopa_plugin.compiled.files import load_matcher, save_matcher
from sopa_plugin.compiled.matcher import Matcher

__all__ = ["Matcher", "load_matcher", "save_matcher"]
