"""The file of a matcher: `matcher.safetensors`, which holds all that prediction needs."""

from __future__ import annotations

import json
import logging
import zlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sopa_plugin import __version__
from sopa_plugin.compiled.matcher import Matcher, Settings
from sopa_plugin.compiled.pieces import Pieces
from sopa_plugin.compiled.words import Words
from sopa_plugin.errors import UserError
from sopa_plugin.registry import import_plugins, imported_plugins

logger = logging.getLogger(__name__)

MATCHER_FILE = "matcher.safetensors"
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
"""The files of a model that decide what it predicts."""

_RECORD = "sopa_plugin"  # key of the file's metadata: everything but words and numbers, as JSON
_WORDS = "words"  # in UTF-8: the vocabulary, a word a line (none holds a line's end), ...
_TOKENIZER = "tokenizer"  # ... or else the whole tokenizer, as JSON


def save_matcher(matcher: Matcher, folder: str | Path) -> None:
    """Writes a matcher into a folder: its model's, or one where it is to do without the model."""
    key, text, options = _describe(matcher.words)
    record = {
        **asdict(matcher.settings),
        "version": __version__,
        "plugins": imported_plugins(),
        "model_files": _checksums(Path(folder)),
        "words": options,
    }
    encoded = torch.frombuffer(bytearray(text, encoding="utf-8"), dtype=torch.uint8)
    metadata = {_RECORD: json.dumps(record)}
    save_file({**matcher.state_dict(), key: encoded}, Path(folder) / MATCHER_FILE, metadata)


def load_matcher(folder: str | Path) -> Matcher | None:
    """The matcher in a folder; None if there is none, or only one that its model has outlived.

    Plugins that it was made with are imported first. Raises `UserError` for a damaged file.
    """
    file = Path(folder) / MATCHER_FILE
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            record: dict[str, Any] = json.loads(opened.metadata()[_RECORD])
            if not _belongs(record, file.parent):
                logger.warning("%s: not used: of another model than is here, or version", file)
                return None
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        import_plugins(record["plugins"])
        words = _words(tensors, record["words"])
        settings = Settings(**{field.name: record[field.name] for field in fields(Settings)})
        matcher = Matcher(settings, words, len(tensors["table"]))
        matcher.load_state_dict(tensors, assign=True)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{file}: not a compiled model, or a damaged one ({error}); delete it: the model "
            "itself predicts the same"
        ) from error
    return matcher.requires_grad_(False)


def _describe(words: Words | Pieces) -> tuple[str, str, dict[str, Any]]:
    """Under which key the file has what splits text, as what text, and its other arguments."""
    if isinstance(words, Pieces):
        return _TOKENIZER, words.tokenizer, {"split_special_tokens": words.split_special_tokens}
    options = {"unknown": words.unknown, "lowercase": words.lowercase}
    return _WORDS, "\n".join(words.words), options


def _words(tensors: dict[str, Tensor], options: dict[str, Any]) -> Words | Pieces:
    """What splits text, taken out of the file's tensors."""
    if _TOKENIZER in tensors:
        return Pieces(tensors.pop(_TOKENIZER).numpy().tobytes().decode(), **options)
    return Words(tensors.pop(_WORDS).numpy().tobytes().decode().split("\n"), **options)


def _belongs(record: dict[str, Any], folder: Path) -> bool:
    """Whether a matcher was made from the model in its folder, where there is one."""
    checksums = _checksums(folder)
    same = checksums == record["model_files"] and record["version"] == __version__
    return same or not checksums


def _checksums(folder: Path) -> dict[str, int]:
    """CRC-32 of each of a model's files that the folder has."""
    files = (folder / name for name in MODEL_FILES)
    return {file.name: zlib.crc32(file.read_bytes()) for file in files if file.is_file()}
