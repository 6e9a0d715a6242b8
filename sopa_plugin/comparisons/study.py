"""Optuna's study of a search: opened, by several processes or again and again, as one search's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from sopa_plugin.comparisons.locks import locked
from sopa_plugin.errors import UserError, require
from sopa_plugin.files import write_file

if TYPE_CHECKING:
    from optuna import Study

STUDY = "sopa_plugin"
SETTINGS = "search"  # what the search is, among the study's attributes
LOCK = ".study.lock"  # held while the study is opened and while a trial is taken


def open_study(
    folder: Path,
    storage: str | None,
    settings: Mapping[str, Any],
    direction: Literal["minimize", "maximize"],
    pruner: Literal["none", "median"],
) -> Study:
    """The study in a folder, made or found.

    Arguments:
        folder: of the search.
        storage: an Optuna storage URL; by default a journal file in the folder.
        settings: what must be the same for the search to go on, as JSON holds it.
        direction: of the metric.
        pruner: whether bad trials are stopped early.

    Raises `UserError` if the study is another search's, or another folder's.
    """
    optuna = require("optuna", "a search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruners = {"none": optuna.pruners.NopPruner, "median": optuna.pruners.MedianPruner}
    with locked(folder / LOCK):
        study = optuna.create_study(
            study_name=STUDY,
            storage=_open_storage(optuna, folder, storage),
            direction=direction,
            pruner=pruners[pruner](),
            load_if_exists=True,
        )
        if storage is not None:  # the locks that tell which trials are being run are in the folder
            settings = {**settings, "folder": _name_of(folder)}
        before = study.user_attrs.get(SETTINGS)
        if before is None:
            study.set_user_attr(SETTINGS, settings)
            return study  # type: ignore[no-any-return]
        # a setting that is not among them came with a later version
        changed = sorted(key for key in settings if before.get(key, settings[key]) != settings[key])
        if changed:
            raise UserError(
                f"{folder}: the search in this folder is another one; it differs in "
                f"{', '.join(changed)}. Go on with the same, or choose another folder with -s"
            )
    return study  # type: ignore[no-any-return]


def _name_of(folder: Path) -> str:
    """A name that the folder keeps when it is moved, or mounted elsewhere."""
    file = folder / ".name"
    if not file.is_file():
        write_file(file, uuid4().hex)
    return file.read_text(encoding="utf-8")


def _open_storage(optuna: Any, folder: Path, storage: str | None) -> Any:
    if storage is not None:
        try:
            return optuna.storages.get_storage(storage)
        except Exception as error:  # whatever SQLAlchemy makes of a wrong URL
            raise UserError(f"--storage {storage}: cannot be opened ({error})") from error
    journal = require("optuna.storages.journal", "a search")
    file = folder / "study.log"
    lock = journal.JournalFileOpenLock(str(file))
    _cut_half_line(file, lock)
    try:
        return optuna.storages.JournalStorage(journal.JournalFileBackend(str(file), lock_obj=lock))
    except (ValueError, KeyError) as error:
        raise UserError(
            f"{file}: damaged ({error}); mend it, or delete it to begin the search anew"
        ) from error


def _cut_half_line(file: Path, lock: Any) -> None:
    """Takes away what a kill or a full disk has left of a line, which would spoil the next one."""
    if not file.is_file():
        return
    lock.acquire()
    try:
        content = file.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(file, content.rfind(b"\n") + 1)
    finally:
        lock.release()
