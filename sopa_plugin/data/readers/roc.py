"""The ROC story cloze task."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from sopa_plugin.data.readers.dataset_reader import DatasetReader
from sopa_plugin.data.readers.example import Example
from sopa_plugin.data.readers.files import read_table
from sopa_plugin.data.readers.tables import Table, canonical_splits
from sopa_plugin.errors import UserError
from sopa_plugin.registry import LocalPath

WRONG, RIGHT = "negative", "positive"
# As published, and as Hub data sets write them: compared without case and underscores.
_ENDINGS = (
    ("randomfifthsentencequiz1", "sentencequiz1"),
    ("randomfifthsentencequiz2", "sentencequiz2"),
)
_ANSWER = "answerrightending"
_FILES = "one *val*.csv and one *test*.csv, as published"
logger = logging.getLogger(__name__)


@DatasetReader.register("roc")
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
    known_class_names = (WRONG, RIGHT)

    def __init__(
        self,
        path: LocalPath,
        dev_size: float | int = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(path, dev_size=dev_size, **options)

    def sources(self) -> dict[str, Path | Table]:
        tables = self._tables()
        if tables is not None:
            found = canonical_splits(tables)
            if "dev" in found:
                found["train"] = found.pop("dev")
            return {**found}
        folder = Path(self.path or "")
        if not folder.is_dir():
            raise UserError(f"{folder}: expected a folder with {_FILES}.")
        files = {split: _csv_file(folder, split) for split in ("train", "test")}
        if files["train"] is None:
            raise UserError(f"{folder}: no validation file in it; expected {_FILES}.")
        return {split: file for split, file in files.items() if file is not None}

    def examples(self, source: Path | Table) -> Iterator[Example]:
        rows = (
            source.rows() if isinstance(source, Table) else read_table(source, ",", self.encoding)
        )
        for number, row in rows:
            yield from _endings(row, str(source), number)

    def split_off(
        self, examples: list[Example], size: float | int, option: str
    ) -> tuple[list[Example], list[Example]]:
        """(those that stay, those split off), stories kept whole."""
        stories = list(dict.fromkeys(example.line for example in examples))
        total = len(stories)
        held, stay = _story_counts(size, total, option)
        if stay < 1:
            raise UserError(
                f"{option}: {size} leaves nothing to train on: there are {total} stories "
                f"({examples[0].file}). Set a smaller {option}."
            )
        Random(self.split_seed).shuffle(stories)
        dropped = total - held - stay
        if dropped:
            logger.info("%d of %d stories is left over and dropped", dropped, total)
        held_out, staying = set(stories[:held]), set(stories[held : held + stay])
        return (
            [example for example in examples if example.line in staying],
            [example for example in examples if example.line in held_out],
        )


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
    for file in sorted(folder.glob("*.csv")):
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


def _endings(row: Mapping[str, Any], file: str, number: int) -> Iterator[Example]:
    """The two endings of one story, in their order."""
    where = f"{file}:{number}"
    cells = {name.lower().replace("_", ""): value for name, value in row.items()}
    first, second = (_cell(cells, names, where) for names in _ENDINGS)
    answer = str(_cell(cells, (_ANSWER,), where)).strip()
    if answer not in ("1", "2"):
        raise UserError(f"{where}: expected 1 or 2 in AnswerRightEnding, found {answer!r}.")
    yield Example(str(first), RIGHT if answer == "1" else WRONG, file, number)
    yield Example(str(second), RIGHT if answer == "2" else WRONG, file, number)


def _cell(cells: Mapping[str, Any], names: Iterable[str], where: str) -> Any:
    for name in names:
        if name in cells:
            return "" if cells[name] is None else cells[name]
    raise UserError(
        f"{where}: expected the columns RandomFifthSentenceQuiz1, RandomFifthSentenceQuiz2 and "
        f"AnswerRightEnding, found {', '.join(map(repr, cells))}."
    )
