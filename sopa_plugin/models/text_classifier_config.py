"""The configuration of the text classifier, as transformers has one for each model."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig


class TextClassifierConfig(PreTrainedConfig):
    """What a `TextClassifier` is built from, with no file but its own.

    Attributes:
        embedder, encoder, head: the parts' `type` and constructor arguments.
        sopa_plugin: what made the model (see `sopa_plugin.models.model.record`).
    """

    model_type = "sopa_text_classifier"

    embedder: dict[str, Any] | None = None
    encoder: dict[str, Any] | None = None
    head: dict[str, Any] | None = None
    sopa_plugin: dict[str, Any] | None = None
    pad_token_id: int | None = None
