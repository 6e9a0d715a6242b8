"""The base class of everything that classifies text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from sopa_plugin.registry import Registrable
from sopa_plugin.rules import Rules


class Model(Registrable):
    """A text classifier, from raw text to probabilities.

    What trains it is another part (`sopa_plugin.training.Trainer`); run folders, metrics,
    `evaluate` and `predict` know it by this interface alone. The builder hands over the tokenizer,
    the class names and what `read_rules` gave. Where a config has an `embedder`, the tokenizer goes
    by the words that this has vectors of a file for.

    Attributes:
        tokenizer: what splits text into tokens; saved with the model.
        labels: names of the classes, in the order of their numbers.
    """

    default_implementation: ClassVar[str | None] = "text_classifier"
    handed_over: ClassVar[frozenset[str]] = frozenset({"tokenizer", "labels", "rules_read"})

    tokenizer: PreTrainedTokenizerBase
    labels: list[str]

    @classmethod
    def read_rules(cls, params: Mapping[str, Any]) -> Rules | None:
        """The rules that a model of these `params` begins as.

        It needs their words in its vocabulary, and has their labels whether there are texts of them
        or not.
        """
        return None

    def look_at(self, texts: Sequence[str]) -> None:
        """Shows the model the training texts, once, before it is trained."""

    def log_probabilities(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`."""
        raise NotImplementedError

    def scale_logits(self, factor: float) -> None:
        """Multiplies the class scores, of which probabilities are the softmax, by `factor`."""
        raise NotImplementedError

    def to_device(self, device: str) -> None:
        """Moves the model to a device (`cpu`, `cuda`), if it can be anywhere else."""

    def parameter_counts(self) -> dict[str, int]:
        """Number of parameters: `total`, and by part whatever the model tells apart."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Writes everything that `load` needs into a folder that exists."""
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model that `save` wrote."""
        raise NotImplementedError
