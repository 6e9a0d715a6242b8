from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_plugin.data.readers import DatasetReader, SstReader
from sopa_plugin.data.readers.sst import parse_tree
from sopa_plugin.errors import UserError
from sopa_plugin.registry import ConfigError, check

TREES = """(4 (2 It) (4 (3 (2 really) (4 works)) (2 .)))
(1 (2 Bad) (2 -LRB-))
(2 (2 So) (2 so))
"""
LINES = "1 it really works .\n0 bad -lrb-\n"
FIVE = "4 it really works .\n1 bad -lrb-\n2 so so\n"
FINE = ["very negative", "negative", "neutral", "positive", "very positive"]
Write = Callable[..., Path]


def three(content: str | bytes, names: str = "{}.txt") -> dict[str, str | bytes]:
    return {names.format(split): content for split in ("train", "dev", "test")}


def read(path: Path, **options: object) -> dict[str, list[tuple[str, str]]]:
    loaded = DatasetReader.from_params({"type": "sst", "path": str(path), **options}).read()
    features = [data.features["label"] for data in loaded.values()]
    assert features[0] == features[1] == features[2]
    return {
        split: [(row["text"], features[0].int2str(row["label"])) for row in data]
        for split, data in loaded.items()
    }


def test_trees_give_whole_sentences(write: Write) -> None:
    expected = [("It really works .", "positive"), ("Bad -LRB-", "negative")]
    assert read(write(three(TREES))) == {"train": expected, "dev": expected, "test": expected}


def test_trees_in_five_classes(write: Write) -> None:
    loaded = SstReader(str(write(three(TREES))), granularity="fine").read()
    assert loaded["test"].features["label"].names == FINE
    assert list(loaded["test"]["label"]) == [4, 1, 2]


def test_lines_with_two_and_with_five_classes(write: Write) -> None:
    expected = [("it really works .", "positive"), ("bad -lrb-", "negative")]
    assert read(write(three(LINES, "stsa.binary.{}"), "a"))["train"] == expected
    assert read(write(three(FIVE, "stsa.fine.{}"), "b"))["train"] == expected
    assert read(write(three(TREES.lower()), "c"))["train"] == expected
    five = read(write(three(FIVE), "d"), granularity="fine")["dev"]
    assert [label for _, label in five] == ["very positive", "negative", "neutral"]


def test_lines_as_people_have_them(write: Write) -> None:
    content = "\ufeff1 one\u2028two\r\n0\tthree\u00a0four  five\r\n\r\n1 " + "word " * 2_800
    rows = read(write(three(content.encode())))["train"]
    assert rows[:2] == [("one\u2028two", "positive"), ("three\u00a0four  five", "negative")]
    assert len(rows) == 3
    assert len(rows[2][0].split()) == 2_800


def test_a_no_break_space_is_part_of_a_word(write: Write) -> None:
    tree = "(3 (2 8\u00a01\\/2) (2 stars))\n(0 (2 No))\n"
    assert read(write(three(tree)))["dev"][0] == ("8\u00a01\\/2 stars", "positive")


def test_a_folder_in_the_folder(write: Write) -> None:
    root = write(three(TREES, "trees/{}.txt"))
    assert len(read(root)["train"]) == 2


def test_validation_files_are_dev(write: Write) -> None:
    root = write({"train.tsv": LINES, "valid.tsv": LINES, "test.tsv": LINES})
    assert len(read(root)["dev"]) == 2


