"""Models: `import sopa_plugin.models` makes them known to transformers' Auto classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, AutoModelForSequenceClassification

from sopa_plugin.models.bags import BagOfVectors, Tfidf
from sopa_plugin.models.hard_patterns import HardPatterns
from sopa_plugin.models.model import Model
from sopa_plugin.models.neural_model import NeuralModel, TextClassifierConfig
from sopa_plugin.models.saved import load_model, model_from_bytes, model_to_bytes

if TYPE_CHECKING:
    from sopa_plugin.models.text_classifier import TextClassifier

__all__ = [
    "BagOfVectors",
    "HardPatterns",
    "Model",
    "NeuralModel",
    "TextClassifier",
    "TextClassifierConfig",
    "Tfidf",
    "load_model",
    "model_from_bytes",
    "model_to_bytes",
]


def the_text_classifier() -> Any:
    """The class `TextClassifier`, imported."""
    from sopa_plugin.models.text_classifier import TextClassifier

    return TextClassifier


@Model.register("text_classifier", constructor="from_parts")
class OnDemand(NeuralModel):
    """Stands for `TextClassifier` until one is built or loaded, which puts itself in this place."""

    def __new__(cls, config: TextClassifierConfig) -> Any:
        return the_text_classifier()(config)

    @classmethod
    def load(cls, folder: Path) -> Any:
        return the_text_classifier().load(folder)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        return the_text_classifier().from_pretrained(*args, **kwargs)

    @classmethod
    def _from_config(cls, config: TextClassifierConfig, **kwargs: Any) -> Any:
        return the_text_classifier()._from_config(config, **kwargs)


def __getattr__(name: str) -> Any:
    if name == "TextClassifier":  # transformers' models take seconds to import
        return the_text_classifier()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


AutoConfig.register(TextClassifierConfig.model_type, TextClassifierConfig, exist_ok=True)
AutoModelForSequenceClassification.register(TextClassifierConfig, OnDemand, exist_ok=True)
