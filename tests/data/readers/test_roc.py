from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from sopa_plugin.data.readers import RocReader
from sopa_plugin.errors import UserError

Write = Callable[..., Path]
HEADER = (
    "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,"
    "RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding"
)
VAL = "cloze_test_val__spring2016 - cloze_test_ALL_val.csv"
TEST = "cloze_test_test__spring2016 - cloze_test_ALL_test.csv"


def stories(count: int, name: str = "s") -> str:
    rows = [
        f'{name}{index},One.,"Two, then.",Three.,Four.,"{name}{index}, first",'
        f"{name}{index} second,{index % 2 + 1}"
        for index in range(count)
    ]
    return "\r\n".join([HEADER, *rows])


GOOD = {VAL: stories(20), TEST: stories(2)}


def read(root: Path, **options: object) -> dict[str, list[tuple[str, int]]]:
    loaded = RocReader(str(root), **options).read()  # type: ignore[arg-type]
    assert loaded["train"].features["label"].names == ["negative", "positive"]
    return {
        split: list(zip(data["text"], data["label"], strict=True)) for split, data in loaded.items()
    }


def test_endings_right_and_wrong(write: Write) -> None:
    loaded = read(write({VAL: stories(20), TEST: stories(2, "t")}))
    assert loaded["test"] == [
        ("t0, first", 1),
        ("t0 second", 0),
        ("t1, first", 0),
        ("t1 second", 1),
    ]
    assert (len(loaded["train"]), len(loaded["dev"])) == (36, 4)


def test_stories_are_kept_whole_and_shuffled_by_the_seed(write: Write) -> None:
    root = write({VAL: stories(60), TEST: stories(2)})

    def dev_stories(seed: int) -> set[str]:
        loaded = read(root, split_seed=seed)
        names = {
            split: {text.replace(",", "").split()[0] for text, _ in loaded[split]}
            for split in ("train", "dev")
        }
        assert not names["train"] & names["dev"]
        assert (len(names["train"]), len(names["dev"])) == (54, 6)
        return names["dev"]

    assert dev_stories(1) == dev_stories(1) != dev_stories(2)


@pytest.mark.parametrize(
    ("total", "dev_size", "sentences"),
    [
        (1871, 0.1, (3366, 374)),
        (1870, 0.1, (3366, 374)),
        (15, 0.1, (26, 2)),  # 13.5 and 1.5 rounded down
        (3, 0.1, (4, 2)),
        (10, 0.5, (10, 10)),
        (11, 6, (16, 6)),
    ],
)
def test_sizes(write: Write, total: int, dev_size: float, sentences: tuple[int, int]) -> None:
    loaded = read(write({VAL: stories(total), TEST: stories(2)}), dev_size=dev_size)
    assert (len(loaded["train"]), len(loaded["dev"])) == sentences


def test_the_story_left_over_is_logged(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read(write({VAL: stories(11), TEST: stories(2)}))
    assert "1 of 11 stories is left over and dropped" in caplog.text


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({VAL: stories(2)}, {}, "no test set there; set dataset.test_size"),
        ({TEST: stories(2)}, {}, "no training set; found test"),
        (GOOD | {"a_val.csv": stories(2)}, {}, "2 files could be the train set: a_val.csv, cloze"),
        (GOOD, {"dev_size": 3}, "dev_size: expected an even count"),
        (GOOD, {"dev_size": 40}, "dev_size: 40 leaves nothing to train on: there are 20 stories"),
        (
            GOOD | {TEST: "a,b\n1,2\n"},
            {},
            r"test\.csv:2: expected the columns RandomFifth.*found 'a', 'b'",
        ),
        (
            GOOD | {TEST: stories(2)[:-1] + "3"},
            {},
            r"test\.csv:3: expected 1 or 2 in AnswerRightEnding",
        ),
        (GOOD | {TEST: HEADER}, {}, r"test\.csv: no test examples in it"),
        (GOOD | {TEST: HEADER + "\nx,1,2,3,4,a,,1"}, {}, r"test\.csv:2: the text is empty"),
        (
            GOOD | {TEST: HEADER + '\nx,1,2,3,4,a,"b,1'},
            {},
            r"test\.csv:2: not a row of cells",
        ),
    ],
)
def test_faults(write: Write, files: dict, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(write(files), **options)


def test_quoted_newlines_and_values_that_look_missing(write: Write) -> None:
    test = HEADER + '\r\nx,1,2,3,4,"He left,\r\nand ""how"".",NA,1\r\ny,1,2,3,4,null,\ufffd,2'
    loaded = read(write({VAL: stories(20), TEST: test}))
    assert loaded["test"] == [('He left,\nand "how".', 1), ("NA", 0), ("null", 0), ("\ufffd", 1)]


def test_counts_of_the_real_data(shared_data: Callable) -> None:
    loaded = read(shared_data("roc"))
    assert [len(rows) for rows in loaded.values()] == [3366, 374, 3742]
    for rows in loaded.values():
        assert sum(label for _, label in rows) * 2 == len(rows)
