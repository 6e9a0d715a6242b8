"""What `python -m sopa_plugin.explain` does with a run folder: read it, or save an edited copy."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from sopa_plugin.data.readers.splits import is_labelled
from sopa_plugin.errors import UserError
from sopa_plugin.files import read_json, write_file
from sopa_plugin.interpret.activations import StateActivations
from sopa_plugin.interpret.comparison import Comparison, compare
from sopa_plugin.interpret.documents import DocumentExplanation, DocumentExplanations
from sopa_plugin.interpret.editing import Edited, Edits, hold, mask, refit
from sopa_plugin.interpret.explainer import Explainer
from sopa_plugin.interpret.faithfulness import Faithfulness, measure
from sopa_plugin.interpret.leave_one_out import Replacement
from sopa_plugin.interpret.match import Concordance
from sopa_plugin.interpret.patterns import PatternsReading
from sopa_plugin.interpret.report import ModelReport, read_model
from sopa_plugin.interpret.rules import RulesReading, read_rules
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.training.evaluation import data_like_own, dataset_reader
from sopa_plugin.training.run_folder import CARD, CONFIG, EPOCHS, METRICS

logger = logging.getLogger(__name__)

NO_DOCUMENT = "no document to explain: expected a text or a file with one a line"


class RunReader:
    """A run's model and the data that it was trained on, read when they are needed.

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
        self.subject = ModelSubject.load(folder, device, accept_changed)
        self.explainer = Explainer(self.subject, replacement)

    def check_names(self, names: Iterable[str]) -> None:
        """Raises `UserError` where there is no pattern of one of the `names`."""
        for name in names:
            self.subject.number(name)

    def examples(
        self, data: str | None, split: str, unlabelled: bool = False
    ) -> tuple[list[str], list[int]]:
        """Texts and the numbers of their labels.

        Arguments:
            data: a file in the format of the run's own data.
            split: of the run's own data the train, dev or test set, without such a file.
            unlabelled: whether texts may have no labels; their numbers are then -1.

        Raises:
            UserError: There is no such data, the folder holds a model alone, or the model does not
                know one of a file's labels. (Of the run's own test set such texts are left out,
                unless they are all.)
        """
        labels = list(self.subject.labels)
        if data is None:
            found = self._own
        else:
            with data_like_own(self.folder):
                found = {split: dataset_reader(self.folder, data).read_file(data, labels)}
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
        if unknown and data is not None:
            raise UserError(
                f"the label '{min(unknown)}' is unknown to the model; expected {', '.join(labels)}"
            )
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

    def _train(self, data: str | None) -> tuple[list[str], list[int]]:
        """The run's train set; beside a model that was saved by itself, `data` instead."""
        found = None if (self.folder / CONFIG).exists() else data
        return self.examples(found, "train", unlabelled=True)

    @cached_property
    def _own(self) -> Mapping[str, Any]:
        """The run's own data."""
        found: Mapping[str, Any] = dataset_reader(self.folder).read()
        return found

    def patterns(
        self, texts: Iterable[str], k: int, words: int, gold: Sequence[int] = ()
    ) -> PatternsReading:
        """Every pattern read over `texts`, its use measured on the run's dev set if there is one.

        Else on `texts`, if they have labels, of which `gold` are the numbers. Means are those of
        the train set.
        """
        labelled: tuple[Sequence[str], Sequence[int]] | None = None
        try:
            labelled = self.examples(None, "dev")
        except UserError as error:
            if gold and min(gold) >= 0:
                labelled = list(texts), gold
            else:
                logger.warning("no figures of use, and sorted by influence: %s", error)
        self._take_means(labelled is not None)
        return self.explainer.patterns(texts, k, words, labelled)

    def documents(
        self, texts: Iterable[str], target: str | None, shown: int, against: str | None = None
    ) -> DocumentExplanation | DocumentExplanations:
        """Documents explained; one alone as such."""
        self._take_means()
        found = tuple(self.explainer.documents(texts, target, shown=shown, against=against))
        if not found:
            raise UserError(NO_DOCUMENT)
        return found[0] if len(found) == 1 else DocumentExplanations(found)

    def activations(self, texts: Iterable[str], pattern: str) -> StateActivations:
        """The states of a pattern while it reads the first of `texts`."""
        text = next(iter(texts), None)
        if text is None:
            raise UserError(NO_DOCUMENT)
        return self.explainer.activations(text, pattern)

    def where(self, name: str, data: str | None, split: str) -> Concordance:
        """Every place where a pattern fires in `split` or `data`, by what it scores on train."""
        self.check_names([name])
        texts, gold = self.examples(data, split, unlabelled=True)
        threshold = self.explainer.thresholds(self._train(data)[0])[name]
        return self.explainer.where(texts, gold, {name: threshold})[name]

    def rules(self, data: str | None, split: str) -> RulesReading:
        """What training made of the model's rules, by the texts of `split` or `data`."""
        return read_rules(self.subject, self.examples(data, split, unlabelled=True)[0])

    def report(
        self, data: str | None, split: str, k: int, examples: int, shown: int
    ) -> ModelReport:
        """The whole model: patterns over its train set, documents of `split` or `data`."""
        texts, gold = self.examples(data, split)
        name, (train, _) = self.folder.resolve().name, self._train(data)
        self._take_means(True)
        told: dict[str, Any] = {"read": f"the {split} set" if data is None else Path(data).name}
        if self.subject.rules.rules:
            told["rules"] = read_rules(self.subject, train)
        return read_model(
            self.explainer, name, texts, gold, train, k, examples, shown, **told, **self._losses()
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

    def faithfulness(self, data: str | None, split: str, documents: int) -> Faithfulness:
        """How faithful explanations of so many documents of `split` or `data` are."""
        self._take_means()
        texts, name = self.examples(data, split)[0], self.folder.resolve().name
        return measure(self.explainer, name, texts, get_args(Replacement), documents)

    def edit(
        self,
        names: Sequence[str],
        values: Mapping[str, float],
        output: str | Path | None,
        rewrite: Callable[[ModelSubject, Sequence[str]], tuple[ModelSubject, Edits]] | None = None,
        refitted: bool = False,
    ) -> Edited:
        """Masks patterns, holds others at values, and measures the dev set before and after.

        Arguments:
            names: patterns that are to tell nothing.
            values: what to hold others at, by name, as numbers of the document vector.
            output: a new folder for the edited model, if wanted.
            rewrite: what is done before, `add_rule` or `reword`, to the model and the texts of the
                train set.
            refitted: whether what the head makes of the pattern is then fitted on the train set.

        Raises:
            UserError: There is no such pattern, it cannot be held, `output` holds something, or as
                `rewrite` and `refit` do.
        """
        self.check_names([*names, *values])
        folder = None if output is None else Path(output)
        if folder is not None and folder.exists() and (folder.is_file() or any(folder.iterdir())):
            raise UserError(f"{folder}: exists already; an edited model is saved in a new folder")
        texts, gold = self.examples(None, "dev", unlabelled=True)
        edits: Edits = {}
        self._take_means()
        if rewrite is None:
            edited = self.subject.copied()
        else:
            train, labels = self.examples(None, "train", unlabelled=not refitted)
            edited, edits = rewrite(self.subject, train)
        means = self.explainer.means if rewrite is None else edited.means
        held = mask(edited, names, self.explainer.replacement, means)
        if refitted:
            refit(edited, next(iter(edits)), train, labels)
        edits |= held | hold(edited, values)
        name = self.folder.resolve().name
        sides = Explainer(self.subject, means=self.explainer.means), Explainer(edited, means=means)
        compared = compare(*sides, texts, gold, (name, f"{name}, edited"))
        found = Edited(
            **vars(compared), edits=edits, folder=None if folder is None else str(folder)
        )
        if folder is not None:
            self._save(edited, found, folder)
        return found

    def compare(self, other: RunReader, data: str | None, split: str) -> Comparison:
        """This model and that of another run on `split` of this run's own data, or on `data`."""
        texts, gold = self.examples(data, split, unlabelled=True)
        names = self.folder.resolve().name, other.folder.resolve().name
        if names[0] == names[1]:
            names = str(self.folder), str(other.folder)
        for reader in (self, other):
            reader._take_means()
        split = split if data is None else "data"
        return compare(self.explainer, other.explainer, texts, gold, names, split)

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

    def _save(self, subject: ModelSubject, edited: Edited, output: Path) -> None:
        output.mkdir(parents=True, exist_ok=True)
        subject.model.save(output)
        shutil.copyfile(self.folder / CONFIG, output / CONFIG)
        mode = (output / CONFIG).stat().st_mode
        for file in output.iterdir():
            file.chmod(mode)  # safetensors would keep its files to their owner
        write_file(output / CARD, edited.card())
        write_file(output / METRICS, json.dumps(edited.after, indent=2) + "\n")
