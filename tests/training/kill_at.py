"""A run in a process of its own that is killed at a given moment."""

from __future__ import annotations

import importlib
import os
import signal
from typing import Any

from sopa_plugin.training import run_experiment


def run(config: dict[str, Any], folder: str, call: int, place: str) -> None:
    """Runs an experiment until the function at `place` is called for the `call`-th time."""
    module, path = place.split(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    function, calls = getattr(owner, name), 0

    def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(owner, name, counting)
    run_experiment(config, folder)
