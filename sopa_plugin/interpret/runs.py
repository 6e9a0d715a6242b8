"""What `python -m sopa_plugin.explain` does with a run folder: read it, or save an edited copy."""

from __future__ import annotations

import json
import logging
import shutil
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import chain, islice
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.data.readers.splits import is_labelled
from sopa_plugin.errors import UserError
from sopa_plugin.files import read_json, write_file
from sopa_plugin.interpret.comparison import Comparison, compare
from sopa_plugin.interpret.documents import DocumentExplanation, DocumentExplanations
from sopa_plugin.interpret.editing import Edits, add_rule, hold, mask, refit, reword
from sopa_plugin.interpret.explainer import Explainer
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.faithfulness import Faithfulness, measure
from sopa_plugin.interpret.leave_one_out import Replacement
from sopa_plugin.interpret.match import Concordance
from sopa_plugin.interpret.patterns import PatternsReading
from sopa_plugin.interpret.report import ModelReport
from sopa_plugin.interpret.rules import RulesReading, read_rules
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.training.evaluation import data_like_own, dataset_reader, read_labelled
from sopa_plugin.training.metrics import calibration, calibration_error, classification_metrics
from sopa_plugin.training.run_folder import CARD, CONFIG, EPOCHS, METRICS

logger = logging.getLogger(__name__)


