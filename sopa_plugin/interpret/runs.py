"""What `python -m sopa_plugin.explain` does with a run folder: read it, or save an edited copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.errors import UserError
from sopa_plugin.files import write_file
from sopa_plugin.interpret.activations import StateActivations
from sopa_plugin.interpret.documents import DocumentExplanation, DocumentExplanations
from sopa_plugin.interpret.editing import Edits, hold, silence
from sopa_plugin.interpret.explainer import Explainer
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.leave_one_out import Replacement
from sopa_plugin.interpret.patterns import PatternsReading
from sopa_plugin.interpret.render.markup import signed
from sopa_plugin.interpret.report import ModelReport, read_model
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.registry import build
from sopa_plugin.training.evaluation import evaluate_split
from sopa_plugin.training.metrics import classification_metrics
from sopa_plugin.training.run_folder import CARD, CONFIG, METRICS, read_config

NO_DOCUMENT = "no document to explain: expected a text or a file with one a line"


class RunReader:
    """A run's model and the data that it was trained on, read when they are needed.

    Arguments:
        folder: of a finished run.
        replacement: what a contribution compares with.
        device: where the model is to run.

    Raises:
        UserError: There is no model, or it has no patterns.
    """

    def __init__(
        self, folder: str | Path, replacement: Replacement = "no_match", device: str = "cpu"
    ) -> None:
        self.folder = Path(folder)
        self.subject = ModelSubject.load(folder)
        self.subject.model.to_device(device)
        self.explainer = Explainer(self.subject, replacement)

    def check_names(self, names: Iterable[str]) -> None:
        """Raises `UserError` where there is no pattern of one of the `names`."""
        for name in names:
            self.subject.number(name)

    def split(self, name: str) -> Dataset:
        """The run's own train, dev or test set.

        Raises:
            UserError: It has none, or the folder holds a model alone.
        """
        data = build(DatasetReader, read_config(self.folder)["dataset"]).read()
        if name not in data:
            raise UserError(f"the run's data have no {name} set; expected one of {', '.join(data)}")
        return data[name]

    def texts(self, data: str | None, split: str) -> Sequence[str]:
        """The texts of a file in the format of the run's own data, or of the run's own `split`."""
        return self._texts_and_labels(data, split)[0]

    def patterns(self, texts: Iterable[str], k: int, words: int) -> PatternsReading:
        """Every pattern read over `texts`; replacement `mean` takes those of the train set."""
        self._take_means()
        return self.explainer.patterns(texts, k, words)

    def documents(
        self, texts: Iterable[str], target: str | None, shown: int
    ) -> DocumentExplanation | DocumentExplanations:
        """Documents explained; one alone as such."""
        self._take_means()
        found = tuple(
            self.explainer.document(text, target, shown=shown, number=number)
            for number, text in enumerate(texts)
        )
        if not found:
            raise UserError(NO_DOCUMENT)
        return found[0] if len(found) == 1 else DocumentExplanations(found)

    def activations(self, texts: Iterable[str], pattern: str) -> StateActivations:
        """The states of a pattern while it reads the first of `texts`."""
        self.check_names([pattern])
        text = next(iter(texts), None)
        if text is None:
            raise UserError(NO_DOCUMENT)
        return self.explainer.activations(text, pattern)

    def report(
        self, data: str | None, split: str, k: int, examples: int, shown: int
    ) -> ModelReport:
        """The whole model: patterns over its train set, documents of `split` or `data`."""
        texts, gold = self._texts_and_labels(data, split)
        metrics = classification_metrics(
            self.subject.model.log_probabilities(texts), np.array(gold)
        )
        name = self.folder.resolve().name
        train = self.texts(None, "train")
        return read_model(self.explainer, name, texts, gold, train, metrics, k, examples, shown)

    def edit(
        self, names: Sequence[str], values: Mapping[str, float], output: str | Path | None
    ) -> Edited:
        """Silences patterns, holds others at values, and measures the dev set before and after.

        Arguments:
            names: patterns that are to tell nothing.
            values: what to hold others at, by name, as numbers of the document vector.
            output: a new folder for the edited model, if wanted.
        """
        self.check_names([*names, *values])
        output = None if output is None else new_folder(output)
        if names:
            self._take_means()
        dev = self.split("dev")
        before = self._measure(dev)
        edits = silence(self.subject, names, self.explainer.replacement, self.explainer.means)
        edits |= hold(self.subject, values)
        edited = Edited(edits, before, self._measure(dev), output)
        if output is not None:
            self._save(edited, output)
        return edited

    def _take_means(self) -> None:
        """Those of the train set, where they are wanted."""
        if self.explainer.replacement == "mean":
            self.explainer.use_means_of(self.texts(None, "train"))

    def _measure(self, dev: Dataset) -> dict[str, Any]:
        texts, labels = list(dev["text"]), list(dev["label"])
        return evaluate_split("dev", self.subject.model.log_probabilities(texts), labels)

    def _save(self, edited: Edited, output: Path) -> None:
        output.mkdir(parents=True, exist_ok=True)
        self.subject.model.save(output)
        shutil.copyfile(self.folder / CONFIG, output / CONFIG)
        mode = (output / CONFIG).stat().st_mode
        for file in output.iterdir():
            file.chmod(mode)  # safetensors would keep its files to their owner
        write_file(output / CARD, edited.card(self.folder.resolve().name))
        write_file(output / METRICS, json.dumps(edited.after, indent=2) + "\n")

    def _texts_and_labels(self, data: str | None, split: str) -> tuple[list[str], list[int]]:
        labels = list(self.subject.labels)
        if data is None:
            found = self.split(split)
        else:
            reader = build(DatasetReader, read_config(self.folder)["dataset"])
            found = reader.read_file(data, labels)
        names = found.features["label"].names
        unknown = {names[number] for number in found["label"]} - set(labels)
        if unknown:
            raise UserError(
                f"the label '{min(unknown)}' is unknown to the model; expected {', '.join(labels)}"
            )
        return list(found["text"]), [labels.index(names[number]) for number in found["label"]]


@dataclass(frozen=True, repr=False)
class Edited(Explanation):
    """What holding patterns changed on the dev set.

    Arguments:
        edits: by pattern, what was done.
        before, after: figures of the dev set.
        folder: where the edited model was saved.
    """

    edits: Edits
    before: dict[str, Any]
    after: dict[str, Any]
    folder: Path | None

    def to_dict(self) -> dict[str, Any]:
        folder = None if self.folder is None else str(self.folder)
        return {"edits": self.edits, "before": self.before, "after": self.after, "folder": folder}

    def to_text(self, color: bool = False) -> str:
        lines = [f"{len(self.edits)} patterns edited: {', '.join(self._told())}"]
        for key in ("dev_accuracy", "dev_macro_f1", "dev_loss"):
            change = self.after[key] - self.before[key]
            name = key.replace("_", " ")
            figures = f"{self.before[key]:.4f} -> {self.after[key]:.4f}"
            lines.append(f"{name:>14}  {figures}  ({change:+.4f})")
        if self.folder is not None:
            lines.append(f"saved in {self.folder}")
        return "\n".join(lines)

    def html_body(self) -> str:
        raise UserError("an edit has no page: choose text or json")

    def _told(self) -> list[str]:
        return [
            f"{name} matches nothing" if edit == "no_match" else f"{name} held at {edit:g}"
            for name, edit in self.edits.items()
        ]

    def card(self, original: str) -> str:
        """The edited model's card."""
        edits = "\n".join(f"- {each}" for each in self._told())
        accuracy = (
            f"{self.before['dev_accuracy']:.4f} before, {self.after['dev_accuracy']:.4f} after"
        )
        change = signed(100 * (self.after["dev_accuracy"] - self.before["dev_accuracy"]))
        return (
            f"# {original}, edited\n\nA copy of `{original}` in which what these patterns match "
            f"changes no prediction:\n\n{edits}\n\n"
            f"Dev accuracy: {accuracy} ({change} points).\n"
        )


def new_folder(path: str | Path) -> Path:
    """A folder that is free to be written.

    Raises:
        UserError: There is something in it.
    """
    path = Path(path)
    if path.exists() and not (path.is_dir() and next(path.iterdir(), None) is None):
        raise UserError(f"{path}: exists already; an edited model is saved in a new folder")
    return path
