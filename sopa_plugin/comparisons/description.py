"""What is compared: models on data sets, on all or some of the training examples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from sopa_plugin.comparisons.runner import Plan
from sopa_plugin.comparisons.space import Parameter, Search, space_problems, trial_problems
from sopa_plugin.registry import ConfigOf, NonNegativeInt, PositiveInt, build, check
from sopa_plugin.training import Experiment
from sopa_plugin.training.experiment import Seed
from sopa_plugin.training.metrics import ValidationMetric

ALL = "all"  # how files and tables call the whole training set
PartOfConfig = Annotated[dict[str, Any], ConfigOf(Experiment)]
_LIMITS = ("num_epochs", "patience")
_SIZE = re.compile(r"[1-9]\d*")


@dataclass
class Tuning:
    """How each model is tuned, on each data set and training size alike.

    Attributes:
        num_trials: how many configs a random search tries; 0 takes the model's config as it is.
        metric: by which dev figure the best is picked: `-loss`, `+accuracy` or `+macro_f1`.
        num_epochs, patience: of every run, of trainers that have these; null leaves each its own.
            Either a number, or numbers by training size (`{'100': 250, all: 30}`), or by name of a
            data set that is taken whole (`{roc: 60, all: 30}`): an epoch of a small training set is
            a few steps. What is not named takes `all`'s.
        seed: of the search.
    """

    num_trials: NonNegativeInt = 30
    metric: ValidationMetric = "-loss"
    num_epochs: PositiveInt | dict[str, PositiveInt] | None = None
    patience: PositiveInt | dict[str, PositiveInt] | None = None
    seed: NonNegativeInt = 1

    def limit(self, key: str, data: str, size: int | None) -> int | None:
        """`num_epochs` or `patience` for a training size of a data set."""
        value: int | dict[str, int] | None = getattr(self, key)
        name = data if size is None else str(size)
        return value.get(name, value[ALL]) if isinstance(value, dict) else value


@dataclass
class DataEntry:
    """A data set that models are compared on.

    Attributes:
        name: how files call it.
        title: how tables call it.
        config: what of an experiment's config belongs to it: `dataset`, often `tokenizer`.
    """

    name: str
    title: str
    config: PartOfConfig


@dataclass
class ModelEntry(DataEntry):
    """A model that is compared.

    Attributes:
        name, title: as of a `DataEntry`.
        config: what of an experiment's config belongs to it: `model`, `trainer`; what it has in
            common with the data set's is the model's.
        parameters: what its search varies.
        line: of a picture of accuracy against states of patterns, in which the model is a point:
            the title of the line that it is on. A picture is drawn where there is a line.
    """

    parameters: dict[str, Parameter] = field(default_factory=dict)
    line: str | None = None


@dataclass
class Published:
    """Figures from elsewhere to stand beside one's own.

    Attributes:
        title: whose they are, and what they were made with.
        accuracies: in percent, by model, data set and training size (`all` or a number).
        parameters: as they were printed, by model and data set.
    """

    title: str
    accuracies: dict[str, dict[str, dict[str, float]]]
    parameters: dict[str, dict[str, str]] = field(default_factory=dict)

    def accuracy(self, model: str, data: str, size: int | None) -> float | None:
        """The percentage for a cell, if there is one."""
        return self.accuracies.get(model, {}).get(data, {}).get(size_name(size))


@dataclass(frozen=True)
class Cell:
    """One model on one data set with one number of training examples (null: all)."""

    data: str
    model: str
    size: int | None

    @property
    def name(self) -> str:
        """For file names and messages."""
        return f"{self.data}.{self.model}.{size_name(self.size)}"


class Description:
    """A comparison, as a Jsonnet file describes it.

    Arguments:
        title: what tables and pictures are headed by.
        data: the data sets.
        models: the models, in the order of the table.
        sizes: numbers of training examples; null is all there are. A smaller set is part of every
            larger one, and with the same seed the same for every model.
        seeds: each model's best config is trained once with each; a seed also draws the subset of
            the training examples. Trials of the search take the first one.
        tuning: how models are tuned.
        reference: the model that others are tested against.
        published: figures to stand beside.
    """

    def __init__(
        self,
        title: str,
        data: Sequence[DataEntry],
        models: Sequence[ModelEntry],
        sizes: Sequence[PositiveInt | None] = (None,),
        seeds: Sequence[Seed] = (1, 2, 3),
        tuning: Tuning | None = None,
        reference: str | None = None,
        published: Published | None = None,
    ) -> None:
        self.title = title
        self.data = {entry.name: entry for entry in data}
        self.models = {entry.name: entry for entry in models}
        self.sizes = list(sizes)
        self.seeds = list(seeds)
        self.tuning = tuning or Tuning()
        self.reference = reference
        self.published = published

    @property
    def lines(self) -> dict[str, list[str]]:
        """The models that are points of each line of a picture over states."""
        found: dict[str, list[str]] = {}
        for name, entry in self.models.items():
            if entry.line is not None:
                found.setdefault(entry.line, []).append(name)
        return found

    @property
    def has_curve(self) -> bool:
        """Whether there is a picture to draw: over sizes, or over states of patterns."""
        return len(self.sizes) > 1 or bool(self.lines)

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Whether every model's config fits every data set, and takes every value of its space."""
        names = {key: [each["name"] for each in params[key]] for key in ("data", "models")}
        for key, found in {**names, "sizes": params["sizes"], "seeds": params["seeds"]}.items():
            if not found:
                yield key, "expected at least one, found none"
            for each in dict.fromkeys(found):
                if found.count(each) > 1:
                    told = f"'{each}'" if isinstance(each, str) else size_name(each)
                    yield key, f"{told} is there twice; expected different ones"
                if isinstance(each, str) and not re.fullmatch(r"[\w-]+", each):
                    yield key, f"expected a name of letters, digits, _ and -; found '{each}'"
        if params["reference"] not in (None, *names["models"]):
            yield "reference", f"no model is called '{params['reference']}'"
        tuning = {**vars(Tuning()), **(params["tuning"] or {})}
        yield from _limit_problems(tuning, names["data"])
        yield from dict.fromkeys(_config_problems(params["data"], params["models"], tuning))

    def cells(self) -> list[Cell]:
        """Everything that is compared."""
        return [
            Cell(data, model, size)
            for data in self.data
            for size in self.sizes
            for model in self.models
        ]

    def config(self, cell: Cell, seed: int) -> dict[str, Any]:
        """The config of a cell, before its search."""
        config = merge(self.data[cell.data].config, self.models[cell.model].config)
        if cell.size is not None:
            config["dataset"]["max_train_examples"] = cell.size
            config["dataset"]["subsample_seed"] = seed
        for key in _LIMITS:
            value = self.tuning.limit(key, cell.data, cell.size)
            trainer = {**config.get("trainer", {}), key: value}
            if value is not None and not check(Experiment, {**config, "trainer": trainer}):
                config["trainer"] = trainer
        return {**config, "seed": seed}

    def plans(self) -> list[Plan]:
        """What is to be run for each of the cells, in their order."""
        plans = []
        for cell in self.cells():
            base = self.config(cell, self.seeds[0])
            parameters, tuning = self.models[cell.model].parameters, self.tuning
            search = Search(base, {}, 1, tuning.metric)
            if parameters and tuning.num_trials:
                trials = tuning.num_trials
                search = Search(base, parameters, trials, tuning.metric, seed=tuning.seed)
            plans.append(Plan(cell.name, search, self.seeds, draws_subset=cell.size is not None))
        return plans


