from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sopa_plugin.data.readers import AmazonReader
from sopa_plugin.errors import UserError

Write = Callable[..., Path]
ELEC = {
    "elec-25k-train.txt.tok": "  good one\r\n  bad one  \n" * 10,
    "elec-25k-train.cat": "2\n1\n" * 10,
    "elec-test.txt.tok": "  fine\n  awful",
    "elec-test.cat": "2\r\n1",
}


def pairs(reader: AmazonReader, split: str) -> list[tuple[str, int]]:
    data = reader.read()[split]
    return list(zip(data["text"], data["label"], strict=True))


def sizes(path: Path, **options: object) -> list[int]:
    return [len(data) for data in AmazonReader(str(path), **options).read().values()]  # type: ignore


def test_reviews_with_categories(write: Write) -> None:
    root = write(ELEC | {"elec-25k-unlab00.txt.tok": "  nothing\n"})
    assert pairs(AmazonReader(str(root)), "test") == [("fine", 1), ("awful", 0)]
    assert sizes(root) == [16, 4, 2]  # a fifth of train is dev
    assert sizes(root, dev_size=2) == [18, 2, 2]
    assert set(pairs(AmazonReader(str(root)), "dev")) == {("good one", 1), ("bad one", 0)}


def test_several_sizes_of_the_training_set(write: Write) -> None:
    small = {"elec-05k-train.txt.tok": "  a\n  b\n" * 3, "elec-05k-train.cat": "2\n1\n" * 3}
    root = write(ELEC | small)
    with pytest.raises(UserError, match="holds 2 data sets") as error:
        sizes(root)
    assert f"{root}/elec-05k-train.txt.tok\n" in str(error.value)
    assert sizes(root / "elec-05k") == [5, 1, 2]
    assert sizes(root / "elec-25k-train.txt.tok") == [16, 4, 2]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"elec-test.cat": "2\n1\n2\n"}, r"elec-test\.cat:3: no review for this label"),
        ({"elec-test.cat": "2\n"}, r"elec-test\.txt\.tok:2: no label for this review"),
        ({"elec-test.cat": "2\n3\n"}, r"elec-test\.cat:2: expected 1 \(negative\) or 2"),
        ({"elec-test.cat": "2\n-1\n"}, r"elec-test\.cat:2: .*found '-1'"),
        ({"elec-test.txt.tok": "", "elec-test.cat": ""}, r"elec-test\.txt\.tok: no test examples"),
        ({"old-test.txt.tok": "a\n", "old-test.cat": "1\n"}, "several test sets could go with it"),
    ],
)
def test_faults_name_file_and_line(write: Write, files: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sizes(write(ELEC | files))


def test_a_missing_category_file(write: Write) -> None:
    root = write(ELEC)
    (root / "elec-test.cat").unlink()
    with pytest.raises(UserError, match=r"elec-test\.cat: cannot be read"):
        sizes(root)


def test_one_review_a_line_by_label(write: Write) -> None:
    files = {
        f"{split}.{label}": f"a {label} {split} review\u2028of two lines\n" * 5
        for split in ("train", "test")
        for label in ("positive", "negative")
    }
    root = write(files)
    assert sizes(root) == [8, 2, 10]
    assert set(pairs(AmazonReader(str(root)), "test")) == {
        ("a positive test review\u2028of two lines", 1),
        ("a negative test review\u2028of two lines", 0),
    }
    (root / "test.negative").unlink()
    with pytest.raises(UserError, match=r"test\.negative: cannot be read"):
        sizes(root)


def test_reviews_by_label_without_splits(write: Write) -> None:
    root = write({"all.positive": "good\n" * 10, "all.negative": "bad\n" * 10})
    assert sizes(root) == [8, 2, 10]
    assert sizes(root, test_size=4, dev_size=0.5) == [8, 8, 4]
    (root / "all.positive").unlink()
    with pytest.raises(UserError, match=r"all\.positive: cannot be read"):
        sizes(root)


def stars(text: str | None, number: float, **more: str) -> dict[str, object]:
    review = {"overall": number, "summary": "SUMMARY", **more}
    return review if text is None else {"reviewText": text, **review}


def test_star_rated_json_lines(write: Write) -> None:
    reviews = [stars(f"text {number}", number) for number in (1.0, 2.0, 3.0, 4.0, 5.0)]
    lines = "".join(
        json.dumps(review) + "\n" for review in [*reviews, stars(None, 5), stars("", 1)]
    )
    root = write({"train.json": lines * 4, "test.json.gz": gzip.compress(lines.encode())})
    assert pairs(AmazonReader(str(root)), "test") == [
        ("text 1.0", 0),
        ("text 2.0", 0),
        ("text 4.0", 1),
        ("text 5.0", 1),
    ]
    with pytest.raises(UserError, match=r"json(\.gz)?:6: the text is empty .*; expected some text"):
        sizes(root, empty_text="error")


@pytest.mark.parametrize(("text", "score"), [("review/text", "review/score"), ("text", "rating")])
def test_other_names_of_the_columns(write: Write, text: str, score: str) -> None:
    lines = "".join(
        json.dumps({text: f"has {number} stars", score: str(number), "title": "SUMMARY"}) + "\n"
        for number in (1, 2, 4, 5) * 10
    )
    root = write({"reviews_Electronics_5.json": lines})
    assert sizes(root, test_size=0.25) == [24, 6, 10]
    assert set(pairs(AmazonReader(str(root)), "train")) == {
        (f"has {number} stars", int(number > 3)) for number in (1, 2, 4, 5)
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"reviewText": "a", "overall": 7}', "train.json:3: 'overall': expected 1 to 5 stars"),
        ('{"reviewText": "a", "overall": null}', "train.json:3: .* expected 1 to 5 stars"),
        ('{"reviewText": 5, "overall": 1}', "train.json:3: 'reviewText' is not text: 5"),
        ('{"summary": "a"}', "train.json:3: expected a review's text and stars"),
        ('{"text": "a", "label": -1}', "train.json:3: expected the label 0 .* hidden label"),
        ('{"reviewText": "a \\udc9d", "overall": 1}', "train.json:3: the text has half of a surr"),
        ("{'reviewText': 'a'}", "train.json:3: expected one JSON object a line"),
    ],
)
def test_faulty_json_lines(write: Write, line: str, message: str) -> None:
    good = '{"text": "a", "label": 1}\n{"text": "b", "label": "negative"}\n'
    with pytest.raises(UserError, match=message):
        sizes(write({"train.json": good + line}))


def test_nothing_there(write: Write) -> None:
    with pytest.raises(UserError, match="no data set found there; expected reviews with categ"):
        sizes(write({"readme.txt": "hello"}))


def test_counts_of_the_real_data(shared_data: Callable) -> None:
    path = shared_data("amazon/elec-sample")
    assert sizes(path) == [1280, 320, 400]
    reader = AmazonReader(str(path))
    train = reader.read_file(path.parent / "elec-sample-train.txt.tok")
    test = reader.read_file(path.parent / "elec-sample-test.txt.tok")
    assert (len(train), len(test)) == (1600, 400)
    assert max(len(text.split()) for text in train["text"]) == 1341


def test_counts_of_the_real_reviews_by_label(shared_data: Callable) -> None:
    negative = shared_data("amazon/electronics-reviews.negative")
    reviews = AmazonReader(str(negative.with_suffix("")))
    assert sum(len(data) for data in reviews.read().values()) == 6000
    # in the folder, the set whose names tell its splits goes first
    assert sizes(negative.parent) == sizes(negative.with_name("elec-sample"))
