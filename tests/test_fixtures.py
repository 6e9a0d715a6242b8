"""The embedded sample data: formats, counts, balance, no overlap, and that it can be learnt."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
# Frequent words whose rows are not redistributed here.
EXCLUDED = {"a", "'s", "''", "``", "i", "--", "n't", "u.s."}
Examples = list[tuple[str, int]]


def lines(path: str) -> list[str]:
    text = (FIXTURES / path).read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert "\r" not in text
    return text.split("\n")[:-1]


def parse_tree(line: str) -> tuple[int, list[str]]:
    """The root label and words of a bracketed binary tree; every node's label is checked."""
    tokens = line.replace("(", " ( ").replace(")", " ) ").split()
    position = 0

    def node() -> tuple[int, list[str]]:
        nonlocal position
        assert tokens[position] == "("
        label = int(tokens[position + 1])
        assert 0 <= label <= 4
        position += 2
        if tokens[position] != "(":
            words = [tokens[position]]
            position += 1
        else:
            words = node()[1] + node()[1]  # binary: exactly two children
        assert tokens[position] == ")"
        position += 1
        return label, words

    result = node()
    assert position == len(tokens)
    return result


def sst(split: str) -> Examples:
    trees = [parse_tree(line) for line in lines(f"sst/{split}.txt")]
    return [(" ".join(words), label) for label, words in trees]


def sst_lines(split: str) -> Examples:
    pairs = [line.split(" ", 1) for line in lines(f"sst_lines/stsa.binary.{split}")]
    return [(text, int(label)) for label, text in pairs]


def amazon(split: str) -> Examples:
    texts = lines(f"amazon/elec-sample-{split}.txt.tok")
    labels = lines(f"amazon/elec-sample-{split}.cat")
    return list(zip(texts, map(int, labels), strict=True))


def roc_rows(split: str) -> list[dict[str, str]]:
    path = FIXTURES / "roc" / f"cloze_test_{split}__spring2016.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def roc(split: str) -> Examples:
    """Endings, tokenised roughly; 1 for the right one."""
    return [
        (re.sub(r"([.,!?\"]|'(?=s\b))", r" \1", row[f"RandomFifthSentenceQuiz{k}"]), int(right))
        for row in roc_rows(split)
        for k in (1, 2)
        for right in [row["AnswerRightEnding"] == str(k)]
    ]


def vectors() -> dict[str, np.ndarray]:
    rows = [line.split(" ") for line in lines("vectors.txt")]
    table = {word: np.array(values, dtype=float) for word, *values in rows}
    assert len(table) == len(rows), "a word has two rows"
    return table


def test_sst_counts_and_balance() -> None:
    counts = {
        split: Counter(label for _, label in sst(split)) for split in ("train", "dev", "test")
    }
    assert {split: sum(count.values()) for split, count in counts.items()} == {
        "train": 498,
        "dev": 110,
        "test": 110,
    }
    for count in counts.values():
        assert set(count) == {0, 1, 2, 3, 4}
        assert abs(count[0] + count[1] - count[3] - count[4]) <= 2
        assert 0.08 <= count[2] / sum(count.values()) <= 0.12


def test_sst_sentences_look_like_the_treebank() -> None:
    for split in ("train", "dev", "test"):
        for text, _ in sst(split):
            words = text.split(" ")
            assert 3 <= len(words) <= 40
            assert not re.search(r"\wn't|\w'(s|re|ve|ll|m|d)\b|\w[,;:?!]|[()\"]", text), text
            assert text != text.lower()


def test_sst_phrase_labels_vary() -> None:
    inner = Counter(re.findall(r"\((\d) \(", " ".join(lines("sst/train.txt"))))
    assert set(inner) == set("01234")
    assert min(inner.values()) > 100


