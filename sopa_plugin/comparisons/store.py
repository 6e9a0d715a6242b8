"""Where the results of runs are kept, each in a file of its own."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sopa_plugin.comparisons.locks import locked
from sopa_plugin.comparisons.single_run import Result, remove_run, run_once
from sopa_plugin.errors import TrainingFailed
from sopa_plugin.files import write_file

logger = logging.getLogger(__name__)
FAILURE = "failure"  # why a run failed, in place of its figures


class Store:
    """Results by config: what has been run once is never run again, whatever asks for it.

    Several processes, and machines that share the folder, may use it at the same time.

    Arguments:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, label: str, config: Mapping[str, Any]) -> Result | str | None:
        """The result of a config, if it has been run; a message if it cannot be trained."""
        file = self._file(label, config)
        if not file.is_file():
            return None
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if FAILURE in content:
                return f"{content[FAILURE]} (to try again, delete {file})"
            return Result(**content)
        except (ValueError, TypeError) as error:
            logger.warning("%s: no result (%s); it is run again", file, error)
            return None

    def get(self, label: str, config: Mapping[str, Any]) -> Result:
        """The result of a config, which is run now if it has not been.

        Arguments:
            label: what the run is of; the name of its folder.
            config: of an experiment.

        Raises:
            TrainingFailed: it cannot be trained; that too is run only once.
        """
        file = self._file(label, config)
        with locked(file.with_suffix(".lock")):
            result = self.find(label, config)
            if result is None:
                run = file.with_suffix(".run")
                try:
                    result = run_once(config, run)
                    _write(file, asdict(result))
                except TrainingFailed as error:
                    _write(file, {"config": config, FAILURE: str(error)})
                    remove_run(run)
                    result = self.find(label, config)
        if not isinstance(result, Result):
            raise TrainingFailed(result)
        return result

    def _file(self, label: str, config: Mapping[str, Any]) -> Path:
        written = json.dumps(config, sort_keys=True)
        digest = hashlib.blake2b(written.encode(), digest_size=8).hexdigest()
        return self.folder / label / f"{digest}.json"


def _write(file: Path, content: Mapping[str, Any]) -> None:
    write_file(file, json.dumps(content) + "\n")