class RunReader:
    """A run's model and the data that it was trained on, read when they are needed.

    What `explain` can do is a method, whose `args` are the options of that action.
    Arguments as for `Explainer` and `ModelSubject.load`, which say what is raised.
    """

    def __init__(
        self,
        folder: str | Path,
        replacement: Replacement = "next",
        device: str = "cpu",
        accept_changed: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.name = self.folder.resolve().name
        self.subject = ModelSubject.load(folder, device, accept_changed)
        self.explainer = Explainer(self.subject, replacement)

    def examples(
        self, data: str | None, split: str, unlabelled: bool = False
    ) -> tuple[list[str], list[int]]:
        """Texts and the numbers of their labels.

        Arguments:
            data: a file in the format of the run's own data, or with columns `text` and `label`.
            split: of the run's own data the train, dev or test set, without such a file.
            unlabelled: whether texts may have no labels; their numbers are then -1.

        Raises:
            UserError: There is no such data, the folder holds a model alone, or the model does not
                know a label. (Where `labels_only_in_test` is `count` such texts are left out,
                unless they are all.)
        """
        labels = list(self.subject.labels)
        if data is None:
            found = self._own
        else:
            with data_like_own(self.folder):
                found = {split: read_labelled(self.folder, data, labels)}
        if split not in found:
            raise UserError(
                f"the run's data have no {split} set; expected one of {', '.join(found)}"
            )
        names = found[split].features["label"].names
        numbers = found[split]["label"][:]
        if not (unlabelled or is_labelled(found[split])):
            what = f"the {split} set" if data is None else data
            raise UserError(f"{what}: its texts have no labels, which this needs")
        unknown = {names[number] for number in numbers if number >= 0} - set(labels)
        known = {n: labels.index(name) for n, name in enumerate(names) if name in labels} | {-1: -1}
        pairs = zip(found[split]["text"][:], numbers, strict=True)
        kept = [(text, known[number]) for text, number in pairs if number in known]
        if not kept:
            raise UserError(
                f"the {split} set has no label that the model knows; expected {', '.join(labels)}, "
                f"found {', '.join(sorted(unknown))}"
            )
        if unknown:  # dataset.labels_only_in_test is `count`
            left_out = len(numbers) - len(kept)
            logger.warning("%d texts are left out, of labels that the model has not", left_out)
        return [text for text, _ in kept], [label for _, label in kept]

    def _train(self, data: str | None) -> list[str]:
        """The run's train set; beside a model that was saved by itself, `data` instead."""
        found = None if (self.folder / CONFIG).exists() else data
        return self.examples(found, "train", unlabelled=True)[0]

    @cached_property
    def _own(self) -> Mapping[str, Any]:
        """The run's own data."""
        found: Mapping[str, Any] = dataset_reader(self.folder).read()
        return found

    def patterns(self, args: Namespace) -> PatternsReading:
        """Every pattern read over texts, its use measured on the run's dev set if there is one.

        Else on these texts, if they have labels. Means are those of the train set.
        """
        for name in args.names:
            self.subject.number(name)
        texts, gold = args.lines, list[int]()
        if texts is None:
            texts, gold = self.examples(args.data, args.split, unlabelled=True)
        labelled: tuple[Sequence[str], Sequence[int]] | None = None
        try:
            labelled = self.examples(None, "dev")
        except UserError as error:
            if gold and min(gold) >= 0:
                labelled = texts, gold
            else:
                logger.warning("no figures of use, and sorted by influence: %s", error)
        self._take_means(labelled is not None)
        reading = self.explainer.patterns(texts, args.k, args.words, labelled)
        reading = reading.sorted(args.sort) if args.sort else reading
        chosen = reading.only(args.names) if args.names else reading.first(args.top)
        return chosen.automata() if args.automaton else chosen

    def document(self, args: Namespace) -> Explanation:
        """Documents explained, one alone as such; or a pattern's states over the first."""
        found: list[Any]
        if args.activations:
            first = islice(args.text, 1)
            found = [self.explainer.activations(text, args.activations) for text in first]
        else:
            self._take_means()
            given = {"shown": args.shown or 10, "against": args.against}
            found = list(self.explainer.documents(args.text, args.target, **given))
        if not found:
            raise UserError("no document to explain: expected a text or a file with one a line")
        return found[0] if len(found) == 1 else DocumentExplanations(tuple(found))

    def where(self, args: Namespace) -> Concordance:
        """Every place where a pattern fires, by what it scores on the train set."""
        self.subject.number(args.name)
        texts, gold = self.examples(args.data, args.split, unlabelled=True)
        thresholds = self.explainer.thresholds(self._train(args.data))
        wanted = {args.name: thresholds[args.name]}
        found = self.explainer.where(texts, gold, wanted)[args.name]
        return found.wrong() if args.wrong else found

    def rules(self, args: Namespace) -> RulesReading:
        """What training made of the model's rules."""
        texts, _ = self.examples(args.data, args.split, unlabelled=True)
        return read_rules(self.subject, texts)

    def report(self, args: Namespace) -> ModelReport:
        """The whole model: patterns over its train set, other documents right and wrong."""
        texts, gold = self.examples(args.data, args.split)
        train = self._train(args.data)
        self._take_means(True)
        explainer, labels = self.explainer, self.subject.labels
        patterns = explainer.patterns(train, args.k, labelled=(texts, gold))
        log_probabilities = self.subject.model.log_probabilities(texts)
        true, predicted = np.array(gold), log_probabilities.argmax(axis=1)
        confusion = np.zeros((len(labels), len(labels)), dtype=int)
        np.add.at(confusion, (true, predicted), 1)
        sure = log_probabilities.max(axis=1)

        def explain(numbers: NDArray[np.int64]) -> Iterator[DocumentExplanation]:
            chosen = numbers.tolist()
            own = (labels[true[n]] for n in chosen)
            return explainer.documents((texts[n] for n in chosen), None, own, args.shown, chosen)

        surest = np.argsort(-sure, kind="stable")
        right = [
            surest[(true == label)[surest] & (predicted == label)[surest]]
            for label in range(len(labels))
        ]
        per_label = max(1, args.examples // len(labels))
        errors = explain(surest[(true != predicted)[surest]])
        wrong = tuple(islice(errors, args.examples))  # whole; of others only what is shown is kept
        metrics = classification_metrics(log_probabilities, true)
        return ModelReport(
            self.name,
            labels,
            metrics | {"calibration_error": calibration_error(log_probabilities, true)},
            tuple(tuple(row) for row in confusion.tolist()),
            patterns,
            explainer.where(texts, gold, {each.name: each.threshold for each in patterns}),
            measure(explainer, self.name, texts),
            tuple(replace(each, contributions=each.shown) for each in chain(wrong, errors)),
            wrong,
            tuple(explain(surest[::-1][: args.examples])),
            tuple(each for numbers in right for each in explain(numbers[:per_label])),
            tuple(map(tuple, calibration(log_probabilities, true).tolist())),
            read=f"the {args.split} set" if args.data is None else Path(args.data).name,
            rules=read_rules(self.subject, train) if self.subject.rules.rules else None,
            **self._losses(),
        )

    def _losses(self) -> dict[str, Any]:
        """What the folder tells of each epoch's loss; an edited copy has no epochs."""
        file = self.folder / EPOCHS
        try:
            epochs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            losses = [(float(e["training_loss"]), float(e["validation_loss"])) for e in epochs]
            best = int(read_json(self.folder / METRICS, "the metrics of a run")["best_epoch"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, RecursionError, UserError) as error:
            logger.warning("%s: no training curve is drawn (%s)", file, error)
            return {}
        return {"losses": tuple(losses), "best_epoch": best}

    def faithfulness(self, args: Namespace) -> Faithfulness:
        """How faithful explanations of some documents are, this run's and others'."""
        found = []
        for reader in chain([self], args.others):
            reader._take_means()
            texts = reader.examples(args.data, args.split)[0]
            given = texts, get_args(Replacement), args.documents
            found.append(measure(reader.explainer, reader.name, *given))
        return reduce(Faithfulness.joined, found)

    def compare(self, args: Namespace) -> Comparison:
        """This model and that of another run on this run's own data, or on others."""
        (other,) = args.others
        texts, gold = self.examples(args.data, args.split, unlabelled=True)
        names = self.name, other.name
        if names[0] == names[1]:
            names = str(self.folder), str(other.folder)
        for reader in (self, other):
            reader._take_means()
        split = args.split if args.data is None else "data"
        return compare(self.explainer, other.explainer, texts, gold, names, split)

    def edit(self, args: Namespace) -> Comparison:
        """Patterns masked, held, added or given other words, and the dev set before and after.

        Raises:
            UserError: There is no such pattern, it cannot be held, the folder to save in holds
                something, or as `add_rule`, `reword` and `refit` do.
        """
        values, output = dict(args.values), args.serialization_dir
        for name in (*args.names, *values):
            self.subject.number(name)
        folder = None if output is None else Path(output)
        if folder is not None and folder.exists() and (folder.is_file() or any(folder.iterdir())):
            raise UserError(f"{folder}: exists already; an edited model is saved in a new folder")
        texts, gold = self.examples(None, "dev", unlabelled=True)
        edits: Edits = {}
        self._take_means()
        if args.rule is None and args.name is None:
            edited, means = self.subject.copied(), self.explainer.means
        else:
            train, labels = self.examples(None, "train", unlabelled=not args.refit)
            if args.rule is not None:
                edited, edits = add_rule(self.subject, train, args.rule, args.label)
            else:
                words = args.forbid, args.allow, args.arc
                edited, edits = reword(self.subject, train, args.name, *words)
            means = edited.means
        held = mask(edited, args.names, self.explainer.replacement, means)
        if args.refit:
            refit(edited, next(iter(edits)), train, labels)
        edits |= held | hold(edited, values)
        sides = Explainer(self.subject, means=self.explainer.means), Explainer(edited, means=means)
        compared = compare(*sides, texts, gold, (self.name, f"{self.name}, edited"))
        saved = None if folder is None else str(folder)
        found = replace(compared, edits=edits, folder=saved)
        if folder is not None:
            self._save(edited, found, folder)
        return found

    def _take_means(self, wanted: bool = False) -> None:
        """Where the run was saved without means that are wanted, takes those of its data."""
        wanted = wanted or self.explainer.replacement in ("mean", "next")
        if not wanted or self.explainer.means is not None:
            return
        for split in ("train", "dev"):
            try:
                texts, _ = self.examples(None, split, unlabelled=True)
                break
            except UserError as error:
                reason = error
        else:
            if self.explainer.replacement != "next":
                raise reason
            logger.warning("no match stands where a pattern has no next best one: %s", reason)
            return
        told = "%s: saved without the means of its train set: taken over its %s set now"
        logger.warning(told, self.folder, split)
        self.explainer.use_means_of(texts)

    def _save(self, subject: ModelSubject, edited: Comparison, output: Path) -> None:
        output.mkdir(parents=True, exist_ok=True)
        subject.model.save(output)
        shutil.copyfile(self.folder / CONFIG, output / CONFIG)
        mode = (output / CONFIG).stat().st_mode
        for file in output.iterdir():
            file.chmod(mode)  # safetensors would keep its files to their owner
        write_file(output / CARD, edited.card())
        write_file(output / METRICS, json.dumps(edited.after, indent=2) + "\n")
