"""Figures of a trained model on its own data, or on other data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sopa_plugin.data.tokenizers import fold_and_cut
from sopa_plugin.errors import UserError
from sopa_plugin.models import Model, load_model
from sopa_plugin.training.metrics import Metrics, classification_metrics
from sopa_plugin.training.run_folder import dataset_reader

if TYPE_CHECKING:
    from datasets import Dataset


def evaluate_run(
    folder: str | Path,
    data: Sequence[str] = (),
    device: str = "cpu",
    accept_changed: bool = False,
) -> Iterator[Metrics]:
    """Metrics of a run's model: on its own dev and test sets, or on `data`.

    Arguments:
        folder: of a finished run.
        data: files or folders in the format that the run was trained on. Of a folder its test set
            is taken, or what the reader splits off as one.
        device: where the model is to run.
        accept_changed: take a model whose files were changed after training.

    Yields:
        `data`, `split`, `accuracy`, `macro_f1`, `loss`, `examples`.

    Raises `UserError` for a label that the model does not know. Labels are matched by name.
    """
    folder = Path(folder)
    model = load_model(folder, accept_changed)
    model.to_device(device)
    own = dataset_reader(folder)
    # runs of earlier versions had their data cut and lower-cased, but not by the tokenizer
    fold_and_cut(model.tokenizer, own.lowercase, own.max_tokens)
    if not data:
        splits = own.read()
        for split in ("dev", "test"):
            if split in splits:
                yield {"data": own.path, **_evaluate(model, split, splits[split])}
    for path in data:
        if Path(path).is_file():
            test = own.read_file(path, model.labels)
        else:
            test = dataset_reader(folder, path).read_test(model.labels)
        yield {"data": path, **_evaluate(model, "test", test)}


def _evaluate(model: Model, split: str, data: Dataset) -> Metrics:
    names = data.features["label"].names
    columns = data[:]
    unknown = {names[number] for number in columns["label"]} - set(model.labels)
    if unknown:
        raise UserError(
            f"the {split} set has the label '{min(unknown)}', which the model does not know; "
            f"expected {', '.join(model.labels)}"
        )
    # by name: the same class may have another number in other data
    labels = [model.labels.index(names[number]) for number in columns["label"]]
    metrics = classification_metrics(model.log_probabilities(columns["text"]), labels)
    return {"split": split, **metrics}
