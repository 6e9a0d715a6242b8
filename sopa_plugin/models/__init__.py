"""Models: `import sopa_plugin.models` makes them known to transformers' Auto classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sopa_plugin.models.auto import the_text_classifier
from sopa_plugin.models.bag_of_vectors import BagOfVectors
from sopa_plugin.models.hard_patterns import HardPatterns
from sopa_plugin.models.model import Model, load_model, model_from_bytes, model_to_bytes
from sopa_plugin.models.neural_model import NeuralModel, TextClassifierConfig
from sopa_plugin.models.tfidf import Tfidf

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


def __getattr__(name: str) -> Any:
    if name == "TextClassifier":  # transformers' models take seconds to import
        return the_text_classifier()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
