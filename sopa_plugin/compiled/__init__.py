"""Trained classifiers compiled to lookups, additions and maxima; needs no torch.

`TextClassifier.to_compiled` compiles a model.
"""

from __future__ import annotations

from sopa_plugin.compiled.classifier import CompiledClassifier, load_compiled, save_compiled

__all__ = ["CompiledClassifier", "load_compiled", "save_compiled"]
