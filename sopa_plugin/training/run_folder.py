"""The folder of a run: made, continued or refused, and filled at the end."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list
from numpy.typing import NDArray
from safetensors import SafetensorError

from sopa_plugin.errors import UserError
from sopa_plugin.files import read_json, write_file
from sopa_plugin.models import Model
from sopa_plugin.training.processes import processes

CONFIG = "experiment.json"
EPOCHS = "epochs.jsonl"
LOG = "train.log"
METRICS = "metrics.json"
PREDICTIONS = "{split}_predictions.jsonl"
CARD = "README.md"

logger = logging.getLogger(__name__)


class RunFolder:
    """Where a run keeps everything: config, log, checkpoints, and in the end the model.

    Every file but the log is written aside and renamed; `metrics.json` comes last, so a folder that
    has it is complete. Among several processes, only the first one writes.

    Arguments:
        path: the folder.
        config: the experiment's config with every default filled in.
        force: replace the folder if it is there and a run's.
        recover: continue the run in it, or begin it if there is none.

    Attributes:
        recovering: whether there is a run to continue.
        finished: its metrics, if it had finished.

    Raises `UserError` if the folder is there and neither is wanted or possible.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any],
        force: bool = False,
        recover: bool = False,
    ) -> None:
        self.path = Path(path)
        self.config = dict(config)
        self._force = force
        self._handler: logging.Handler | None = None
        found: list[Any] = [None, None]
        if processes().is_main_process:  # the others may come when it has begun already
            self._tidy()
            found = [self._look(force, recover), self._finished() if recover else None]
        self.recovering, self.finished = broadcast_object_list(found)

    def _tidy(self) -> None:
        """Sees to what a killed `--force` left beside the folder: puts it back, or removes it."""
        for left in self._left_beside("old"):
            missing = not self.path.exists() or _is_empty_folder(self.path)
            if missing and is_run_folder(left):
                if self.path.exists():
                    self.path.rmdir()
                os.rename(left, self.path)
                logger.warning("%s: put back; a killed run with --force had moved it", self.path)
            else:
                _remove(left)
                logger.info("%s: removed; a killed run with --force had left it", left)
        for left in self._left_beside("new"):
            _remove(left)

    def _left_beside(self, what: str) -> list[Path]:
        """Folders as `_beside` names them, of any process; the newest first."""
        name = re.compile(rf"\.{re.escape(self.path.name)}\.{what}-\d+")
        if not self.path.parent.is_dir():
            return []
        beside = self.path.parent.iterdir()
        left = [each for each in beside if name.fullmatch(each.name) and each.is_dir()]
        return sorted(left, key=lambda each: each.stat().st_mtime, reverse=True)

    def _look(self, force: bool, recover: bool) -> bool:
        """Whether there is a run to continue; raises `UserError` if the folder is in the way."""
        if force and recover:
            raise UserError("--force begins anew and --recover continues: give one of them")
        occupied = self.path.exists() and not _is_empty_folder(self.path)
        if recover and occupied:
            self._check_recoverable()
        elif occupied and not force:
            raise self._occupied()
        elif occupied and not is_run_folder(self.path):
            raise UserError(
                f"{self.path}: not the folder of a run (no {CONFIG} of an experiment in it), so "
                "--force does not delete it; choose another folder with -s"
            )
        return recover and occupied

    def _occupied(self) -> UserError:
        return UserError(
            f"{self.path}: the output folder exists already; choose another with -s, replace it "
            "with --force, or continue its run with --recover"
        )

    def _finished(self) -> dict[str, Any] | None:
        file = self.path / METRICS
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "checkpoints"

    @property
    def cache(self) -> Path:
        """What training needs for a while on disk; gone in the end."""
        return self.path / ".cache"

    def start(self) -> None:
        """Makes the folder, or the folder of a recovered run ready."""
        state = processes()
        if state.is_main_process:
            if self.recovering:
                shutil.rmtree(self.cache, ignore_errors=True)
            else:
                self._make()
            self._log_to_file()
        state.wait_for_everyone()

    def log_epochs(self, history: Iterable[Mapping[str, Any]]) -> None:
        """Writes one line of JSON an epoch."""
        if processes().is_main_process:
            lines = [json.dumps(metrics) + "\n" for metrics in history]
            write_file(self.path / EPOCHS, "".join(lines))

    def log_predictions(
        self,
        split: str,
        labels: Sequence[str],
        gold: Sequence[int],
        log_probabilities: NDArray[np.floating],
    ) -> None:
        """Writes one line of JSON an example: its label, the predicted one, all probabilities.

        Arguments:
            split: whose examples they are.
            labels: names of the classes.
            gold: true class numbers, `[examples]`.
            log_probabilities: `[examples, classes]`.
        """
        if not processes().is_main_process:
            return
        lines = []
        for label, scores in zip(gold, log_probabilities, strict=True):
            probabilities = [round(float(each), 6) for each in np.exp(scores)]
            line = {
                "label": labels[label],
                "predicted": labels[int(scores.argmax())],
                "probabilities": dict(zip(labels, probabilities, strict=True)),
            }
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        write_file(self.path / PREDICTIONS.format(split=split), "".join(lines))

    def finish(self, model: Model, metrics: Mapping[str, Any], card: str) -> None:
        """Saves the model with its tokenizer, the model card and, last, `metrics.json`."""
        state = processes()
        if state.is_main_process:
            saving = self.path / ".saving"
            shutil.rmtree(saving, ignore_errors=True)
            saving.mkdir()
            try:
                model.save(saving)
            except SafetensorError as error:  # what safetensors makes of a full disk
                raise UserError(
                    f"{self.path}: the model cannot be written ({error}); make room, then "
                    "continue the run with --recover"
                ) from error
            mode = (self.path / CONFIG).stat().st_mode
            for file in sorted(saving.iterdir()):
                file.chmod(mode)  # safetensors would keep its files to their owner
                os.replace(file, self.path / file.name)
            saving.rmdir()
            shutil.rmtree(self.cache, ignore_errors=True)
            write_file(self.path / CARD, card)
            write_file(self.path / METRICS, json.dumps(metrics, indent=2) + "\n")
        state.wait_for_everyone()

    def _make(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new, old = self._beside("new"), self._beside("old")
        new.mkdir()
        write_file(new / CONFIG, json.dumps(self.config, indent=2) + "\n")
        if self._force and self.path.exists():
            os.rename(self.path, old)
        elif _is_empty_folder(self.path):
            self.path.rmdir()
        try:
            os.rename(new, self.path)
        except OSError:
            _remove(new)
            if self.path.exists():  # another run began while this one read its data
                raise self._occupied() from None
            raise
        _remove(old)

    def _beside(self, what: str) -> Path:
        return self.path.parent / f".{self.path.name}.{what}-{os.getpid()}"

    def _log_to_file(self) -> None:
        handler = logging.FileHandler(self.path / LOG, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self.close_log()
        self._handler = handler
        logging.getLogger("sopa_plugin").addHandler(handler)

    def close_log(self) -> None:
        """Ends the log: what the process does next is not of this run."""
        if self._handler is not None:
            logging.getLogger("sopa_plugin").removeHandler(self._handler)
            self._handler.close()
            self._handler = None

    def _check_recoverable(self) -> None:
        if not is_run_folder(self.path):
            raise UserError(f"{self.path}: not the folder of a run; there is nothing to recover")
        before = read_config(self.path)
        changed = sorted(_differences(before, self.config))
        if changed:
            raise UserError(
                f"{self.path}: the run in this folder has another config; it differs at "
                f"{', '.join(changed)}. Recover it with the same config, or begin anew with "
                "--force or in another folder (-s)"
            )


def is_run_folder(path: Path) -> bool:
    """Whether `path` is the folder of a run."""
    try:
        config = read_config(path)
    except UserError:
        return False
    return isinstance(config, dict) and {"dataset", "model", "trainer"} <= config.keys()


def read_config(path: Path) -> dict[str, Any]:
    """The filled-in config of a run."""
    return read_json(path / CONFIG, "the folder of a run")  # type: ignore[no-any-return]


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and next(path.iterdir(), None) is None


def _remove(path: Path) -> None:
    """Deletes a folder, or a link to one but not what it leads to; what cannot be deleted stays."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _differences(old: Any, new: Any, path: str = "") -> Iterable[str]:
    """The paths at which two configs differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            yield from _differences(
                old.get(key), new.get(key), f"{path}.{key}" if path else str(key)
            )
    elif old != new:
        yield path
