"""A model as bytes: what other libraries put into pickles and archives of their own."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors.numpy import load, save

from sopa_plugin.models import Model, load_model


def model_to_bytes(model: Model) -> bytes:
    """The files of the folder that `Model.save` writes, in the format of safetensors."""
    with TemporaryDirectory() as folder:
        model.save(Path(folder))
        files = sorted(Path(folder).iterdir())
        return save({each.name: np.frombuffer(each.read_bytes(), np.uint8) for each in files})


def model_from_bytes(data: bytes) -> Model:
    """The model of `model_to_bytes`; as from a folder, nothing is run because they say so.

    Raises `UserError` as `load_model`.
    """
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name, content in load(data).items():
            Path(folder, Path(name).name).write_bytes(content.tobytes())  # never outside the folder
        return load_model(folder)
