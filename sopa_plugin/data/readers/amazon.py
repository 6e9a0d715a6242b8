"""Amazon product reviews."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from sopa_plugin.data.readers.dataset_reader import DatasetReader
from sopa_plugin.data.readers.splits import Example, Examples
from sopa_plugin.data.readers.tables import Table
from sopa_plugin.data.sources import entries, read_json_lines, read_lines, split_of
from sopa_plugin.errors import UserError, listed, shortened
from sopa_plugin.registry import LocalPath

NEGATIVE, POSITIVE = "negative", "positive"
TOKENISED = ".txt.tok"
STAR_FILES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
# Where a review's text and its stars are: McAuley's sets as of 2014, as of 2013 and as of 2023,
# and Hub data sets.
STAR_COLUMNS = (
    ("reviewText", "overall"),
    ("review/text", "review/score"),
    ("text", "rating"),
    ("text", "stars"),
    ("review_body", "star_rating"),
    ("review_body", "stars"),
)
LABEL_COLUMNS = (("text", "label"), ("content", "label"), ("sentence", "label"))
_CATEGORIES = {"1": NEGATIVE, "2": POSITIVE}
_NAMES = {"0": NEGATIVE, "1": POSITIVE, "neg": NEGATIVE, "pos": POSITIVE} | {
    name: name for name in (NEGATIVE, POSITIVE)
}
_EXPECTED = (
    "reviews with categories (elec-25k-train.txt.tok and .cat, elec-test.txt.tok and .cat), "
    "one review a line by label (train.positive and train.negative), or star-rated JSON lines "
    "(reviews.json)"
)


@DatasetReader.register("amazon")
@dataclass(eq=False)
class AmazonReader(DatasetReader):
    """Reviews, negative or positive, without their summaries (section 5 of the paper).

    Registered as `amazon`. The form of the data is found out:
    - `*train*.txt.tok` and `*test*.txt.tok`, a review a line, with labels 1 (negative) and 2
      (positive) line by line in files ending in `.cat`: the set of the paper (McAuley and
      Leskovec 2013, as given out by Johnson and Zhang 2015);
    - files ending in `.positive` and `.negative`, a review a line;
    - JSON lines with stars, also as `.gz`: 1 and 2 are negative, 4 and 5 positive, 3 is dropped;
    - a Hub data set with a text and a label, or stars.
    Where there is no dev set, a fifth of the training reviews is split off, which makes the
    paper's 20K/5K of 25K; where there is no test set, half of all reviews, the paper's 25K of 50K.

    Arguments:
        path: a folder with exactly one form; the beginning of its file names, where there are more
            (`amazon/elec-sample`); its train file; or a Hub id.

    The other arguments are those of `DatasetReader`, but that empty reviews are left out by
    default: the published JSON lines have some.
    """

    title = "Amazon reviews"
    env_variable = "SOPA_AMAZON"
    default_dev_size = 0.2
    default_test_size = 0.5

    path: LocalPath
    empty_text: Literal["error", "drop"] = "drop"

    def sources(self) -> dict[str, Path | Table]:
        splits = self._locate(_is_reviews, _EXPECTED, _may_lack_split)
        train = splits["train"]
        if "test" not in splits and isinstance(train, Path) and train.name.endswith(TOKENISED):
            test = _test_beside(train)
            return splits if test is None else {**splits, "test": test}
        return splits

    def class_names(self, *examples: Examples) -> Sequence[str]:
        return NEGATIVE, POSITIVE

    def examples(self, source: Path | Table) -> Examples:
        if isinstance(source, Path):
            parse = self._from_json_lines
            if source.name.endswith(TOKENISED):
                parse = self._with_categories
            elif source.suffix in (".positive", ".negative"):
                parse = self._by_label
            return Examples.parsed(str(source), lambda: parse(source))
        text, label = _columns(source.columns, source.name)
        examples = source.examples(text, label)
        name_of = _from_stars if (text, label) in STAR_COLUMNS else _from_name
        return examples.renamed(lambda value: name_of(value, examples.first(value)))

    def _with_categories(self, source: Path) -> Iterator[Example]:
        categories = source.with_name(source.name.removesuffix(TOKENISED) + ".cat")
        files = (read_lines(each, self.encoding) for each in (source, categories))
        for line, (review, category) in enumerate(zip_longest(*files, fillvalue=None), start=1):
            text, label = review[1] if review else "", category[1].strip() if category else ""
            if not label and not text.strip():
                continue
            where, fault = source, ""
            if review is None:
                where, fault = categories, f"no review for this label in {source}"
            elif not label:
                where, fault = source, f"no label for this review in {categories}"
            elif label not in _CATEGORIES:
                where = categories
                fault = f"expected 1 (negative) or 2 (positive), found {shortened(label)}"
            if fault:
                raise UserError(f"{where}:{line}: {fault}; expected a label for every review.")
            yield Example(text, _CATEGORIES[label], f"{source}:{line}")

    def _by_label(self, source: Path) -> Iterator[Example]:
        for label in (POSITIVE, NEGATIVE):
            file = source.with_suffix(f".{label}")
            for number, line in read_lines(file, self.encoding):
                yield Example(line, label, f"{file}:{number}")

    def _from_json_lines(self, source: Path) -> Iterator[Example]:
        for number, row in read_json_lines(source, self.encoding):
            where = f"{source}:{number}"
            text_column, label_column = _columns(row, where)
            text, value = row.get(text_column) or "", row[label_column]
            if not isinstance(text, str):
                raise UserError(f"{where}: {text_column!r} is not text: {shortened(text)}.")
            stars = (text_column, label_column) in STAR_COLUMNS
            label = (
                _from_stars(value, f"{where}: {label_column!r}")
                if stars
                else _from_name(value, where)
            )
            if label is not None:
                yield Example(text, label, where)


def _is_reviews(path: Path) -> bool:
    return path.name.endswith(TOKENISED) or _may_lack_split(path)


def _may_lack_split(path: Path) -> bool:
    """Forms that are also given out in one piece; of a pair by label one file is enough."""
    if path.suffix == ".negative":
        return not path.with_suffix(".positive").exists()
    return path.suffix == ".positive" or path.name.endswith(STAR_FILES)


def _test_beside(train: Path) -> Path | None:
    """The test file for a train file of another name: elec-test goes with elec-25k-train."""
    tests = [
        file
        for file in entries(train.parent)
        if file.name.endswith(TOKENISED) and split_of(file.name) == "test"
    ]
    if len(tests) > 1:
        raise UserError(
            f"{train}: several test sets could go with it: {', '.join(map(str, tests))}; "
            "keep one of them beside it."
        )
    return tests[0] if tests else None


def _columns(row: Collection[str], where: str) -> tuple[str, str]:
    """The first known pair of columns; McAuley's sets leave out the text where it is empty."""
    pairs = (*STAR_COLUMNS, *LABEL_COLUMNS)
    for pair in pairs:
        if pair[0] in row and pair[1] in row:
            return pair
    for pair in pairs[:2]:
        if pair[1] in row:
            return pair
    raise UserError(
        f"{where}: expected a review's text and stars ('reviewText' and 'overall') or 'text' and "
        f"'label', found {listed(row) or 'nothing'}."
    )


def _from_stars(value: Any, where: str) -> str | None:
    """1-2 negative, 4-5 positive, what is between is dropped."""
    try:
        stars = float(value)
    except (TypeError, ValueError):
        stars = math.nan
    if not 1 <= stars <= 5:
        raise UserError(f"{where}: expected 1 to 5 stars, found {shortened(value)}.")
    if 2 < stars < 4:
        return None
    return NEGATIVE if stars <= 2 else POSITIVE


def _from_name(value: Any, where: str) -> str:
    label = _NAMES.get(str(value).lower())
    if label is None:
        hint = " (-1 stands for a hidden label; use data with labels)" if str(value) == "-1" else ""
        raise UserError(
            f"{where}: expected the label 0 or 'negative', 1 or 'positive', "
            f"found {shortened(value)}{hint}."
        )
    return label
