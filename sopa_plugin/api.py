"""What the commands do, from Python: `sopa_plugin` has `train_model` and so on by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.errors import UserError, listed, require
from sopa_plugin.files import check_folder, identity_of
from sopa_plugin.registry import import_plugins

if TYPE_CHECKING:
    from sopa_plugin.models import Model


class Predictor(Protocol):
    """What predicts: a `Model`, or one compiled."""

    labels: list[str]

    def log_probabilities(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`."""
        ...


def train_model(
    config: str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    overrides: Sequence[str] = (),
    force: bool = False,
    recover: bool = False,
) -> Model:
    """Trains the model that a config describes, as the command `train`; that model.

    Arguments:
        config: a Jsonnet or JSON file, or what such a file holds.
        folder: the run's; of a file by default `runs/<name of the config>`.
        overrides: `a.b=value`, as with `-o`.
        force: replace the run that is in the folder.
        recover: continue it.

    Raises `ConfigError` with every problem of the config, and `UserError` for a folder that is in
    the way, and for faults of the data.
    """
    from sopa_plugin.models import load_model
    from sopa_plugin.registry import apply_overrides, load_config
    from sopa_plugin.training import Experiment, run_experiment

    if isinstance(config, Mapping):
        if folder is None:
            raise TypeError("a config that is no file names no folder for its run: give one")
        loaded = apply_overrides(Experiment, dict(config), overrides)
    else:
        loaded = load_config(config, overrides, Experiment)
        folder = folder or Path("runs", Path(config).stem)
    run_experiment(loaded, folder, force, recover)
    return load_model(folder)


def evaluate_model(
    run: str | Path,
    data: str | Path | Iterable[str | Path] = (),
    splits: Sequence[str] = ("dev", "test"),
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Figures of a run's model, as of the command `evaluate`: one mapping for each set of data.

    Arguments:
        run: the folder of a finished run.
        data: files or folders in the format of the run's own data, or files with columns `text` and
            `label`.
        splits: which of the run's own sets, where no `data` are given.
        device: where the model is to run; by default a GPU if there is one.

    Raises `UserError` for data that the run's reader cannot read.
    """
    from sopa_plugin.cli import choose_device
    from sopa_plugin.training import evaluate_run

    paths = [data] if isinstance(data, (str, Path)) else data
    return list(evaluate_run(run, [*map(str, paths)], choose_device(device), splits=splits))


def predict_texts(
    model: Predictor | str | Path, texts: Sequence[str], device: str | None = None
) -> list[dict[str, Any]]:
    """Label and probabilities of each text, as the command `predict` writes them.

    Arguments:
        model: a model, one compiled, or the folder of one.
        texts: a list of texts.
        device: where a model of a folder is to run.

    Returns:
        `text`, `label` and `probabilities {label: p}` for each text.

    Raises `TypeError` for a single text.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts: expected a list of texts, found one; give [{texts[:40]!r}]")
    texts = list(texts)
    predictor = load_predictor(model, device) if isinstance(model, (str, Path)) else model
    answers = probabilities(predictor, texts)
    labels = predictor.labels
    return [
        {
            "text": text,
            "label": labels[int(row.argmax())],
            "probabilities": dict(zip(labels, row.tolist(), strict=True)),
        }
        for text, row in zip(texts, answers, strict=True)
    ]


def probabilities(model: Predictor, texts: Sequence[str]) -> NDArray[np.floating]:
    """Probabilities of the classes, `[texts, labels]`.

    Raises `UserError` for a model whose answers are no numbers.
    """
    log_probabilities = model.log_probabilities(texts)
    if not np.isfinite(log_probabilities).all():
        raise UserError("the model gives no probabilities (nan): its weights are damaged")
    return np.exp(log_probabilities)  # type: ignore[no-any-return]


def load_predictor(
    folder: str | Path, device: str | None = None, accept_changed: bool = False
) -> Predictor:
    """The model of a folder on its device or, unless that is none but the CPU, compiled."""
    from sopa_plugin.compiled import load_compiled

    if device in (None, "cpu"):
        compiled = load_compiled(folder, accept_changed)
        if compiled is not None:
            return compiled
        accept_changed = True  # looked at already
    require("torch", f"{folder}: what is not compiled", extra=None)
    from sopa_plugin.cli import choose_device
    from sopa_plugin.models import load_model  # and transformers, which takes seconds

    device = choose_device(device)
    model = load_model(folder, accept_changed)
    model.to_device(device)
    return model


class BatchPredictor:
    """Answers batches of columns: for `map(batched=True)` of datasets, `map_batches` of Ray Data.

    It pickles without its model, which each process loads when it is first called.

    Arguments:
        folder: of a run, or of any saved model.
        text_column: of the text; None in it is a document with no token.
        device: as for `load_predictor`.
        packages: to be imported first, where the model has parts of them.

    Raises `UserError` where there is no such folder.
    """

    def __init__(
        self,
        folder: str | Path,
        text_column: str = "text",
        device: str | None = None,
        packages: Sequence[str] = (),
    ) -> None:
        self.folder, self.text_column = Path(folder).absolute(), text_column
        self.device, self.packages = device, tuple(packages)
        check_folder(self.folder, "give the folder of a finished run")
        self.files = identity_of(self.folder)  # datasets keeps answers of equal pickles
        self._model: Predictor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_model": None}

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with `label` and `probability_…` of each class, named as by `predict`."""
        from sopa_plugin.data.stream import answer_columns, free_name

        if self._model is None:
            import_plugins(self.packages)
            self._model = load_predictor(self.folder, self.device)
        if self.text_column not in batch:
            raise UserError(
                f"no column {self.text_column!r}; the columns are {listed(batch)}: give text_column"
            )
        texts = ["" if text is None else text for text in batch[self.text_column]]
        labels, found = self._model.labels, probabilities(self._model, texts)
        best = np.array([labels[number] for number in found.argmax(axis=1)], object)
        names = (free_name(name, batch) for name in answer_columns(labels))
        return {**batch, **dict(zip(names, [best, *found.T], strict=True))}
