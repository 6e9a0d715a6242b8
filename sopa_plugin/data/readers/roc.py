"""The ROC story cloze task."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np

from sopa_plugin.data.readers.dataset_reader import DatasetReader, Size
from sopa_plugin.data.readers.splits import Example, Examples
from sopa_plugin.data.readers.tables import Table
from sopa_plugin.data.sources import entries, read_records
from sopa_plugin.errors import UserError, listed, shortened
from sopa_plugin.registry import LocalPath

WRONG, RIGHT = "negative", "positive"
# As published, and as Hub data sets write them: compared without case and underscores.
_COLUMNS = (
    ("randomfifthsentencequiz1", "sentencequiz1"),
    ("randomfifthsentencequiz2", "sentencequiz2"),
    ("answerrightending",),
)
_FILES = "one *val*.csv and one *test*.csv, as published"
logger = logging.getLogger(__name__)


@DatasetReader.register("roc")
@dataclass(eq=False)
class RocReader(DatasetReader):
    """Endings of stories, right ones positive and wrong ones negative (section 5 of the paper).

    Registered as `roc`. Every story gives two examples, its right and its wrong ending; the four
    sentences before them are ignored. The published validation file becomes train and dev, its
    stories shuffled by `split_seed` and kept whole; the published test file is test.

    Of n stories a share s as `dev_size` gives floor(s n) to dev and floor((1 - s) n) to train; the
    story that may be left over is dropped and logged. The default 0.1 makes the paper's
    1,683 + 187 of 1,871 stories: 3,366 and 374 sentences.

    Arguments:
        path: a folder with one `*val*.csv` and one `*test*.csv`, or a Hub id.
        dev_size: a share of the stories, or a count of sentences, which must be even.

    The other arguments are those of `DatasetReader`.
    """

    title = "ROC story endings"
    env_variable = "SOPA_ROC"

    path: LocalPath
    dev_size: Size = 0.1

    def sources(self) -> dict[str, Path | Table]:
        folder = Path(self.path or "")
        files = {split: _csv_file(folder, split) for split in ("train", "test")}
        if any(files.values()):
            return {split: file for split, file in files.items() if file is not None}
        tables = self._locate(lambda _: False, _FILES)
        return {"train" if split == "dev" else split: each for split, each in tables.items()}

    def class_names(self, *examples: Examples) -> Sequence[str]:
        return WRONG, RIGHT

    def examples(self, source: Path | Table) -> Examples:
        name = str(source) if isinstance(source, Path) else source.name
        return Examples.parsed(name, lambda: self._endings(source))

    def split_off(
        self, examples: Examples, size: float | int, option: str
    ) -> tuple[Examples, Examples]:
        """(those that stay, those split off), stories kept whole."""
        story = examples.rows // 2
        stories = np.unique(story).tolist()
        total = len(stories)
        held, stay = _story_counts(size, total, option)
        if stay < 1:
            raise UserError(
                f"{option}: {size} leaves nothing to train on: there are {total} stories "
                f"({examples.name}). Set a smaller {option}."
            )
        Random(self.split_seed).shuffle(stories)
        dropped = total - held - stay
        if dropped:
            logger.info("%d of %d stories is left over and dropped", dropped, total)
        held_out, staying = stories[:held], stories[held : held + stay]
        return examples.take(np.isin(story, staying)), examples.take(np.isin(story, held_out))

    def _endings(self, source: Path | Table) -> Iterator[Example]:
        """The two endings of each story, in their order."""
        for where, first, second, answer in self._stories(source):
            if answer not in ("1", "2"):
                raise UserError(
                    f"{where}: expected 1 or 2 in AnswerRightEnding, found {shortened(answer)}."
                )
            yield Example(first, RIGHT if answer == "1" else WRONG, where)
            yield Example(second, RIGHT if answer == "2" else WRONG, where)

    def _stories(self, source: Path | Table) -> Iterator[tuple[str, str, str, str]]:
        """The place of each story, its two endings and the number of the right one."""
        if isinstance(source, Path):
            for line, row in read_records(source, self.encoding):
                first, second, answer = (row[name] for name in _columns(row, f"{source}:{line}"))
                yield f"{source}:{line}", first, second, answer.strip()
            return
        names = _columns(source.columns, source.name)
        columns = [column.to_pylist() for column in source.read(names[:2], names[2:])]
        for story, (first, second, answer) in enumerate(zip(*columns, strict=True)):
            yield source.place(story), first or "", second or "", answer or ""


def _story_counts(size: float | int, total: int, option: str) -> tuple[int, int]:
    """How many stories are split off and how many stay."""
    if isinstance(size, int):
        if size % 2:
            raise UserError(
                f"{option}: expected an even count, since stories keep their two endings together, "
                f"found {size}."
            )
        return size // 2, total - size // 2
    share = Fraction(str(size))  # 0.1 as a tenth, not as the float beside it
    held = max(1, int(share * total))
    return held, min(int((1 - share) * total), total - held)


def _csv_file(folder: Path, split: str) -> Path | None:
    """The validation file (for `train`) or the test file of a folder; None if there is none."""
    found = []
    for file in entries(folder):
        if file.suffix.lower() != ".csv":
            continue
        words = re.split(r"[^a-z0-9]+", file.name.lower())
        kind = "train" if {"val", "validation"} & set(words) else "test" if "test" in words else ""
        if kind == split:
            found.append(file)
    if len(found) > 1:
        raise UserError(
            f"{folder}: {len(found)} files could be the {split} set: "
            f"{', '.join(file.name for file in found)}; keep one of them."
        )
    return found[0] if found else None


def _columns(columns: Iterable[str], where: str) -> list[str]:
    """The names of the columns of the two endings and the answer."""
    named = {name.lower().replace("_", ""): name for name in columns}
    found = [next((named[name] for name in names if name in named), None) for names in _COLUMNS]
    if None in found:
        raise UserError(
            f"{where}: expected the columns RandomFifthSentenceQuiz1, RandomFifthSentenceQuiz2 and "
            f"AnswerRightEnding, found {listed(columns)}."
        )
    return [name for name in found if name is not None]
