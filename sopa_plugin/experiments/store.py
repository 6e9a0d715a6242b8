"""Where the results of runs are kept, each in a file of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sopa_plugin.experiments.locks import locked
from sopa_plugin.experiments.single_run import Result, run_once


class Store:
    """Results by config: what has been run once is never run again, whatever asks for it.

    Several processes, and machines that share the folder, may use it at the same time.

    Arguments:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, label: str, config: Mapping[str, Any]) -> Result | None:
        """The result of a config, if it has been run."""
        file = self._file(label, config)
        return Result.read(file) if file.is_file() else None

    def get(self, label: str, config: Mapping[str, Any]) -> Result:
        """The result of a config, which is run now if it has not been.

        Arguments:
            label: what the run is of; the name of its folder.
            config: of an experiment.
        """
        file = self._file(label, config)
        with locked(file.with_suffix(".lock")):
            result = self.find(label, config)
            if result is None:
                result = run_once(config, file.with_suffix(".run"))
                result.write(file)
        return result

    def _file(self, label: str, config: Mapping[str, Any]) -> Path:
        written = json.dumps(config, sort_keys=True)
        digest = hashlib.blake2b(written.encode(), digest_size=8).hexdigest()
        return self.folder / label / f"{digest}.json"
