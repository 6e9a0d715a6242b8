"""The folder of a run: made, continued or refused, and filled at the end."""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from sopa_plugin.errors import UserError
from sopa_plugin.files import (
    DIGESTS,
    RUN_CONFIG,
    is_left_aside,
    read_json,
    remove_left_aside,
    write_digests,
    write_file,
)
from sopa_plugin.models import Model
from sopa_plugin.training.metrics import Metrics
from sopa_plugin.training.processes import by_first, processes

logger = logging.getLogger(__name__)

OnEpoch = Callable[[Metrics], None]

LOCK = ".lock"
HOLDER = ".lock.json"


class FolderLock:
    """Keeps other processes, of other machines too, from working in a folder.

    The lock is a file in the folder, moves with it, and is given back by the system when its
    process ends, however that is. Another file says whose it is.

    Attributes:
        folder: where it is now; whoever moves the folder sets this.

    Raises `UserError`, which says who holds the lock, if another does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = FileLock(folder / LOCK)
        self._acquire()
        while not (folder / LOCK).exists():  # whoever held it has just deleted it
            self._lock.release()
            self._acquire()
        self._holder = {
            "pid": os.getpid(),
            "host": platform.node(),
            "since": datetime.now().isoformat(sep=" "),
        }
        write_file(folder / HOLDER, json.dumps(self._holder))

    def _acquire(self) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"{self.folder}: {_holder(self.folder)} is at work in this folder; wait for it, "
                "stop it, or choose another folder with -s"
            ) from None
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be locked ({error.strerror})") from error

    @property
    def is_in_place(self) -> bool:
        """Whether the folder still is the one that was locked."""
        try:
            return read_json(self.folder / HOLDER, "") == self._holder
        except UserError:
            return False

    def release(self) -> None:
        """Gives the lock back."""
        if self.is_in_place:
            (self.folder / HOLDER).unlink()
            (self.folder / LOCK).unlink()
        self._lock.release()


def _holder(folder: Path) -> str:
    try:
        holder = read_json(folder / HOLDER, "")
        since = str(holder["since"]).partition(".")[0]
        return f"process {holder['pid']} on {holder['host']} (since {since})"
    except (UserError, KeyError, TypeError):
        return "another process"


CONFIG = RUN_CONFIG
EPOCHS = "epochs.jsonl"
LOG = "train.log"
METRICS = "metrics.json"
PREDICTIONS = "{split}_predictions.jsonl"
CARD = "README.md"


class RunFolder:
    """Where a run keeps everything: config, log, checkpoints, and in the end the model.

    Every file but the log is written aside and renamed; `metrics.json` comes last, so a folder that
    has it is complete. The folder is locked from the moment that a run in it is to be continued or
    replaced, a new one from `start` on, until `close`. With `--force` the old run is kept beside
    the new one until that has begun: after a kill at any moment, the next start finds the one or
    the other at the path. Among several processes, only the first one writes.

    Arguments:
        path: the folder.
        config: the experiment's config with every default filled in.
        force: replace the folder if it is there and a run's.
        recover: continue the run in it, or begin it if there is none.
        on_epoch: called with each epoch's metrics; what it raises stops the training.

    Attributes:
        before: the config of the run to continue; None where a run begins.
        finished: its metrics, if it had finished.

    Raises `UserError` if the folder is there and neither is wanted or possible.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any],
        force: bool = False,
        recover: bool = False,
        on_epoch: OnEpoch | None = None,
    ) -> None:
        if force and recover:
            raise UserError("--force begins anew and --recover continues: give one of them")
        self.path = Path(path)
        self.config = dict(config)
        self._on_epoch = on_epoch
        self._force, self._recover = force, recover
        self._log = ExitStack()  # what ends the log
        self._lock: FolderLock | None = None
        self.before: dict[str, Any] | None
        self.finished: dict[str, Any] | None
        self.before, self.finished = by_first(self._claim)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "checkpoints"

    @property
    def cache(self) -> Path:
        """What training needs for a while on disk; gone in the end."""
        return self.path / ".cache"

    def start(self) -> None:
        """Makes the folder, or the folder of a continued run ready."""
        by_first(self._begin if self.before is None else self._tidy_inside)

    def check(self) -> None:
        """Raises `UserError` if the folder was deleted or replaced since this run began in it."""
        if self._lock is not None and not self._lock.is_in_place:
            raise UserError(
                f"{self.path}: the folder was deleted or replaced while this run was training"
            )

    def log_epochs(self, history: Iterable[Mapping[str, Any]]) -> None:
        """Writes one line of JSON an epoch."""
        self._write(EPOCHS, "".join(json.dumps(metrics) + "\n" for metrics in history))

    def end_epoch(self, history: Sequence[Metrics]) -> None:
        """To be called after each epoch with the metrics of all so far."""
        self.log_epochs(history)
        if self._on_epoch is not None:
            self._on_epoch(history[-1])

    def log_predictions(
        self,
        split: str,
        labels: Sequence[str],
        examples: Mapping[str, Sequence[Any]],
        log_probabilities: NDArray[np.floating],
    ) -> None:
        """Writes one line of JSON an example: row, text, label, what is predicted, probabilities.

        Arguments:
            split: whose examples they are.
            labels: names of the classes, and after them of labels that the model has not.
            examples: columns `text`, `label` (true class numbers, -1 without) and, of our readers,
                `row`.
            log_probabilities: `[examples, classes]`.
        """
        lines = []
        gold = examples["label"]
        rows = examples.get("row", range(1, len(gold) + 1))
        columns = zip(rows, examples["text"], gold, log_probabilities, strict=True)
        for row, text, label, scores in columns:
            probabilities = [round(float(each), 6) for each in np.exp(scores)]
            line = {
                "row": row,
                "text": text,
                "label": labels[label] if label >= 0 else None,
                "predicted": labels[int(scores.argmax())],
                "probabilities": dict(zip(labels, probabilities, strict=False)),
            }
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        self._write(PREDICTIONS.format(split=split), "".join(lines))

    def keep(self, model: Model) -> None:
        """Saves a model that is the best so far of a run that does not finish."""
        by_first(lambda: self._save(model))

    def finish(self, model: Model, metrics: Mapping[str, Any], card: str) -> None:
        """Saves the model with its tokenizer, the model card and, last, `metrics.json`."""

        def save() -> None:
            self._save(model)
            _remove(self.cache)
            write_file(self.path / CARD, card)
            write_file(self.path / METRICS, json.dumps(metrics, indent=2) + "\n")

        by_first(save)

    def close(self) -> None:
        """Ends the log, since what the process does next is not of this run, and the lock."""
        self._log.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _claim(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The config and, if it has finished, the metrics of the run to continue.

        Takes the lock of a run that is to be continued or replaced.
        """
        try:
            str(self.path).encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"{str(self.path)!a}: the name of the output folder is not UTF-8, in which models "
                "cannot be saved; choose another with -s"
            ) from None
        self._tidy_beside()
        if not self.path.exists() or _is_empty(self.path):
            if self._recover:
                logger.info("%s: no run in it to recover: beginning one", self.path)
            return None, None
        if not (self._force or self._recover):
            raise self._occupied()
        if not is_run_folder(self.path):
            raise UserError(
                f"{self.path}: not the folder of a run (no {CONFIG} of an experiment in it), so "
                "there is nothing to recover and --force does not delete it; choose another "
                "folder with -s"
            )
        if self._force or not (self.path / METRICS).exists():
            self._lock = FolderLock(self.path)
        if self._force:
            return None, None
        finished = self.path / METRICS  # perhaps only just
        return (
            read_config(self.path),
            read_json(finished, "the metrics of a run") if finished.exists() else None,
        )

    def _occupied(self) -> UserError:
        return UserError(
            f"{self.path}: the output folder exists already; choose another with -s, replace it "
            "with --force, or continue its run with --recover"
        )

    def _tidy_beside(self) -> None:
        """Sees to what a killed `--force` moved aside: puts the newest back, or removes it."""
        name = re.compile(rf"\.{re.escape(self.path.name)}\.old-\d+")
        beside = self.path.parent.iterdir() if self.path.parent.is_dir() else ()
        moved = [each for each in beside if name.fullmatch(each.name) and each.is_dir()]
        for left in sorted(moved, key=lambda each: each.stat().st_mtime, reverse=True):
            try:
                lock = FolderLock(left)
            except (UserError, OSError):  # of a living process, or gone meanwhile
                continue
            missing = not self.path.exists() or _is_empty(self.path)
            if missing and is_run_folder(left):
                _remove(self.path)
                os.rename(left, self.path)
                lock.folder = self.path
                logger.warning("%s: put back; a killed run with --force had moved it", self.path)
            else:
                _remove(left)
                logger.info("%s: removed; a killed run with --force had left it", left)
            lock.release()

    def _begin(self) -> None:
        """Makes the folder with the config in it, in the place of what is there if that may go."""
        if self._force and self._lock is None:  # a run may have come while this one read its data
            self._claim()
        replaced, old = self._lock, self.path.with_name(f".{self.path.name}.old-{os.getpid()}")
        if replaced is not None:
            os.rename(self.path, old)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self.path)
        if not _is_empty(self.path):  # another run began just now
            self.close()
            raise self._occupied()
        write_file(self.path / CONFIG, json.dumps(self.config, indent=2) + "\n")
        if replaced is not None:
            _remove(old)
            replaced.release()
        self._log_to_file()

    def _tidy_inside(self) -> None:
        """Removes what a killed run left in its folder; of a finished one, that it had finished."""
        if self._lock is None:
            self._lock = FolderLock(self.path)
        _remove(self.cache)
        _remove(self.path / ".saving")
        remove_left_aside(self.path)
        (self.path / METRICS).unlink(missing_ok=True)
        if self.before != self.config:  # it goes on for longer
            write_file(self.path / CONFIG, json.dumps(self.config, indent=2) + "\n")
            if (self.path / DIGESTS).exists():
                write_digests(self.path, [self.path / CONFIG])
        self._log_to_file()

    def _log_to_file(self) -> None:
        if (self.path / LOG).is_symlink():  # what it names is not ours to write in
            (self.path / LOG).unlink()
        log = logging.getLogger("sopa_plugin")
        handler = logging.FileHandler(self.path / LOG, encoding="utf-8")
        self._log.callback(handler.close)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        self._log.callback(log.removeHandler, handler)
        self._log.callback(log.setLevel, log.level)
        if log.level == logging.NOTSET:  # called from Python, where nobody has set up a log
            log.setLevel(logging.INFO)

    def _write(self, name: str, content: str) -> None:
        if processes().is_main_process:
            self.check()
            write_file(self.path / name, content)

    def _save(self, model: Model) -> None:
        self.check()
        saving = self.path / ".saving"
        _remove(saving)
        saving.mkdir()
        try:
            model.save(saving)
        except Exception as error:
            # tokenizers and safetensors name the system's error, of a full disk, in words alone
            if not (isinstance(error, OSError) or "os error" in str(error)):
                raise
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"{self.path}: the model cannot be written ({reason}); mend that, then continue "
                "the run with --recover"
            ) from error
        mode = (self.path / CONFIG).stat().st_mode
        for file in sorted(saving.iterdir(), key=lambda each: each.name == DIGESTS):
            file.chmod(mode)  # safetensors would keep its files to their owner
            os.replace(file, self.path / file.name)
        saving.rmdir()
        write_digests(self.path, [self.path / CONFIG])


def is_run_folder(path: Path) -> bool:
    """Whether `path` is the folder of a run."""
    try:
        config = read_config(path)
    except UserError:
        return False
    return {"dataset", "model", "trainer"} <= config.keys()


def read_config(path: Path) -> dict[str, Any]:
    """The filled-in config of a run."""
    return read_json(path / CONFIG, "the folder of a run")


def _is_empty(path: Path) -> bool:
    """Whether a folder holds nothing but what a start that failed may leave."""
    return path.is_dir() and all(
        each.name in (LOCK, HOLDER) or is_left_aside(each) for each in path.iterdir()
    )


def _remove(path: Path) -> None:
    """Deletes a folder, or a link to one but not what it leads to; what cannot be deleted stays."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
