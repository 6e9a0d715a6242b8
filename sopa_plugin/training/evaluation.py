"""The data of a run, or others in their form, and how good its model is on them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from pyarrow import parquet

from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.data.readers.splits import is_labelled, label_names
from sopa_plugin.data.sources import (
    SPLITS,
    format_of,
    is_parquet,
    is_stored,
    read_records,
    remedied,
)
from sopa_plugin.data.tokenizers import fold_and_cut
from sopa_plugin.errors import UserError
from sopa_plugin.models import Model, load_model
from sopa_plugin.registry import build, imported_only
from sopa_plugin.training.metrics import Metrics, detailed_metrics, metrics_text
from sopa_plugin.training.run_folder import CONFIG, read_config

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


def dataset_reader(run: Path, path: str | None = None) -> DatasetReader:
    """What reads the data that a run was trained on, or other data at `path` in their form.

    Beside a model that was saved by itself there are none, and others are read as `text`.
    """
    if (run / CONFIG).exists():
        params = read_config(run).get("dataset")
    elif path is not None:
        params = {"type": "text"}
    else:
        raise UserError(
            f"{run}: has a model, and no {CONFIG} to say what it was trained on; give a file "
            "of texts and labels: to evaluate after the folder, to explain with --data"
        )
    if not isinstance(params, dict):
        raise UserError(f"{run / CONFIG}: no dataset in it; expected the config of a run")
    if path is not None:
        others = {*SPLITS}
        if Path(path).exists() and not is_stored(Path(path)):  # plain files have no such names
            others |= {"split_names", "config_name"}
        params = {key: each for key, each in params.items() if key not in others} | {"path": path}
    with imported_only():
        return build(DatasetReader, params)  # type: ignore[no-any-return]


def read_labelled(run: Path, path: str, labels: Sequence[str]) -> Dataset:
    """The texts of a file, in the form of the run's own data or else in columns `text` and `label`.

    Arguments:
        labels: those that the model knows.
    """
    reader = dataset_reader(run, path)
    try:
        return reader.read_file(path, labels)
    except UserError:
        if not {"text", "label"} <= _columns(Path(path), reader.encoding):
            raise
    kept = ("lowercase", "max_tokens", "encoding", "empty_text", "labels_only_in_test")
    params = {"type": "text", "path": path, **{key: getattr(reader, key) for key in kept}}
    return build(DatasetReader, params).read_file(path, labels)  # type: ignore[no-any-return]


def _columns(file: Path, encoding: str) -> set[str]:
    """The columns of a table, if the file is one by its name and can be read."""
    with suppress(UserError, OSError, ValueError):
        if is_parquet(file):
            return set(parquet.read_schema(file).names)
        if format_of(file.name) in ("csv", "tsv", "jsonl"):
            _, first = next(read_records(file, encoding, wanted=("text", "label")), (0, {}))
            return set(first)
    return set()


def data_like_own(run: Path) -> AbstractContextManager[None]:
    """For `with`: what is wrong with data that are read as a run's own says what those are."""
    form = "in columns `text` and `label`"
    if (run / CONFIG).exists():
        form = f"like those that the run was trained on (`dataset` in {run / CONFIG})"
    return remedied(f"give data {form}")


def evaluate_run(
    folder: str | Path,
    data: Sequence[str] = (),
    device: str = "cpu",
    accept_changed: bool = False,
    splits: Sequence[str] = ("dev", "test"),
    errors: TextIO | None = None,
    also: Callable[[Model, Sequence[str]], Metrics] | None = None,
) -> Iterator[Metrics]:
    """Metrics of a run's model: on sets of its own, or on `data`.

    Arguments:
        folder: of a finished run.
        data: files or folders in the format that the run was trained on, or files with columns
            `text` and `label`. Of a folder its test set is taken, or what the reader splits off as
            one.
        device: where the model is to run.
        accept_changed: take a model whose files were changed after training.
        splits: which of the run's own sets, where no `data` are given.
        errors: gets a line of JSON for each document that is wrong, of each set the surest first:
            `data`, `split`, `row`, `text`, `gold`, `predicted`, `probability`.
        also: measures more, of the model on the texts of a set.

    Yields:
        `data`, `split`, what `sopa_plugin.training.metrics.detailed_metrics` gives, and `also`.

    Raises `UserError` for a label that the model does not know. Labels are matched by name.
    """
    folder = Path(folder)
    model = load_model(folder, accept_changed)
    model.to_device(device)
    reader = dataset_reader(folder, data[0] if data else None)
    # runs of earlier versions had their data cut and lower-cased, but not by the tokenizer
    fold_and_cut(model.tokenizer, reader.lowercase, reader.max_tokens)
    counted = reader.labels_only_in_test == "count"
    sets: list[tuple[str, str, Dataset]] = []
    if not data:
        own = reader.read()
        there = [split for split in splits if split in own]
        labelled = [split for split in there if is_labelled(own[split])]
        sets = [(str(reader.path), split, own[split]) for split in labelled or there]
    for path in data:
        with data_like_own(folder):
            if Path(path).is_file():
                examples = read_labelled(folder, path, model.labels)
            else:
                examples = dataset_reader(folder, path).read_test(model.labels)
        sets.append((path, "test", examples))
    for path, split, examples in sets:
        if not is_labelled(examples):
            raise UserError(f"{path}: its {split} texts have no labels to evaluate by")
        names, columns = label_names(examples), examples[:]
        others = {names[number] for number in columns["label"]} - set(model.labels)
        if others and not counted:
            raise UserError(
                f"the {split} set has the label '{min(others)}', which the model does not know; "
                f"expected {', '.join(model.labels)}"
            )
        # by name: the same class may have another number in other data
        classes = [*model.labels, *sorted(others)]
        labels = np.array([classes.index(names[number]) for number in columns["label"]])
        log_probabilities = model.log_probabilities(columns["text"])
        predicted, sure = log_probabilities.argmax(axis=1), log_probabilities.max(axis=1)
        for number in np.argsort(-sure, kind="stable"):
            if errors is not None and predicted[number] != labels[number]:
                error = {
                    "data": path,
                    "split": split,
                    "row": columns["row"][number] if "row" in columns else int(number) + 1,
                    "text": columns["text"][number],
                    "gold": classes[labels[number]],
                    "predicted": model.labels[predicted[number]],
                    "probability": round(float(np.exp(sure[number])), 6),
                }
                errors.write(json.dumps(error, ensure_ascii=False) + "\n")
        metrics = detailed_metrics(log_probabilities, labels, model.labels)
        logger.info("%s, %s:\n%s", path, split, metrics_text(metrics))
        more = also(model, columns["text"]) if also else {}
        yield {"data": path, "split": split, **metrics, **more}
