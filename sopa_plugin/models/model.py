"""The base class of everything that classifies text, and how a saved one is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sopa_plugin import __version__
from sopa_plugin.errors import UserError
from sopa_plugin.files import read_json
from sopa_plugin.registry import Registrable, import_plugins, imported_plugins

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
RECORD = "sopa_plugin"  # key of config.json that says which Model class made the folder


class Model(Registrable):
    """A text classifier, from raw text to probabilities.

    What trains it is another part (`sopa_plugin.training.Trainer`); run folders, metrics,
    `evaluate` and `predict` know it by this interface alone. The builder hands over the tokenizer
    and the class names.

    Attributes:
        tokenizer: what splits text into tokens; saved with the model.
        labels: names of the classes, in the order of their numbers.
    """

    default_implementation: ClassVar[str | None] = "text_classifier"
    handed_over: ClassVar[frozenset[str]] = frozenset({"tokenizer", "labels"})

    tokenizer: PreTrainedTokenizerBase
    labels: list[str]

    @classmethod
    def pretrained_words(cls, params: Mapping[str, Any]) -> Iterator[str]:
        """Words that a model of these `params` has frozen vectors for (see `Tokenizer.build`)."""
        return iter(())

    @classmethod
    def is_cased(cls, params: Mapping[str, Any]) -> bool | None:
        """Whether words that these `params` name vectors for have capitals; None without such."""
        return None

    def log_probabilities(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`."""
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


def record(kind: type[Model]) -> dict[str, Any]:
    """What `config.json` says under `RECORD`: the registered name, the version, the plugins."""
    name = kind.registered_name() or Model.default_implementation
    return {"model": name, "version": __version__, "plugins": imported_plugins()}


def load_model(folder: str | Path) -> Model:
    """The model in a run folder or any other folder that a model was saved in.

    Plugins that it was made with are imported first. Raises `UserError` if there is no model.
    """
    folder = Path(folder)
    saved = _read_record(folder)
    import_plugins(saved.get("plugins", []))
    return Model.by_name(saved["model"]).load(folder)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that was saved in a model's folder."""
    return AutoTokenizer.from_pretrained(folder)


def _read_record(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG_FILE
    if not file.is_file():
        if folder.is_dir():
            what = f"has no trained model in it ({CONFIG_FILE})"
        elif folder.exists():
            what = "is a file, not a folder"
        else:
            here = "" if folder.is_absolute() else f" (the current folder is {Path.cwd()})"
            what = f"no such folder{here}"
        raise UserError(f"{folder}: {what}; give the folder of a finished run")
    config = read_json(file, "the config of a sopa_plugin model")
    if not isinstance(config, dict) or not isinstance(config.get(RECORD), dict):
        raise UserError(f"{file}: not the config of a sopa_plugin model (no '{RECORD}' in it)")
    return config[RECORD]  # type: ignore[no-any-return]