def _limit_problems(
    tuning: Mapping[str, Any], data_names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Limits by what is neither a size nor a data set, or with none for all that is not named."""
    known = ", ".join(data_names) or "none"
    for key in _LIMITS:
        limits = tuning.get(key)
        if not isinstance(limits, Mapping):
            continue
        where, sizes = f"tuning.{key}", f"numbers of training examples, data sets ({known})"
        if ALL not in limits:
            yield where, f"expected '{ALL}' among the sizes, found {', '.join(limits) or 'none'}"
        for name in limits:
            if not _SIZE.fullmatch(name) and name not in (ALL, *data_names):
                yield where, f"expected {sizes} and '{ALL}'; found '{name}'"


def _config_problems(
    data: Sequence[Mapping[str, Any]],
    models: Sequence[Mapping[str, Any]],
    tuning: Mapping[str, Any],
) -> Iterator[tuple[str, str]]:
    """Problems of every model with every data set, often the same ones."""
    for number, model in enumerate(models):
        path = f"models.{number}"
        sound = True
        for place, each in enumerate(data):
            for problem in check(Experiment, merge(each["config"], model["config"])):
                sound = False
                of_data = problem.path.startswith("dataset")
                yield f"data.{place}.config" if of_data else f"{path}.config", str(problem)
        if sound and data:  # the data set does not change what a model takes
            config = merge(data[0]["config"], model["config"])
            parameters = build(dict[str, Parameter], model.get("parameters", {}))
            problems = list(space_problems(config, parameters))
            for name, message in problems:
                yield f"{path}.parameters.{name}", message
            if not problems and tuning["seed"] >= 0:
                trials = trial_problems(config, parameters, tuning["seed"], tuning["num_trials"])
                for message in trials:
                    yield f"{path}.parameters", message


def merge(data: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """The config of an experiment, from what belongs to its data and to its model."""
    config = {**data, **model}
    for key in ("dataset", "trainer"):
        if isinstance(config.get(key), str):  # short for its type
            config[key] = {"type": config[key]}
    if isinstance(config.get("dataset"), Mapping):
        config["dataset"] = dict(config["dataset"])
    return config


def size_name(size: int | None) -> str:
    """A number of training examples in words."""
    return ALL if size is None else str(size)
