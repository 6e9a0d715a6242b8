"""A whole experiment: what a config file describes, from data to a run folder."""

from __future__ import annotations

import logging
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase
from transformers.utils.generic import flatten_dict

from sopa_plugin import __version__
from sopa_plugin.data.batches import Documents
from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.data.readers.dataset_reader import in_fixtures
from sopa_plugin.data.readers.splits import is_labelled, label_names
from sopa_plugin.data.tokenizers import Tokenizer, build_tokenizer, in_batches
from sopa_plugin.embedders import TokenEmbedder
from sopa_plugin.encoders import Seq2VecEncoder, SopaEncoder
from sopa_plugin.errors import TrainingFailed, UserError, listed
from sopa_plugin.models import Model, NeuralModel, load_model
from sopa_plugin.registry import (
    Bound,
    ConfigError,
    Lazy,
    LocalFile,
    build,
    fill_defaults,
)
from sopa_plugin.training.card import model_card
from sopa_plugin.training.metrics import (
    Metrics,
    detailed_metrics,
    fit_temperature,
    metrics_text,
)
from sopa_plugin.training.processes import by_all, lost_another
from sopa_plugin.training.run_folder import OnEpoch, RunFolder
from sopa_plugin.training.trainer import Trainer

if TYPE_CHECKING:
    from datasets import DatasetDict

    from sopa_plugin.embedders.token_embedder import Found