def test_several_forms_are_an_error_that_names_the_choices(write: Write) -> None:
    root = write(
        three(LINES, "stsa.binary.{}") | three(FIVE, "stsa.fine.{}") | three(TREES, "trees/{}.txt")
    )
    with pytest.raises(UserError, match="holds 3 data sets") as error:
        read(root)
    choices = re.findall(r"^  (\S+)", str(error.value), re.MULTILINE)
    train = ("stsa.binary.train", "stsa.fine.train", "trees/train.txt")
    assert choices == [str(root / name) for name in train]
    for choice in (*choices, root / "stsa.fine", root / "trees"):
        assert len(read(Path(choice))["train"]) == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"readme.txt": "1 a\n"}, "no data set found there; expected train, dev and test files"),
        (three(LINES) | {"train.txt": ""}, r"train\.txt: no train examples in it"),
        (three(LINES) | {"test.txt": "2 a\n"}, r"test\.txt:1: the label 2 is not in the training"),
        (three(LINES) | {"test.txt": "-1 a\n"}, r"test\.txt:1: the label is -1, which stands for"),
        (three(LINES) | {"dev.txt": "1 a\ngood b\n"}, r"dev\.txt:2: expected a label from 0 to 4"),
        (three(LINES) | {"dev.txt": "1 a\n0 \n"}, r"dev\.txt:2: the text is empty"),
        (three(LINES) | {"train.txt": "1 a\n1 b\n"}, r"train\.txt: every training .* 'positive'"),
        (three(TREES) | {"dev.txt": "(3 (2 a) (2 b)\n"}, r"dev\.txt:1: not a bracketed tree: 1 br"),
        (three(TREES) | {"dev.txt": "(3 (2 a)) (2 b)\n"}, r"dev\.txt:1: not .*'\(' out of place"),
        (three(TREES) | {"dev.txt": "(3 ((2 a)))\n"}, r"dev\.txt:1: expected a label|out of place"),
        (three(TREES) | {"dev.txt": "(7 (2 a))\n"}, r"dev\.txt:1: expected a label .*'7'"),
        (three(LINES) | {"dev.txt": "1 caf\xe9\n".encode("latin-1")}, r"dev\.txt:1: byte 0xe9"),
        (three(LINES) | {"valid.txt": LINES}, r"both dev\.txt and valid\.txt could be the dev set"),
        ({"train.txt": LINES, "test.txt": LINES}, "no dev set there; set dataset.dev_size"),
        (three("<!DOCTYPE html>\n<html>"), r"train\.txt:1: expected a label .*<!DOCTYPE"),
    ],
)
def test_faults_name_file_and_line(write: Write, files: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(write(files))


def test_five_classes_cannot_be_had_from_two(write: Write) -> None:
    with pytest.raises(UserError, match="needs the five of the trees"):
        read(write(three(LINES)), granularity="fine")
    few = read(write(three("(3 (2 a))\n(1 (2 b))\n"), "few"), granularity="fine")
    assert few["train"] == [("a", "positive"), ("b", "negative")]  # trees always have five


def test_a_dev_set_may_lack_a_class(write: Write) -> None:
    root = write(three(LINES) | {"dev.txt": "1 only praise\n"})
    assert read(root)["dev"] == [("only praise", "positive")]


def test_a_dev_set_can_be_split_off(write: Write) -> None:
    root = write({"train.txt": LINES * 10, "test.txt": LINES})
    loaded = read(root, dev_size=0.2)
    assert {split: len(rows) for split, rows in loaded.items()} == {
        "train": 16,
        "dev": 4,
        "test": 2,
    }
    assert Counter(label for _, label in loaded["dev"]) == {"positive": 2, "negative": 2}


def test_one_file_is_read_by_the_classes_of_a_model(write: Write) -> None:
    root = write(three(TREES))
    reader = SstReader(str(root))
    data = reader.read_file(root / "test.txt", class_names=["positive", "negative"])
    assert data[:] == {"text": ["It really works .", "Bad -LRB-"], "label": [0, 1], "row": [1, 2]}
    with pytest.raises(UserError, match=r"test\.txt:2: the label 'negative' is not a class of"):
        reader.read_file(root / "test.txt", class_names=["positive", "other"])


def test_faults_of_the_config_are_found_by_the_check() -> None:
    config = {"type": "sst", "path": "x", "granularity": "coarse"}
    assert [problem.path for problem in check(DatasetReader, config, "dataset")] == [
        "dataset.granularity"
    ]
    config = {"type": "sst", "path": "x", "max_tokens": 0, "dev_size": 1.5}
    assert [problem.path for problem in check(DatasetReader, config, "dataset")] == [
        "dataset.max_tokens",
        "dataset.dev_size",
    ]
    with pytest.raises(ConfigError):
        DatasetReader.from_params(config)
    with pytest.raises(ValueError, match="max_tokens: expected an integer of at least 1"):
        SstReader("x", max_tokens=0)


COUNTS = {"binary": [6920, 872, 1821], "fine": [8544, 1101, 2210]}


@pytest.mark.parametrize(
    ("name", "granularity"),
    [
        ("trees", "binary"),
        ("trees", "fine"),
        ("stsa.binary", "binary"),
        ("stsa.fine", "fine"),
        ("stsa.fine", "binary"),
    ],
)
def test_counts_of_the_real_data(shared_data: Callable, name: str, granularity: str) -> None:
    loaded = read(shared_data(f"sst/{name}"), granularity=granularity)
    assert [len(rows) for rows in loaded.values()] == COUNTS[granularity]


def test_real_trees_and_lines_hold_the_same_sentences(shared_data: Callable) -> None:
    for granularity, name in (("binary", "stsa.binary"), ("fine", "stsa.fine")):
        trees = read(shared_data("sst/trees"), granularity=granularity)
        lines = read(shared_data(f"sst/{name}"), granularity=granularity)
        for split in trees:
            lowered = Counter((text.lower(), label) for text, label in trees[split])
            assert lowered == Counter(lines[split])


def test_embedded_sample() -> None:
    fixtures = Path(__file__).resolve().parents[3] / "fixtures"
    trees, lines = SstReader(str(fixtures / "sst")), SstReader(str(fixtures / "sst_lines"))
    assert trees.is_embedded_sample
    assert trees.describe() == (
        "Stanford Sentiment Treebank sentences from fixtures/sst (the embedded sample)"
    )
    counts = {split: len(data) for split, data in trees.read().items()}
    assert set(counts) == {"train", "dev", "test"}
    assert min(counts.values()) > 0
    assert len(lines.read()["train"]) > 0


def test_zero_and_one_of_five_classes(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    few = "1 bad\n0 worse\n"
    five = write(three(FIVE, "set.{}"), "five")
    two = write(three(LINES, "set.{}"), "two")
    alone = write({"few.txt": few, "few.fine.txt": few, "few.binary.txt": few}, "alone")

    def labels(root: Path, name: str, granularity: str = "binary") -> list[str]:
        reader = SstReader(str(root), granularity=granularity)  # type: ignore[arg-type]
        data = reader.read_file(alone / name, FINE if granularity == "fine" else None)
        return [data.features["label"].int2str(each) for each in data["label"]]

    # by the set that the reader is for, else by the name
    assert labels(five, "few.txt") == ["negative", "negative"]
    assert labels(five, "few.txt", "fine") == ["negative", "very negative"]
    assert labels(alone / "gone", "few.fine.txt") == ["negative", "negative"]
    assert not caplog.messages
    assert labels(two, "few.txt") == ["positive", "negative"]
    assert "has the labels 0 and 1 only, which are taken as negative and positive" in caplog.text
    with pytest.raises(UserError, match="has two classes"):
        labels(five, "few.binary.txt", "fine")


trees = st.recursive(
    st.tuples(st.integers(0, 4), st.text("aé.'\\/`\u00a0-", min_size=1)),
    lambda inner: st.tuples(st.integers(0, 4), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=12,
)


def bracketed(tree: tuple) -> str:
    label, inside = tree
    content = inside if isinstance(inside, str) else " ".join(map(bracketed, inside))
    return f"({label} {content})"


def leaves(tree: tuple) -> list[str]:
    _, inside = tree
    return (
        [inside] if isinstance(inside, str) else [word for each in inside for word in leaves(each)]
    )


@given(trees)
def test_any_tree_gives_its_root_and_its_words(tree: tuple) -> None:
    example = parse_tree(bracketed(tree), "file:3")
    assert example == (" ".join(leaves(tree)), FINE[tree[0]], "file:3")