def test_sst_lines_are_lower_cased_sentences_of_the_trees() -> None:
    sizes = {"train": 60, "dev": 20, "test": 20}
    for split, size in sizes.items():
        labels = {text.lower(): label for text, label in sst(split)}
        examples = sst_lines(split)
        assert len(examples) == size
        assert Counter(label for _, label in examples) == {0: size // 2, 1: size // 2}
        for text, label in examples:
            assert labels[text] != 2
            assert (labels[text] > 2) == bool(label)


def test_amazon_counts_balance_and_line_conventions() -> None:
    for split, size in (("train", 250), ("test", 50)):
        examples = amazon(split)
        assert Counter(label for _, label in examples) == {1: size // 2, 2: size // 2}
        for text, _ in examples:
            assert re.fullmatch(r"  \S.*\S  ", text)
            assert "  " not in text[2:-2]
            assert 15 <= len(text.split()) <= 140


def test_roc_columns_and_answers() -> None:
    columns = [
        "InputStoryid",
        *(f"InputSentence{k}" for k in range(1, 5)),
        "RandomFifthSentenceQuiz1",
        "RandomFifthSentenceQuiz2",
        "AnswerRightEnding",
    ]
    ids: list[str] = []
    for split in ("val", "test"):
        rows = roc_rows(split)
        assert len(rows) == 60
        assert list(rows[0]) == columns
        assert all(all(row.values()) for row in rows)
        assert Counter(row["AnswerRightEnding"] for row in rows) == {"1": 30, "2": 30}
        ids += [row["InputStoryid"] for row in rows]
    assert len(set(ids)) == 120


def test_text_formats_hold_the_same_examples() -> None:
    for split, size in (("train", 30), ("dev", 9), ("test", 9)):
        with (FIXTURES / f"text/csv/{split}.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
        header, *cells = [line.split("\t") for line in lines(f"text/tsv/{split}.tsv")]
        assert rows == [dict(zip(header, row, strict=True)) for row in cells]
        assert rows == [json.loads(line) for line in lines(f"text/jsonl/{split}.jsonl")]
        assert Counter(row["label"] for row in rows) == dict.fromkeys(
            ("cooking", "sport", "weather"), size // 3
        )
    # The comma-separated files need their quotes, the point of the format.
    assert '"' in "".join(lines("text/csv/train.csv"))


def text_rows(split: str) -> Examples:
    rows = [json.loads(line) for line in lines(f"text/jsonl/{split}.jsonl")]
    return [(row["text"], 0) for row in rows]


@pytest.mark.parametrize(
    ("read", "splits"),
    [
        (sst, ("train", "dev", "test")),
        (sst_lines, ("train", "dev", "test")),
        (amazon, ("train", "test")),
        (roc, ("val", "test")),
        (text_rows, ("train", "dev", "test")),
    ],
)
def test_no_text_occurs_twice(read, splits: tuple[str, ...]) -> None:
    texts = [re.sub(r"\W", "", text.lower()) for split in splits for text, _ in read(split)]
    assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_vectors_parse_and_cover_the_texts() -> None:
    table = vectors()
    assert {len(row) for row in table.values()} == {100}
    assert not EXCLUDED & set(table)
    assert all(word == word.lower() for word in table)
    assert all(np.isfinite(row).all() and row.any() for row in table.values())
    assert (FIXTURES / "vectors.txt").stat().st_size < 3_000_000
    for read, split in ((sst, "test"), (amazon, "test"), (roc, "test")):
        words = [word for text, _ in read(split) for word in text.lower().split()]
        known = [word in table or word in EXCLUDED for word in words]
        assert np.mean(known) > 0.97


@pytest.mark.parametrize(
    ("read", "train", "negative", "at_least"),
    [(sst, "train", (0, 1), 0.75), (amazon, "train", (1,), 0.80), (roc, "val", (0,), 0.60)],
)
def test_a_linear_model_learns_more_than_chance(
    read, train: str, negative: tuple[int, ...], at_least: float
) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    table = vectors()

    def features(split: str) -> tuple[np.ndarray, np.ndarray]:
        examples = [(t, y) for t, y in read(split) if read is not sst or y != 2]
        means = [
            np.mean([table[w] for w in text.lower().split() if w in table], axis=0)
            for text, _ in examples
        ]
        return np.stack(means), np.array([label not in negative for _, label in examples])

    model = linear_model.LogisticRegression(max_iter=1000).fit(*features(train))
    assert at_least <= model.score(*features("test")) < 1.0


def without_marks(text: str) -> str:
    return re.sub(r"\W", "", text.lower())


def test_no_text_is_one_of_the_real_data() -> None:
    real = FIXTURES.parents[1] / "shared" / "data"
    if not real.is_dir():
        pytest.skip(f"no real data at {real}")
    theirs: set[str] = set()
    for path in real.glob("sst/stsa.*"):
        text = path.read_text(encoding="utf-8")
        theirs.update(without_marks(line[2:]) for line in text.split("\n"))
    for path in [*real.glob("amazon/*.tok"), *real.glob("amazon/electronics-*")]:
        text = path.read_text(encoding="utf-8", errors="replace")
        theirs.update(without_marks(line) for line in text.split("\n"))
    for path in real.glob("roc/*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            theirs.update(without_marks(cell) for row in csv.reader(file) for cell in row[1:7])
    assert len(theirs) > 10_000
    ours = [text for split in ("train", "dev", "test") for text, _ in sst(split)]
    ours += [text for split in ("train", "test") for text, _ in amazon(split)]
    for split in ("val", "test"):
        ours += [cell for row in roc_rows(split) for cell in list(row.values())[1:7]]
    assert [text for text in ours if without_marks(text) in theirs] == []