MAX_SEED = 2**31 - 1  # NumPy takes 32 bits, and every process adds its number
LOW_COVERAGE = 0.9
"""Share of the training tokens that have a vector, below which one had better know of it."""
FREQUENT = {"train": 20, "dev": 3}
"""A class with more examples than these ought to be predicted of some dev text."""
Seed = Annotated[int, Bound(at_least=0, at_most=MAX_SEED)]

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Experiment:
    """What the top level of a config holds: one run.

    Arguments:
        dataset: reads the data.
        model: is trained.
        trainer: trains it.
        tokenizer: is built from the training documents.
        seed: of everything random.
        init_from: folder of a finished run, from whose model training starts: with its tokenizer
            and, where the classes are others, a new head. The parts must be of the same sizes.
        calibrate: whether probabilities are scaled by a temperature fitted on dev.
    """

    dataset: DatasetReader
    model: Lazy[Model]
    trainer: Lazy[Trainer] = Lazy(Trainer, "accelerate")  # noqa: RUF009
    tokenizer: Lazy[Tokenizer] = Lazy(Tokenizer, "whitespace")  # noqa: RUF009
    seed: Seed = 1
    init_from: LocalFile | None = None
    calibrate: bool = False

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Whether the trainer can train the model, and the patterns that it has."""
        trainer = Trainer.by_name(params["trainer"]["type"])
        model = Model.by_name(params["model"]["type"])
        if params["init_from"] is not None and not issubclass(model, NeuralModel):
            yield "init_from", "only a text_classifier can start from another run"
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
        encoder = params["model"].get("encoder") or {}
        if not (params["trainer"].get("num_epochs") and {"semiring", "encoding"} <= encoder.keys()):
            return
        if issubclass(Seq2VecEncoder.by_name(encoder["type"]), SopaEncoder):
            for key, problem in SopaEncoder.gradient_problems(encoder):
                advice = f"train with another {key}, or for no epoch (trainer.num_epochs: 0)"
                yield f"model.encoder.{key}", f"{problem}: {advice}"

    def run(self, run: RunFolder) -> Metrics:
        """Reads, builds, trains, tests and saves; the metrics."""
        from accelerate.utils import set_seed

        if self.dataset.is_embedded_sample:
            logger.info("training on the embedded sample: figures say nothing about real data")
        set_seed(self.seed)
        data, model, trainer = by_all(lambda: self._prepare(run))
        run.start()
        packages = ("torch", "transformers", "datasets", "accelerate")
        versions = ", ".join(f"{each} {version(each)}" for each in packages)
        python = platform.python_version()
        logger.info("sopa_plugin %s, Python %s, %s", __version__, python, versions)
        sizes = {split: len(each) for split, each in data.items()}
        labels = ", ".join(model.labels)
        logger.info("data: %s: %s; classes: %s", self.dataset.describe(), sizes, labels)
        _log_overlap(data)
        _log_tokens(model, data, trainer.documents, self.dataset.is_embedded_sample)
        counts = model.parameter_counts()
        logger.info("parameters: %s", ", ".join(f"{key} {n:,}" for key, n in counts.items()))
        metrics = {"training_examples": len(data["train"])}  # also where no epoch counts them
        metrics |= trainer.train(model, data, run, self.seed)
        metrics |= self._measure(trainer, model, data, run, metrics)
        metrics |= {f"parameters_{key}": n for key, n in model.parameter_counts().items()}
        model.to_device("cpu")
        name = run.path.resolve().name
        card = model_card(name, self.dataset, data, model.labels, run.config, metrics)
        run.finish(model, metrics, card)
        figures = [
            f"{key.replace('_', ' ')} {metrics[key]:.4f}"
            for key in ("best_validation_accuracy", "test_accuracy", "test_macro_f1")
            if key in metrics
        ]
        logger.info("%ssaved in %s", f"{', '.join(figures)}; " * bool(figures), run.path)
        return metrics

    def _measure(
        self, trainer: Trainer, model: Model, data: DatasetDict, run: RunFolder, known: Metrics
    ) -> Metrics:
        """Calibrates, if so wanted; the figures of dev and test that are not `known` yet."""
        metrics: Metrics = {}

        def answers(split: str) -> NDArray[np.floating]:
            texts = trainer.documents.get(split) or data[split]["text"][:]
            return trainer.log_probabilities(model, texts)

        if self.calibrate:
            log_probabilities = answers("dev")
            metrics["temperature"] = fit_temperature(log_probabilities, data["dev"]["label"][:])
            model.scale_logits(1 / metrics["temperature"])
            known = {}  # of other probabilities
        for split, prefix in (("dev", "best_validation"), ("test", "test")):
            if split not in data:
                continue
            examples = data[split][:]
            log_probabilities = answers(split)
            if split == "test":
                names = data[split].features["label"].names
                run.log_predictions(split, names, examples, log_probabilities)
            if not is_labelled(data[split]):
                continue
            figures = detailed_metrics(log_probabilities, examples["label"], model.labels)
            logger.info("%s:\n%s", split, metrics_text(figures))
            metrics |= {f"{prefix}_{key}": value for key, value in figures.items()}
            if split == "dev":
                metrics["unpredicted_classes"] = _unpredicted(data, figures)
        return {key: value for key, value in metrics.items() if key not in known}

    def _prepare(self, run: RunFolder) -> tuple[DatasetDict, Model, Trainer]:
        """All that can fail for the data or the machine, before there is a run folder."""
        data = self.dataset.read()
        _check_data(data, self.dataset.unseen_classes == "keep")
        start = None if self.init_from is None else load_model(self.init_from)
        params = fill_defaults(Model, self.model.params)
        rules = Model.by_name(params["type"]).read_rules(params)
        words, of_rules = ([], ()) if rules is None else (rules.words, rules.labels)
        trainer = self.trainer.construct()
        _check_labels(data, of_rules, trainer.needs_labels or self.calibrate)
        tokenizer = self._build_tokenizer(data, params, words) if start is None else start.tokenizer
        seen = label_names(data["train"])
        data = with_labels(data, of_rules)
        labels = label_names(data["train"])
        only = labels[len(seen) :]
        if only and is_labelled(data["train"]):
            logger.warning("no text has the labels that rules alone vote for: %s", listed(only))
        model = self.model.construct(tokenizer=tokenizer, labels=labels, rules_read=rules)
        if start is not None:
            _take_weights(model, start, str(self.init_from))
        else:
            model.look_at(data["train"]["text"])
        trainer.set_up(model, run)
        if trainer.takes_documents and isinstance(model, NeuralModel):
            classifier: Any = model
            trainer.documents = {
                split: classifier.encode_texts(each["text"], each["label"])
                for split, each in data.items()
            }
        return data, model, trainer

    def _build_tokenizer(
        self, data: DatasetDict, params: Mapping[str, Any], also: Sequence[str]
    ) -> PreTrainedTokenizerBase:
        """The tokenizer of the data for a model of `params`, which knows some words besides."""
        embedder, tokenizer = params.get("embedder"), self.tokenizer.construct()
        train: Sequence[str] = data["train"]["text"]
        if also:
            train = [*train[:], *[" ".join(also)] * getattr(tokenizer, "min_count", 1)]
        words: Iterable[str] = ()
        cased = None
        if embedder is not None:
            kind = TokenEmbedder.by_name(embedder["type"])
            words, cased = kind.pretrained_words(embedder), kind.is_cased(embedder)
        lowercase, max_tokens = self.dataset.lowercase, self.dataset.max_tokens
        dev = data["dev"]["text"]
        return build_tokenizer(tokenizer, train, dev, words, cased, lowercase, max_tokens)


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
    for a folder that is in the way or in use, and for faults of the data.
    """
    filled = fill_defaults(Experiment, dict(config))
    with RunFolder(folder, filled, force, recover, on_epoch) as run:
        changed = [] if run.before is None else config_changes(run.before, filled)
        may_change = Trainer.by_name(filled["trainer"]["type"]).may_change(filled["trainer"])
        if not {f"trainer.{key}" for key in may_change}.issuperset(changed):
            raise UserError(
                f"{run.path}: the run in this folder has another config; it differs at "
                f"{', '.join(changed)}. Recover it with the same config (only "
                f"{listed(sorted(may_change)) or 'nothing'} of the trainer may be another), or "
                "begin anew with --force or in another folder (-s)"
            )
        if run.finished is not None and not changed:
            logger.info("%s: this run had finished", run.path)
            return dict(run.finished)
        if run.finished is not None and not run.checkpoints.is_dir():
            raise UserError(
                f"{run.path}: this run had finished and has no checkpoints to go on from; begin "
                "anew with --force, or in another folder (-s) with init_from"
            )
        experiment: Experiment = build(Experiment, filled)
        try:
            return experiment.run(run)
        except RuntimeError as error:
            if not lost_another(error):
                raise
            raise UserError("another of the processes has ended; see its error") from error


