"""Models: `import sopa_plugin.models` makes them known to transformers' Auto classes."""

from __future__ import annotations

from transformers import AutoConfig, AutoModelForSequenceClassification

from sopa_plugin.models.bag_of_vectors import BagOfVectors
from sopa_plugin.models.hard_patterns import HardPatterns
from sopa_plugin.models.model import Model, load_model
from sopa_plugin.models.text_classifier import TextClassifier
from sopa_plugin.models.text_classifier_config import TextClassifierConfig
from sopa_plugin.models.tfidf import Tfidf

AutoConfig.register(TextClassifierConfig.model_type, TextClassifierConfig, exist_ok=True)
AutoModelForSequenceClassification.register(TextClassifierConfig, TextClassifier, exist_ok=True)

__all__ = [
    "BagOfVectors",
    "HardPatterns",
    "Model",
    "TextClassifier",
    "TextClassifierConfig",
    "Tfidf",
    "load_model",
]
