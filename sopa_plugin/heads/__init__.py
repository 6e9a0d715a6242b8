"""Heads: what turns a document vector into class scores."""

from __future__ import annotations

from sopa_plugin.heads.classifier_head import ClassifierHead
from sopa_plugin.heads.linear import LinearHead
from sopa_plugin.heads.mlp import MlpHead

__all__ = ["ClassifierHead", "LinearHead", "MlpHead"]
