"""Soft patterns as estimators of scikit-learn: a classifier of texts, and document vectors."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import Tags, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from sopa_plugin import load_model, train_model
from sopa_plugin.errors import shortened
from sopa_plugin.files import RUN_CONFIG
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.models import Model, model_from_bytes, model_to_bytes
from sopa_plugin.registry import load_config
from sopa_plugin.training import Experiment

OPTIONS = {
    "patterns": "model.encoder.patterns",
    "vectors": "model.embedder.vectors",
    "num_epochs": "trainer.num_epochs",
    "lr": "trainer.optimizer.lr",
}
"""Where the common options stand in a config."""


class SopaEstimator(BaseEstimator):
    """What trains a model, or takes that of a run; a pickle of it holds the model's saved files.

    Arguments:
        config: as of the command `train`, a file or what it holds; its `dataset` is not looked at.
            By default soft patterns over word vectors learned from the texts, or over `vectors`.
        overrides: changes to it, `a.b=value`.
        patterns, vectors, num_epochs, lr: by default the config's; `{states: number of patterns}`,
            a file of word vectors, at most so many epochs, learning rate.
        dev_size: share or number of the texts that the best epoch is chosen by, kept apart.
        random_state: seed of everything random; by default the config's, the same each time.
        folder: keeps the run, with its log and model; one that is in the way is not overwritten.

    Attributes:
        model_: what was trained, a `sopa_plugin.models.Model`.
        classes_: the classes, in order.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | None = None,
        overrides: Sequence[str] = (),
        *,
        patterns: Mapping[int, int] | None = None,
        vectors: str | None = None,
        num_epochs: int | None = None,
        lr: float | None = None,
        dev_size: float | int = 0.1,
        random_state: int | np.random.RandomState | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.config = config
        self.overrides = overrides
        self.patterns = patterns
        self.vectors = vectors
        self.num_epochs = num_epochs
        self.lr = lr
        self.dev_size = dev_size
        self.random_state = random_state
        self.folder = folder

    @classmethod
    def from_run(cls, run: str | Path) -> Self:
        """An estimator with the model of a finished run, whose config trains copies of it.

        In a pipeline, `sklearn.frozen.FrozenEstimator` around it keeps it from being trained anew.
        """
        estimator = cls(str(Path(run, RUN_CONFIG)))
        estimator.model_ = load_model(run)
        estimator.classes_ = np.array(estimator.model_.labels)
        return estimator

    def fit(self, X: Sequence[str], y: ArrayLike | None = None) -> Self:
        """Trains a model on texts `X` and their classes `y`; empty texts are left out.

        Raises `ValueError` for texts and classes that are none, and what `train_model` raises.
        """
        texts = _texts(X)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_consistent_length(texts, y)
        for number, label in enumerate(np.asarray(y).tolist()):
            if label is None or label != label:  # NaN
                raise ValueError(f"expected the class of each text, found {label} at {number}")
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"expected texts of two classes at least, found one class: {classes}")
        names = _names(classes)
        with TemporaryDirectory(ignore_cleanup_errors=True) as temporary, _randomness_kept():
            data = Path(temporary, "texts.jsonl")
            lines = zip(texts, numbers.tolist(), strict=True)
            rows = (json.dumps({"text": text, "label": names[label]}) for text, label in lines)
            data.write_text("".join(f"{row}\n" for row in rows))
            dataset = {"type": "text", "train": str(data), "dev_size": self.dev_size}
            dataset |= {"test_size": 0, "empty_text": "drop"}
            config = {**self._config(len(texts)), "dataset": dataset}
            run = self.folder or Path(temporary, "run")
            self.model_: Model = train_model(config, run, self._overrides())
        self.classes_: NDArray = classes
        return self

    def _config(self, num_texts: int) -> dict[str, Any]:
        """The config before it is changed by options and overrides."""
        if isinstance(self.config, Mapping):
            return dict(self.config)
        if self.config is not None:
            return load_config(self.config, (), Experiment)
        words: dict[str, Any] = {"type": "static", "embedding_dim": 100}
        if self.vectors is not None:
            words = {"type": "static", "vectors": self.vectors, "trainable": False, "whiten": 1}
        encoder = {"type": "sopa", "patterns": {"4": 100, "3": 100, "2": 100}, "dropout": 0.1}
        head = {"type": "linear", "dropout": 0.5}
        trainer: dict[str, Any] = {"batch_size": 20 if num_texts < 1000 else 50}
        trainer |= {"num_epochs": 100, "patience": 15, "validation_metric": "-loss"}
        optimizer = {"type": "adamw", "lr": 0.0035, "weight_decay": 0.1, "fused": True}
        return {
            "tokenizer": {"type": "words", "lowercase": None if self.vectors else True},
            "model": {"embedder": words, "encoder": encoder, "head": head},
            "trainer": trainer | {"optimizer": optimizer},
        }

    def _overrides(self) -> list[str]:
        """The options as changes to the config, and then those given as such."""
        given = {path: getattr(self, name) for name, path in OPTIONS.items()}
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = seed.randint(2**31 - 1)
        given["seed"] = None if seed is None else int(seed)
        changes = [f"{path}={json.dumps(each)}" for path, each in given.items() if each is not None]
        return [*changes, *self.overrides]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        model = state.get("model_")
        return state if model is None else {**state, "model_": model_to_bytes(model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = {**state, "model_": model_from_bytes(state["model_"])}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = True
        return tags


class SopaClassifier(ClassifierMixin, SopaEstimator):
    """Classifies texts, by soft patterns or whatever model a config describes.

    Arguments are those of `SopaEstimator`.
    """

    def predict_proba(self, X: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities of the classes, `[texts, classes]`, in the order of `classes_`."""
        check_is_fitted(self)
        texts, names = _texts(X), _names(self.classes_)
        found = np.zeros((len(texts), len(names)))
        order = [names.index(label) for label in self.model_.labels]
        found[:, order] = np.exp(self.model_.log_probabilities(texts))
        return found

    def predict(self, X: Sequence[str]) -> NDArray:
        """The most probable class of each text."""
        best = self.predict_proba(X).argmax(axis=1)  # or there are no classes yet
        return self.classes_[best]  # type: ignore[no-any-return]


class SopaVectorizer(TransformerMixin, SopaEstimator):
    """Turns texts into document vectors, a number for each pattern; learns from labels.

    Arguments are those of `SopaEstimator`; the encoder is `sopa` or `cnn`, which have patterns.
    """

    def transform(self, X: Sequence[str]) -> NDArray[np.float32]:
        """Document vectors `[texts, patterns]`."""
        check_is_fitted(self)
        model: Any = self.model_
        return model.document_vectors(model.encode_texts(_texts(X))).numpy()  # type: ignore[no-any-return]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray:
        """The patterns' names (`3-12`), as `explain` has them."""
        check_is_fitted(self)
        model: Any = self.model_
        subject = ModelSubject(model)
        return np.array(subject.names, dtype=object)[np.argsort(subject.columns)]


def _texts(X: Sequence[str]) -> list[str]:
    """Texts as scikit-learn hands them over: a list, an array or a column of a table."""
    if isinstance(X, str):
        raise ValueError("expected a list of texts, found one text")
    texts = list(X)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"expected a list of texts, found {shortened(text)} at {number}")
    return texts


def _names(classes: NDArray) -> list[str]:
    """What classes are called in the model: numbers where their own names would be none."""
    names = [str(each) for each in classes.tolist()]
    # -1 and -100 are how others mark a text without a label
    plain = all(name == name.strip() and name not in ("", "-1", "-100") for name in names)
    return names if plain and len(set(names)) == len(names) else [*map(str, range(len(names)))]


@contextmanager
def _randomness_kept() -> Iterator[None]:
    """Keeps a training from seeding what is the caller's."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
