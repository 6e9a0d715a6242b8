"""The base class of models that are a linear classifier over given features of a document."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sopa_plugin.errors import UserError
from sopa_plugin.models.model import CONFIG_FILE, RECORD, Model, record

WEIGHTS_FILE = "model.safetensors"
FEATURES_FILE = "features.json"

Tensors = dict[str, NDArray]


class LinearModel(Model):
    """A linear classifier over features that are not learned by gradient.

    A subclass says what the features are; the trainer `sklearn` finds the weights. Saved are
    `config.json`, the weights as safetensors, what features there are as `features.json`, and the
    tokenizer. Features are sparse or dense matrices `[texts, features]`.

    Attributes:
        name: the registered name.
        coefficients: `[classes, features]`, or `[1, features]` for two classes: what speaks for the
            second one.
        intercepts: `[classes]` or `[1]`.
    """

    name: ClassVar[str]

    def __init__(self, tokenizer: PreTrainedTokenizerBase, labels: list[str]) -> None:
        self.tokenizer = tokenizer
        self.labels = list(labels)
        self.coefficients = np.zeros((1, 0))
        self.intercepts = np.zeros(1)

    @abstractmethod
    def fit_features(self, texts: Sequence[str]) -> Any:
        """Decides from training texts what the features are; those texts' features."""

    @abstractmethod
    def features(self, texts: Sequence[str]) -> Any:
        """The features of any texts, `[texts, features]`."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Constructor arguments of a config, as JSON."""

    @abstractmethod
    def feature_state(self) -> tuple[Any, Tensors]:
        """What `fit_features` decided: JSON, and numbers."""

    @abstractmethod
    def set_feature_state(self, description: Any, tensors: Tensors) -> None:
        """Takes what `feature_state` gave."""

    def log_probabilities(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`."""
        if len(texts) == 0:
            return np.zeros((0, len(self.labels)))
        scores = np.asarray(self.features(texts) @ self.coefficients.T) + self.intercepts
        if scores.shape[1] == 1 and len(self.labels) == 2:
            scores = np.hstack([np.zeros_like(scores), scores])
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)  # type: ignore[no-any-return]

    def parameter_counts(self) -> dict[str, int]:
        """`total`, `trainable` and the number of `features`, by which the paper counts."""
        total = self.coefficients.size + self.intercepts.size
        return {
            "total": total,
            "trainable": total,
            "features": self.coefficients.shape[1],
        }

    def save(self, folder: Path) -> None:
        """Writes the model into a folder."""
        description, tensors = self.feature_state()
        config = {
            RECORD: record(self.name),
            "arguments": self.arguments(),
            "labels": self.labels,
        }
        weights = {"coefficients": self.coefficients, "intercepts": self.intercepts}
        save_file({**tensors, **weights}, folder / WEIGHTS_FILE)
        _write_json(folder / FEATURES_FILE, description)
        _write_json(folder / CONFIG_FILE, config)
        self.tokenizer.save_pretrained(folder)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model that `save` wrote."""
        config = _read_json(folder / CONFIG_FILE)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = cls._restore(config["arguments"], tokenizer, config["labels"])
        tensors = _read_weights(folder / WEIGHTS_FILE)
        model.coefficients = tensors.pop("coefficients")
        model.intercepts = tensors.pop("intercepts")
        model.set_feature_state(_read_json(folder / FEATURES_FILE), tensors)
        return model

    @classmethod
    def _restore(
        cls, arguments: dict[str, Any], tokenizer: PreTrainedTokenizerBase, labels: list[str]
    ) -> Self:
        return cls(tokenizer=tokenizer, labels=labels, **arguments)


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error}); the saved model is damaged") from error


def _read_weights(file: Path) -> Tensors:
    try:
        return load_file(file)  # type: ignore[no-any-return]
    except Exception as error:  # whatever a damaged file makes safetensors raise
        raise UserError(f"{file}: cannot be read ({error}); the saved model is damaged") from error
