"""Embedders: what turns token ids into vectors."""

from __future__ import annotations

from sopa_plugin.embedders.static import StaticEmbedder
from sopa_plugin.embedders.token_embedder import TokenEmbedder
from sopa_plugin.embedders.transformer import TransformerEmbedder

__all__ = ["StaticEmbedder", "TokenEmbedder", "TransformerEmbedder"]
