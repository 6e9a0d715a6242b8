"""A whole experiment: what a config file describes, from data to a run folder."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import accelerate
import datasets
import torch
import transformers
from accelerate.utils import set_seed
from datasets import ClassLabel, Dataset, DatasetDict
from tokenizers import normalizers
from transformers import PreTrainedTokenizerBase

from sopa_plugin import __version__
from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.data.tokenizers import Tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.models import Model
from sopa_plugin.registry import Lazy, build, fill_defaults, imported_plugins
from sopa_plugin.training.evaluation import evaluate_split
from sopa_plugin.training.model_card import model_card
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.trainer import Metrics, OnEpoch, Trainer

MAX_SEED = 2**31 - 1  # NumPy takes 32 bits, and every process adds its number

logger = logging.getLogger(__name__)


class Experiment:
    """What the top level of a config holds.

    Arguments:
        dataset: reads the data.
        model: is trained.
        trainer: trains it.
        tokenizer: is built from the training documents.
        seed: of everything random.
    """

    def __init__(
        self,
        dataset: DatasetReader,
        model: Lazy[Model],
        trainer: Lazy[Trainer] = Lazy(Trainer, "accelerate"),  # noqa: B008
        tokenizer: Lazy[Tokenizer] = Lazy(Tokenizer, "whitespace"),  # noqa: B008
        seed: int = 1,
    ) -> None:
        self.dataset = dataset
        self.model = model
        self.trainer = trainer
        self.tokenizer = tokenizer
        self.seed = seed

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Whether the seed is one, and whether the trainer can train the model."""
        if not 0 <= params["seed"] <= MAX_SEED:
            yield "seed", f"expected a number from 0 to {MAX_SEED}, found {params['seed']}"
        trainer = Trainer.by_name(params["trainer"]["type"])
        model = Model.by_name(params["model"]["type"])
        if not issubclass(model, trainer.trains):
            fitting = [
                name
                for name in Trainer.list_available()
                if issubclass(model, Trainer.by_name(name).trains)
            ]
            yield (
                "trainer.type",
                f"'{params['trainer']['type']}' does not train the model "
                f"'{params['model']['type']}'; expected one of {', '.join(fitting)}",
            )

    def run(self, run: RunFolder, on_epoch: OnEpoch | None = None) -> Metrics:
        """Reads, builds, trains, tests and saves; the metrics."""
        if self.dataset.is_embedded_sample:
            logger.info("training on the embedded sample: figures say nothing about real data")
        _log_versions()
        set_seed(self.seed)
        data = self.dataset.read()
        _check_data(data)
        tokenizer = self._build_tokenizer(data)
        labels: list[str] = data["train"].features["label"].names
        model = self.model.construct(tokenizer=tokenizer, labels=labels)
        trainer = self.trainer.construct()
        trainer.set_up(model, run)
        sizes = {split: len(each) for split, each in data.items()}
        logger.info("data: %s: %s; classes: %s", self.dataset.describe(), sizes, ", ".join(labels))
        counts = model.parameter_counts()
        logger.info("parameters: %s", ", ".join(f"{key} {n:,}" for key, n in counts.items()))
        run.start()
        metrics = trainer.train(model, data, run, self.seed, on_epoch)
        if "test" in data:
            log_probabilities = trainer.log_probabilities(model, data["test"]["text"])
            metrics |= evaluate_split("test", log_probabilities, data["test"]["label"])
            run.log_predictions("test", labels, data["test"]["label"], log_probabilities)
        metrics |= {f"parameters_{key}": n for key, n in model.parameter_counts().items()}
        model.to_device("cpu")
        run.finish(model, metrics, self._card(run, labels, sizes, metrics))
        logger.info("%s", _result_line(metrics, run.path))
        return metrics

    def _build_tokenizer(self, data: DatasetDict) -> PreTrainedTokenizerBase:
        params = fill_defaults(Model, self.model.params)
        words = Model.by_name(params["type"]).pretrained_words(params)
        tokenizer = self.tokenizer.construct().build(
            data["train"]["text"], data["dev"]["text"], words
        )
        if self.dataset.lowercase:
            _lowercase(tokenizer)
        return tokenizer

    def _card(
        self, run: RunFolder, labels: list[str], sizes: dict[str, int], metrics: Metrics
    ) -> str:
        return model_card(
            run.path.resolve().name,
            self.dataset.describe(),
            self.dataset.is_embedded_sample,
            labels,
            sizes,
            run.config,
            metrics,
            imported_plugins(),
        )


def run_experiment(
    config: Mapping[str, Any],
    folder: str | Path,
    force: bool = False,
    recover: bool = False,
    on_epoch: OnEpoch | None = None,
) -> Metrics:
    """Runs the experiment of a config in a folder; the metrics.

    Arguments:
        config: as `load_config` gives it.
        folder: the run's.
        force: replace what run is there.
        recover: continue the run that is there; its metrics at once, if it had finished.
        on_epoch: called with each epoch's metrics.

    Raises `ConfigError` with every problem of the config, before anything is read, and `UserError`
    for a folder that is in the way and for faults of the data.
    """
    filled = fill_defaults(Experiment, dict(config))
    run = RunFolder(folder, filled, force, recover)
    if run.finished is not None:
        logger.info("%s: this run had finished", run.path)
        return dict(run.finished)
    experiment: Experiment = build(Experiment, filled)
    try:
        return experiment.run(run, on_epoch)
    finally:
        run.close_log()


def _result_line(metrics: Metrics, path: Path) -> str:
    figures = [
        f"{name.replace('_', ' ')} {metrics[name]:.4f}"
        for name in ("best_validation_accuracy", "test_accuracy", "test_macro_f1")
        if name in metrics
    ]
    return f"{', '.join(figures)}; saved in {path}"


def _check_data(data: DatasetDict) -> None:
    """What every reader must give, one's own too."""
    for split in ("train", "dev"):
        if split not in data or not len(data[split]):
            raise UserError(f"the data have no {split} examples; expected at least one")
    names = _label_names(data["train"])
    known = set(data["train"]["label"])
    for split, each in data.items():
        if _label_names(each) != names:
            raise UserError(f"the {split} set has other classes than train: {_label_names(each)}")
        strange = sorted(set(each["label"]) - known)
        if strange:
            raise UserError(f"the {split} set has the label {strange[0]}, which train lacks")


def _label_names(data: Dataset) -> list[str]:
    label = data.features.get("label")
    if not isinstance(label, ClassLabel):
        raise UserError("the data have no column `label` of the type ClassLabel")
    return label.names  # type: ignore[no-any-return]


def _lowercase(tokenizer: PreTrainedTokenizerBase) -> None:
    """New text is to be lower-cased as the reader did it with the data."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(
            "dataset.lowercase: this tokenizer cannot lower-case new text; leave lower-casing to "
            "the tokenizer itself"
        )
    steps = [normalizers.Lowercase()]
    if backend.normalizer is not None:
        steps.append(backend.normalizer)
    backend.normalizer = normalizers.Sequence(steps)


def _log_versions() -> None:
    logger.info(
        "sopa_plugin %s, Python %s, torch %s, transformers %s, datasets %s, accelerate %s",
        __version__,
        platform.python_version(),
        torch.__version__,
        transformers.__version__,
        datasets.__version__,
        accelerate.__version__,
    )