def config_changes(before: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """The paths at which a filled-in config differs from that of a run.

    A default that the run does not know, since this version is younger, is no difference.
    """
    with suppress(ConfigError):  # of options that are no more
        before = fill_defaults(Experiment, dict(before))
    old, new = flatten_dict(dict(before)), flatten_dict(dict(config))
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _take_weights(model: Any, start: Model, folder: str) -> None:
    """Gives a model the weights of another, but for a head of other classes."""
    if not isinstance(start, NeuralModel):
        raise UserError(f"init_from: {folder} holds no text_classifier, from which one can start")
    given: Any = start
    own, weights = model.state_dict(), given.state_dict()
    if start.labels != model.labels:
        weights = {key: each for key, each in weights.items() if not key.startswith("head.")}
        own = {key: each for key, each in own.items() if not key.startswith("head.")}
        logger.info("init_from: %s has other classes: the head is a new one", folder)
        weights["class_log_prior"] = own["class_log_prior"]
    shapes, wanted = (
        {key: tuple(each.shape) for key, each in state.items()} for state in (weights, own)
    )
    if other := sorted(key for key, _ in shapes.items() ^ wanted.items()):
        raise UserError(
            f"init_from: {folder} holds a model of other parts or sizes, at {listed(other, 5)}; "
            "give the model of the config the same"
        )
    model.load_state_dict(weights, strict=False)


def _unpredicted(data: DatasetDict, figures: Metrics) -> list[str]:
    """The frequent classes that a model predicts of no dev text; the log names them."""
    train = Counter(data["train"]["label"][:])
    predicted = np.sum(figures["confusion_matrix"], axis=0)
    missed = []
    for number, (name, each) in enumerate(figures["per_class"].items()):
        counts = {"train": train[number], "dev": each["support"]}
        if not predicted[number] and all(counts[key] > least for key, least in FREQUENT.items()):
            logger.info("no dev text is predicted to be '%s'; examples: %s", name, counts)
            missed.append(name)
    return missed


def _check_data(data: DatasetDict, unseen_classes: bool) -> None:
    """What every reader must give, one's own too."""
    for split in ("train", "dev"):
        if split not in data or not len(data[split]):
            raise UserError(f"the data have no {split} examples; expected at least one")
    names = label_names(data["train"])
    known = set(data["train"]["label"][:])
    if unseen_classes or known == {-1}:  # the others may have any label or, of none in train, none
        known |= set(range(len(names)))
    for split, each in data.items():
        classes = label_names(each)
        # test may go on with labels that count as wrong, where the reader was told so
        if (classes[: len(names)] if split == "test" else classes) != names:
            raise UserError(f"the {split} set has other classes than train: {label_names(each)}")
        for number in sorted(set(each["label"][:]) - known):
            if len(names) <= number < len(classes):
                continue
            if not 0 <= number < len(names):
                raise UserError(f"the {split} set has the label {number}, which is of no class")
            raise TrainingFailed(
                f"the {split} set has examples of the class '{names[number]}', of which the "
                "training set has none (of a small subset, another dataset.subsample_seed may "
                "have some)"
            )


def _check_labels(data: DatasetDict, of_rules: Sequence[str], needed: bool) -> None:
    """Whether there are labels where they are needed; without, the classes are those of rules."""
    lacking = [split for split, each in data.items() if not is_labelled(each)]
    if needed and lacking:
        raise UserError(
            f"the {lacking[0]} texts have no labels, by which a model is trained: name their "
            "column (dataset.label_column), or let rules decide alone (model.rules and "
            "trainer.num_epochs: 0)"
        )
    others = sorted(set(label_names(data["train"])) - set(of_rules))
    if "train" in lacking and (others or len(of_rules) < 2):
        raise UserError(
            "the train texts have no labels, so that the classes are those of rules (model.rules "
            f"and model.fallback): expected two or more{', also ' * bool(others)}{listed(others)}, "
            f"found {listed(of_rules) or 'none'}"
        )
    if lacking:
        logger.info("no labels in %s: figures that need them are left out", ", ".join(lacking))


def with_labels(data: DatasetDict, labels: Sequence[str]) -> DatasetDict:
    """The data with the classes of `labels`, too, of which no training text may be."""
    from datasets import ClassLabel

    names = label_names(data["train"])
    known = [*names, *(label for label in labels if label not in names)]
    if known == names:
        return data
    for split in data:
        own = label_names(data[split])
        every = [*known, *(name for name in own if name not in known)]
        numbers = [n if n < 0 else every.index(own[n]) for n in data[split]["label"][:]]
        changed = data[split].remove_columns("label").add_column("label", numbers)
        data[split] = changed.cast_column("label", ClassLabel(names=every))
    return data


def _log_overlap(data: DatasetDict) -> None:
    """Says how many held-out texts also occur in the training set."""
    held_out = {split: each["text"][:] for split, each in data.items() if split != "train"}
    every = {text for texts in held_out.values() for text in texts}
    also = {text for some in in_batches(data["train"]["text"]) for text in every & set(some)}
    for split, texts in held_out.items():
        if shared := sum(text in also for text in texts):
            logger.info("%d of %d %s texts also occur in train", shared, len(texts), split)


def _log_tokens(
    model: Any, data: DatasetDict, documents: Mapping[str, Documents], is_sample: bool
) -> None:
    """Says which tokens have a vector of a file, and how many texts are too short for patterns."""
    found = getattr(getattr(model, "embedder", None), "found", None)
    least_tokens = getattr(getattr(model, "encoder", None), "least_tokens", None)
    if found is None and least_tokens is None:
        return
    documents = documents or {
        split: Documents.encode(each["text"], model.tokenizer) for split, each in data.items()
    }
    if found is not None:
        _log_coverage(found, documents, model.tokenizer, is_sample)
    if least_tokens is None:
        return
    lengths, least = documents["train"].lengths, np.array(least_tokens())
    for tokens in np.unique(least[least > lengths.min(initial=least.max())]):
        logger.info(
            "%d of %d training texts have fewer than %d tokens, too few for %d of %d patterns",
            *((lengths < tokens).sum(), len(lengths), tokens, (least >= tokens).sum(), len(least)),
        )


def _log_coverage(
    found: Found,
    documents: Mapping[str, Documents],
    tokenizer: PreTrainedTokenizerBase,
    is_sample: bool,
) -> None:
    """Says for which share of the tokens of each split a file of word vectors has a vector."""
    lacking = np.ones(len(tokenizer), dtype=np.bool_)
    lacking[found.ids] = False
    # shape: [vocabulary], of each split
    counts = {
        split: np.bincount(each.known_ids, minlength=len(lacking))
        for split, each in documents.items()
    }
    shares = {split: 1 - n[lacking].sum() / max(n.sum(), 1) for split, n in counts.items()}
    said = ", ".join(f"{100 * share:.1f} % of {split}'s" for split, share in shares.items())
    logger.info("%s: the words that have a vector are %s tokens", found.file, said)
    if in_fixtures(Path(found.file)) and not is_sample:
        logger.warning(
            "model.embedder.vectors: %s has vectors for the few words of the embedded sample; for "
            "data of your own name a real file, such as GloVe's (SOPA_VECTORS=...)",
            found.file,
        )
    if shares["train"] < LOW_COVERAGE:
        lacking[tokenizer.all_special_ids] = False
        without = np.flatnonzero(lacking & (counts["train"] > 0))
        commonest = without[np.argsort(-counts["train"][without], kind="stable")[:10]]
        logger.warning(
            "%.1f %% of the training tokens have no vector in %s, most often: %s. Are the vectors "
            "of this language, and is the text split as theirs was (tokenizer.type: words for "
            "running text)?",
            100 * (1 - shares["train"]),
            found.file,
            " ".join(tokenizer.convert_ids_to_tokens(commonest.tolist())),
        )
