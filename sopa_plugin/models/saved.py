"""Saved models: what their folder holds, and how one is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sopa_plugin import __version__
from sopa_plugin.data.tokenizers import bounded
from sopa_plugin.errors import UserError, failing, first_line, shortened
from sopa_plugin.files import (
    check_digests,
    check_folder,
    check_labels,
    check_sizes,
    read_json,
    write_digests,
)
from sopa_plugin.models.model import Model
from sopa_plugin.registry import check_imported, imported_only, imported_plugins

CONFIG_FILE = "config.json"
FEATURES_FILE = "features.json"
WEIGHTS_FILE = "model.safetensors"
UNFIT = "the files of the model do not fit together, or are damaged"
RECORD = "sopa_plugin"  # key of config.json that says which Model class made the folder


def record(kind: type[Model]) -> dict[str, Any]:
    """What `config.json` says under `RECORD`: the registered name, the version, the plugins."""
    name = kind.registered_name() or Model.default_implementation
    return {"model": name, "version": __version__, "plugins": imported_plugins()}


def load_model(folder: str | Path, accept_changed: bool = False) -> Model:
    """The model in a run folder or any other folder that a model was saved in.

    Nothing is imported because the folder says so: packages of one's own beforehand.

    Arguments:
        folder: of the model.
        accept_changed: take files that were changed after the model was saved.

    Raises `UserError` if there is no model, or a damaged one.
    """
    folder = Path(folder)
    config = read_config(folder)
    if not accept_changed:
        check_digests(folder)
    check_imported(config[RECORD].get("plugins", []), str(folder / CONFIG_FILE))
    with imported_only():
        model = Model.by_name(config[RECORD]["model"]).load(folder)
    check_labels(model.labels, str(folder / CONFIG_FILE))
    return model


def model_to_bytes(model: Model) -> bytes:
    """What `Model.save` writes, as one file of safetensors: for archives of other libraries."""
    with TemporaryDirectory() as folder:
        model.save(Path(folder))
        files = sorted(Path(folder).iterdir())
        return save({each.name: np.frombuffer(each.read_bytes(), np.uint8) for each in files})


def model_from_bytes(data: bytes) -> Model:
    """The model of `model_to_bytes`; raises `UserError` as `load_model` does."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for name, content in load(data).items():
                file = Path(folder, Path(name).name)  # never outside the folder
                file.write_bytes(content.tobytes())
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(f"these bytes are no saved model's ({first_line(error)})") from error
        return load_model(folder)


def read_config(folder: Path) -> dict[str, Any]:
    """What `config.json` of a model's folder holds."""
    wanted = "give the folder of a finished run"
    check_folder(folder, wanted)
    file = folder / CONFIG_FILE
    if not file.is_file():
        raise UserError(f"{folder}: has no trained model in it ({CONFIG_FILE}); {wanted}")
    config = read_json(file, "the config of a sopa_plugin model")
    made = config.get(RECORD)
    if not isinstance(made, dict) or not isinstance(made.get("model"), str):
        raise UserError(f"{file}: not the config of a sopa_plugin model (no '{RECORD}' in it)")
    _check_attention(config, file)
    return config


def _check_attention(config: Any, file: Path) -> None:
    """Raises `UserError` where a config names attention that may be code of the Hub (kernels)."""
    for key, each in config.items() if isinstance(config, dict) else ():
        if key.endswith("attn_implementation") and each not in (None, "eager", "sdpa"):
            raise UserError(f"{file}: {key}: expected 'eager' or 'sdpa', found {shortened(each)}")
        _check_attention(each, file)


def note_files(folder: Path, tokenizer_files: Iterable[str]) -> None:
    """Ends the saving of a model: writes the digests of all its files."""
    files = [*map(Path, tokenizer_files), *folder.glob("*.safetensors")]
    files += [folder / CONFIG_FILE, folder / FEATURES_FILE]
    write_digests(folder, (file for file in files if file.is_file()))


def check_weights(config: Any, folder: Path, where: str) -> None:
    """Compares sizes in a saved config with the weights (`check_sizes`), of which it reads shapes.

    Raises `UserError` also where the weights cannot be read.
    """
    file = folder / WEIGHTS_FILE
    unread = "the weights cannot be read"
    with failing(file, unread), safe_open(file, framework="numpy") as opened:
        shapes = [opened.get_slice(name).get_shape() for name in opened.keys()]  # noqa: SIM118
    check_sizes(config, shapes, f"{folder / CONFIG_FILE}: {where}")


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that was saved in a model's folder; raises `UserError` for a damaged one."""
    read_json(folder / "tokenizer_config.json", "what a tokenizer was saved with")
    with failing(folder, "the tokenizer cannot be read"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        # settings are looked at only now
        bounded(lambda some: tokenizer(some, verbose=False), ["a 1 \ufffc", ""])
    return tokenizer
