"""The base class of models that are a linear classifier over given features of a document."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedTokenizerBase

from sopa_plugin.errors import failing
from sopa_plugin.files import read_json, write_file
from sopa_plugin.models.model import Model
from sopa_plugin.models.saved import (
    CONFIG_FILE,
    FEATURES_FILE,
    RECORD,
    UNFIT,
    WEIGHTS_FILE,
    check_weights,
    load_tokenizer,
    note_files,
    read_config,
    record,
)
from sopa_plugin.registry.hints import arguments

Tensors = dict[str, NDArray]


@dataclass(eq=False, repr=False)
class LinearModel(Model):
    """A linear classifier over features that are not learned by gradient.

    A subclass says what the features are; the trainer `sklearn` finds the weights. Saved are
    `config.json`, the weights as safetensors, what features there are as `features.json`, and the
    tokenizer. Features are sparse or dense matrices `[texts, features]`.

    Attributes:
        coefficients: `[classes, features]`, or `[1, features]` for two classes: what speaks for the
            second one.
        intercepts: `[classes]` or `[1]`.
    """

    tokenizer: PreTrainedTokenizerBase
    labels: list[str]

    def __post_init__(self) -> None:
        self.coefficients = np.zeros((1, 0))
        self.intercepts = np.zeros(1)

    def fit_features(self, texts: Sequence[str]) -> Any:
        """Decides from training texts what the features are, if they decide; their features."""
        return self.features(texts)

    @abstractmethod
    def features(self, texts: Sequence[str]) -> Any:
        """The features of any texts, `[texts, features]`."""

    def arguments(self) -> dict[str, Any]:
        """Constructor arguments of a config, as JSON: by default the attributes of their names."""
        taken = arguments(type(self)).keys() - self.handed_over
        return {name: getattr(self, name) for name in sorted(taken)}

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
        return self.answers(self.features(texts))

    def answers(self, features: Any) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`, by `features [texts, features]`."""
        scores = np.asarray(features @ self.coefficients.T) + self.intercepts
        if scores.shape[1] == 1 and len(self.labels) == 2:
            scores = np.hstack([np.zeros_like(scores), scores])
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)  # type: ignore[no-any-return]

    def scale_logits(self, factor: float) -> None:
        """Multiplies coefficients and intercepts."""
        self.coefficients, self.intercepts = factor * self.coefficients, factor * self.intercepts

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
        config = {RECORD: record(type(self)), "arguments": self.arguments(), "labels": self.labels}
        weights = {"coefficients": self.coefficients, "intercepts": self.intercepts}
        save_file({**tensors, **weights}, folder / WEIGHTS_FILE)
        for name, content in ((FEATURES_FILE, description), (CONFIG_FILE, config)):
            text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
            write_file(folder / name, text)
        note_files(folder, self.tokenizer.save_pretrained(folder))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model that `save` wrote."""
        config = read_config(folder)
        description = read_json(folder / FEATURES_FILE, "the features of a saved model")
        tokenizer = load_tokenizer(folder)
        with failing(folder, UNFIT):
            arguments = config["arguments"]
            check_weights(arguments.get("embedder"), folder, "arguments.embedder")
            tensors = load_file(folder / WEIGHTS_FILE)
            build: Any = cls
            model = build(tokenizer=tokenizer, labels=config["labels"], **arguments)
            model.coefficients = tensors.pop("coefficients")
            model.intercepts = tensors.pop("intercepts")
            model.set_feature_state(description, tensors)
            if model.log_probabilities(["a"]).shape != (1, len(model.labels)):
                raise ValueError("another number of labels")
        return model  # type: ignore[no-any-return]
