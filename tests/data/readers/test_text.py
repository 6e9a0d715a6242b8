from __future__ import annotations

import gzip
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from pyarrow import parquet

from sopa_plugin.data.readers import DatasetReader, TextReader
from sopa_plugin.errors import TrainingFailed, UserError
from sopa_plugin.registry import check

Write = Callable[..., Path]
CSV = 'text,label\n"good, really",pos\nNA,neg\n'


def read(reader: DatasetReader) -> dict[str, list[tuple[str, str]]]:
    loaded = reader.read()
    features = [data.features["label"] for data in loaded.values()]
    assert features[0] == features[1] == features[2]
    return {
        split: [(row["text"], features[0].int2str(row["label"])) for row in data]
        for split, data in loaded.items()
    }


def names(reader: DatasetReader) -> list[str]:
    return reader.read()["train"].features["label"].names


def test_each_kind_of_file_gives_the_same(write: Write) -> None:
    rows = [("good, really", "pos"), ("NA", "neg"), ('6" null', "neg")]
    comma = 'text,label\n"good, really",pos\nNA,neg\n"6"" null",neg\n'
    tab = "label\ttext\r\n" + "".join(f"{label}\t{text}\r\n" for text, label in rows)
    lines = "\n".join(json.dumps({"text": text, "label": label}) for text, label in rows)
    root = write(
        {"train.csv": comma, "valid.tsv": tab, "test.jsonl.gz": gzip.compress(lines.encode())}
    )
    assert read(TextReader(str(root))) == {"train": rows, "dev": rows, "test": rows}


def test_one_path_a_split(write: Write) -> None:
    root = write({"a.csv": CSV, "b.csv": CSV, "c.csv": "text,label\nfine,pos\n"})
    paths = {"train": f"{root}/a.csv", "dev": f"{root}/c.csv", "test": f"{root}/b.csv"}
    reader = TextReader(**paths)
    assert read(reader)["dev"] == [("fine", "pos")]  # a dev set may lack a class
    assert reader.describe() == "texts from data/a.csv, data/c.csv, data/b.csv"
    assert not reader.is_embedded_sample


def test_column_names(write: Write) -> None:
    header = "stars\treview\n5\tgood\n1\tbad\n"
    bare = "5,good\n1,bad\n"
    options = {"text_column": "review", "label_column": "stars", "dev_size": 2}
    root = write({"train.tsv": header + "5\tgood\n1\tbad\n" * 3, "test.tsv": header})
    assert read(TextReader(str(root), **options))["test"] == [("good", "5"), ("bad", "1")]
    root = write({"train.csv": bare * 4, "test.csv": bare}, "bare")
    rows = read(TextReader(str(root), column_names=["stars", "review"], **options))
    assert rows["test"] == [("good", "5"), ("bad", "1")]


def test_integer_labels_are_in_numeric_order(write: Write) -> None:
    lines = "".join(json.dumps({"text": f"t{n}", "label": n}) + "\n" for n in (10, 9, 1, 2.0))
    root = write({"train.jsonl": lines, "dev.jsonl": lines, "test.jsonl": lines})
    reader = TextReader(str(root))
    assert names(reader) == ["1", "2", "9", "10"]
    assert list(reader.read()["test"]["label"]) == [3, 2, 0, 1]
    table = "text,label\na,10\nb,9\nc,1\n"
    root = write({"train.csv": table, "dev.csv": table, "test.csv": table}, "csv")
    assert names(TextReader(str(root))) == ["1", "9", "10"]


def test_other_labels_are_in_alphabetical_order(write: Write) -> None:
    lines = '{"text": "a", "label": true}\n{"text": "b", "label": false}\n'
    root = write({"train.jsonl": lines, "dev.jsonl": lines, "test.jsonl": lines})
    assert names(TextReader(str(root))) == ["false", "true"]


def test_a_folder_per_label(write: Write) -> None:
    files = {
        f"{split}/{label}/{index}_7.txt": f"{label} {split}\nsecond line {index}\n"
        for split in ("train", "test")
        for label in ("pos", "neg")
        for index in range(10)
    } | {"train/unsup/0_0.txt": "unlabelled", "README": "read me", "imdb.vocab": "the"}
    root = write(files)
    loaded = read(TextReader(str(root)))
    assert [len(rows) for rows in loaded.values()] == [18, 2, 20]
    assert loaded["test"][0] == ("neg test\nsecond line 0", "neg")
    single = TextReader(str(root / "train"), test_size=0.5, dev_size=2)
    assert [len(rows) for rows in read(single).values()] == [8, 2, 10]
    separate = TextReader(train=f"{root}/train", test=f"{root}/test")
    assert read(separate) == loaded


def test_one_file_for_everything(write: Write) -> None:
    root = write({"reviews.csv": "text,label\n" + "a,x\nb,y\n" * 50})
    reader = TextReader(str(root / "reviews.csv"), test_size=0.2)
    loaded = read(reader)
    assert [len(rows) for rows in loaded.values()] == [72, 8, 20]
    assert Counter(label for _, label in loaded["test"]) == {"x": 10, "y": 10}
    with pytest.raises(UserError, match=r"reviews\.csv: no test set there; set dataset.test_size"):
        TextReader(str(root / "reviews.csv")).read()


def test_a_file_that_is_named_wins_over_another_of_its_split(write: Write) -> None:
    others = {"dev.csv": CSV, "test.csv": CSV}
    root = write(others | {"train.csv": CSV, "training.csv": CSV.replace("NA", "n/a")})
    with pytest.raises(UserError, match=r"both train\.csv and training\.csv could be the train"):
        TextReader(str(root)).read()
    for name, text in (("train.csv", "NA"), ("training.csv", "n/a")):
        loaded = read(TextReader(str(root / name)))
        assert loaded["train"][1] == (text, "neg")
        assert loaded["test"][1] == ("NA", "neg")
    # of dev, neither is named
    root = write(others | {"train.csv": CSV, "valid.csv": CSV}, folder="more")
    with pytest.raises(UserError, match=r"both dev\.csv and valid\.csv could be the dev set"):
        TextReader(str(root / "train.csv")).read()


def test_what_is_unclear_elsewhere_in_the_folder_does_not_matter(write: Write) -> None:
    mine = {f"mine.{split}.csv": CSV for split in ("train", "dev", "test")}
    theirs = {f"theirs.{name}": CSV for name in ("train.csv", "train.tsv", "test.csv")}
    root = write(mine | theirs | {"dev.csv": CSV, "val.csv": CSV})
    for path in ("mine", "mine.train.csv"):
        assert [len(rows) for rows in read(TextReader(str(root / path))).values()] == [2, 2, 2]
    with pytest.raises(UserError, match=r"holds 2 data sets(?s:.*)/mine\.train\.csv"):
        TextReader(str(root)).read()
    with pytest.raises(UserError, match=r"both theirs\.train\.csv and theirs\.train\.tsv could"):
        TextReader(str(root / "theirs")).read()


def test_a_tilde_is_the_home_folder(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write({f"{split}.csv": CSV for split in ("train", "dev", "test")})
    monkeypatch.setenv("HOME", str(root))
    expected = read(TextReader(str(root)))
    assert read(TextReader("~")) == expected
    paths = {split: f"~/{split}.csv" for split in ("train", "dev", "test")}
    assert read(TextReader(**paths)) == expected
    assert len(TextReader("~").read_file("~/dev.csv")) == 2


def table(labels: list[str], feature: object = None) -> Dataset:
    features = Features({"text": Value("string"), "label": feature or Value("string")})
    return Dataset.from_dict(
        {"text": [f"null {label}" for label in labels], "label": labels}, features=features
    )


def test_parquet_keeps_the_order_of_a_class_label(tmp_path: Path) -> None:
    feature = ClassLabel(names=["world", "sports", "business"])
    data = table(["business", "world", "sports"] * 4, feature)
    (tmp_path / "data").mkdir()
    data.to_parquet(tmp_path / "data" / "train-00000-of-00002.parquet")
    data.to_parquet(tmp_path / "data" / "train-00001-of-00002.parquet")
    data.to_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet")
    data.to_parquet(tmp_path / "data" / "test-00000-of-00001.parquet")
    reader = TextReader(str(tmp_path))
    assert names(reader) == ["world", "sports", "business"]
    loaded = read(reader)
    assert [len(rows) for rows in loaded.values()] == [24, 12, 12]
    assert loaded["test"][0] == ("null business", "business")
    one = TextReader(train=f"{tmp_path}/data/train-00000-of-00002.parquet", test_size=1, dev_size=1)
    assert names(one) == ["world", "sports", "business"]


def test_parquet_written_by_others(tmp_path: Path) -> None:
    rows = pyarrow.table({"body": ["a", "b", "NA"], "y": [0, 1, 1]})
    for split in ("train", "dev", "test"):
        parquet.write_table(rows, tmp_path / f"{split}.parquet")
    reader = TextReader(str(tmp_path), text_column="body", label_column="y")
    assert read(reader)["dev"] == [("a", "0"), ("b", "1"), ("NA", "1")]
    with pytest.raises(UserError, match=r"train\.parquet: no column 'text'.*'body', 'y'"):
        TextReader(str(tmp_path)).read()
    (tmp_path / "test.parquet").write_bytes(b"<html>")
    with pytest.raises(UserError, match=r"test\.parquet: cannot be read"):
        read(reader)


def test_saved_to_disk_with_splits_of_other_names(tmp_path: Path) -> None:
    splits = {"fit": table(["a", "b"] * 5), "held_out": table(["b"]), "test": table(["?"])}
    DatasetDict(splits).save_to_disk(tmp_path / "stored")
    path = str(tmp_path / "stored")
    reader = TextReader(path, split_names={"train": "fit", "test": "held_out"}, dev_size=2)
    assert [len(rows) for rows in read(reader).values()] == [8, 2, 1]
    with pytest.raises(UserError, match="no split 'x'; the data set has 'fit', 'held_out', 'test'"):
        TextReader(path, split_names={"train": "x"}).read()
    with pytest.raises(UserError, match="no training set"):
        TextReader(path).read()


def test_hidden_labels_of_a_stored_test_set(tmp_path: Path) -> None:
    feature = ClassLabel(names=["neg", "pos"])
    splits = {
        "train": table([0, 1], feature),
        "validation": table([0, 1], feature),
        "test": table([-1], feature),
    }
    DatasetDict(splits).save_to_disk(tmp_path / "glue")
    with pytest.raises(UserError, match=r"glue\[test\], row 1: the label is -1, which stands for"):
        TextReader(str(tmp_path / "glue")).read()


def faulty(test: str | bytes) -> dict[str, str | bytes]:
    return {"train.csv": CSV, "dev.csv": CSV, "test.csv": test}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (faulty("text,label\na,pos\nb,great\n"), r"test\.csv:3: the label 'great' of this test ex"),
        (faulty("text,label\na,pos\nb,-1\n"), r"test\.csv:3: the label is -1"),
        (faulty("text,label\na,pos\nb,\n"), r"test\.csv:3: expected a label, found ''"),
        (faulty("text,label\na,pos\n ,neg\n"), r"test\.csv:3: the text is empty.*'drop'"),
        (faulty("text|label\na|pos\n"), r"test\.csv: no column 'text' .*Set dataset.text_column"),
        (faulty("text,y\na,pos\n"), r"test\.csv: no column 'label'.*Set dataset.label_column"),
        (faulty("text,label\n"), r"test\.csv: no test examples in it"),
        (faulty("text,label\ncaf\xe9,pos\n".encode("latin-1")), r"test\.csv:2: byte 0xe9 is not"),
        ({"train.csv": "", "test.csv": CSV}, r"train\.csv: empty; expected a header row"),
        ({"train.csv": "text,label\na,x\nb,x\n", "test.csv": CSV}, "every training example has"),
        ({"train.csv": CSV, "train.tsv": CSV, "test.csv": CSV}, "could be the train set"),
        ({"a-train.csv": CSV, "b-train.csv": CSV}, "holds 2 data sets"),
        ({"notes.md": "hello"}, "no data set found there; expected train, dev and test as .csv"),
        ({"train.jsonl": '{"text": 1, "label": 1}\n'}, r"train\.jsonl:1: 'text' is not text: 1"),
        ({"train.jsonl": '{"text": "a", "label": []}\n'}, r"train\.jsonl:1: expected a label"),
        ({"train.jsonl": '{"text": null, "label": 1}\n'}, r"train\.jsonl:1: the text is empty"),
    ],
)
def test_faults_name_file_and_line(write: Write, files: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TextReader(str(write(files)), dev_size=None).read()


def test_paths_that_are_not_there(write: Write) -> None:
    root = write({"train.csv": CSV, "odd.bin": "x"})
    for path in ("gone.csv", "gone/again"):
        with pytest.raises(UserError, match=r"gone.*: no such file or folder\. Set dataset\.path"):
            TextReader(str(root / path)).read()
    with pytest.raises(UserError, match=r"gone\.csv: cannot be read \(No such file"):
        TextReader(train=f"{root}/train.csv", test=f"{root}/gone.csv").read()
    with pytest.raises(UserError, match=r"odd\.bin: expected train, dev and test as \.csv"):
        TextReader(train=f"{root}/odd.bin").read()
    with pytest.raises(
        UserError, match=r"dataset\.split_names and config_name are for Hub and stored"
    ):
        TextReader(str(root), config_name="sst2").read()


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({}, ["path"]),
        ({"path": "a", "train": "b"}, ["train"]),
        ({"test": "b"}, ["path"]),
        ({"path": "a", "split_names": {"validation": "x"}}, ["split_names"]),
        ({"path": "a", "column_names": ["a", "label"]}, ["text_column"]),
        ({"path": "a", "text_column": "a", "label_column": "a"}, ["label_column"]),
        (
            {"path": "a", "max_train_examples": 0, "test_size": -1},
            ["max_train_examples", "test_size"],
        ),
        ({"path": "a", "dev_size": True}, ["dev_size"]),
        ({"path": "a", "encoding": "utf-9"}, ["encoding"]),
        ({"path": "a", "empty_text": "skip"}, ["empty_text"]),
        ({"path": "a", "lower_case": True}, ["lower_case"]),
    ],
)
def test_faults_of_the_config_are_found_by_the_check(options: dict, paths: list[str]) -> None:
    problems = check(DatasetReader, {"type": "text", **options})
    assert [problem.path for problem in problems] == paths


def test_class_folders_may_be_named_like_splits(write: Write) -> None:
    files = {
        f"{label}/{n}.txt": f"{label} {n}" for label in ("car", "my-train", "train") for n in "12"
    }
    reader = TextReader(str(write(files)), test_size=1, dev_size=1)
    assert names(reader) == ["car", "my-train", "train"]


def test_names_in_capitals(write: Write, tmp_path: Path) -> None:
    files = {
        "TRAIN.CSV.GZ": gzip.compress(CSV.encode()),
        "Dev.csv": CSV,
        "Test.TSV": "text\tlabel\na\tpos\n",
    }
    assert len(read(TextReader(str(write(files))))["test"]) > 0
    (tmp_path / "parquet").mkdir()
    rows = pyarrow.table({"text": ["a", "b"], "label": ["x", "y"]})
    for split in ("TRAIN", "DEV", "TEST"):
        parquet.write_table(rows, tmp_path / "parquet" / f"{split}.PARQUET")
    assert read(TextReader(f"{tmp_path}/parquet"))["dev"] == [("a", "x"), ("b", "y")]


def test_folders_that_hold_themselves_and_devices(write: Write) -> None:
    root = write({f"{label}/{n}.txt": f"{label} {n}" for label in "ab" for n in "123"})
    (root / "a" / "again").symlink_to(root)
    os.mkfifo(root / "b" / "pipe")
    loaded = read(TextReader(str(root), test_size=1, dev_size=1))
    assert sum(map(len, loaded.values())) == 6


def test_texts_of_other_names_are_read_or_counted(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"1.TXT": b"one", "2.md": b"two", "3": b"three", "4.txt.gz": gzip.compress(b"four")}
    texts |= {"more/deep/5.text": b"five", "6.html": b"left out", ".hidden": b"never"}
    root = write({f"{label}/{name}": text for label in "ab" for name, text in texts.items()})
    reader = TextReader(str(root), test_size=2, dev_size=2)
    with caplog.at_level(logging.WARNING):
        loaded = read(reader)
    found = sorted(text for rows in loaded.values() for text, _ in rows)
    assert found == sorted(["one", "two", "three", "four", "five"] * 2)
    assert "2 files in its folders are no texts by their names ('.html 2')" in caplog.text
    assert "they are left out, 10 are read" in caplog.text
    root = write(
        {f"{label}/{n}.html": "x" for label in "ab" for n in "12"} | {"a/1.txt": "x"}, "web"
    )
    with pytest.raises(UserError, match=r"4 files in its folders are no texts .* Convert them"):
        TextReader(str(root), test_size=1).read()


def test_labels_stay_as_they_are_written(write: Write) -> None:
    for labels in (["0101", "0201"], ["+1", "007", "1", "7"], ["1.0", "1.50"]):
        rows = "text,label\n" + "".join(f"t{n},{label}\n" for n, label in enumerate(labels * 3))
        root = write({f"{split}.csv": rows for split in ("train", "dev", "test")}, labels[0])
        assert names(TextReader(str(root))) == labels


@pytest.mark.parametrize("separator", [";", "\t"])
def test_separators_are_found(write: Write, separator: str) -> None:
    quoted = '"good, ""really""; yes"' if separator == ";" else "good; really"
    rows = f"{quoted}{separator}pos\nbad{separator}neg\n"
    header = f"text{separator}label\n"
    root = write({f"{split}.csv": header + rows for split in ("train", "dev", "test")})
    first = 'good, "really"; yes' if separator == ";" else quoted
    expected = [(first, "pos"), ("bad", "neg")]
    assert read(TextReader(str(root)))["dev"] == expected
    root = write({f"{split}.csv": rows for split in ("train", "dev", "test")}, "bare")
    assert read(TextReader(str(root), column_names=["text", "label"]))["dev"] == expected


def test_columns_that_are_not_used_may_be_anything(tmp_path: Path, write: Write) -> None:
    rows = "v1,v2,,,\n" + "pos,good,,,\nneg,bad,1,x,\n" * 3
    root = write({f"{split}.csv": rows for split in ("train", "dev", "test")})
    reader = TextReader(str(root), text_column="v2", label_column="v1")
    assert read(reader)["dev"][:2] == [("good", "pos"), ("bad", "neg")]
    maps = pyarrow.array([[("a", 1)]] * 4, pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    columns = {"text": ["a", "b"] * 2, "label": ["x", "y"] * 2, "map": maps, "list": [[1]] * 4}
    (tmp_path / "parquet").mkdir()
    for split in ("train", "dev", "test"):
        parquet.write_table(pyarrow.table(columns), tmp_path / "parquet" / f"{split}.parquet")
    assert read(TextReader(f"{tmp_path}/parquet"))["dev"] == [("a", "x"), ("b", "y")] * 2


SHARDS = [
    ({"text": ["a", "b"], "label": pyarrow.array([1, 2], pyarrow.int8()), "x": pyarrow.nulls(2)}),
    ({"x": ["?"], "label": pyarrow.array([1], pyarrow.int64()), "text": ["c"]}),
    ({"label": pyarrow.array([2.0, 1.0]), "text": pyarrow.array(["d", "e"]).dictionary_encode()}),
]


def test_shards_may_differ_in_types_and_order(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        for n, columns in enumerate(SHARDS):
            file = tmp_path / f"{split}-0000{n}-of-00003.parquet"
            parquet.write_table(pyarrow.table(columns), file)
    expected = [("a", "1"), ("b", "2"), ("c", "1"), ("d", "2"), ("e", "1")]
    assert read(TextReader(str(tmp_path)))["test"] == expected
    parquet.write_table(pyarrow.table({"text": ["x"], "label": [pyarrow.scalar(None)]}), file)
    with pytest.raises(UserError, match=r"00002-of-00003\.parquet, row 1: expected a label"):
        read(TextReader(str(tmp_path)))
    parquet.write_table(pyarrow.table({"text": ["x"], "label": ["y"]}), file)
    content = file.read_bytes()
    file.write_bytes(content[:4] + bytes(20) + content[24:])
    with pytest.raises(UserError, match=r"^\S*00002-of-00003\.parquet: cannot be read"):
        read(TextReader(str(tmp_path)))
    parquet.write_table(pyarrow.table({"text": ["x"]}), file)
    with pytest.raises(UserError, match=r"00002-of-00003\.parquet: expected one column 'label'"):
        read(TextReader(str(tmp_path)))
    file.unlink()
    with pytest.raises(UserError, match="the test set is in 3 files by their names, and 2 of them"):
        read(TextReader(str(tmp_path)))


@pytest.mark.parametrize(
    ("stored", "numbers", "expected"),
    [
        (["01", "02"], [1, 0], ["01", "02"]),
        ([" pos ", "neg"], [1, 0], ["pos", "neg"]),
        (["neg", "pos"], [1, -100], r"dev\.parquet, row 2: the label is -100"),
        (
            ["neg", "pos"],
            [1, 2],
            r"dev\.parquet, row 2: the label is number 2, but the classes are",
        ),
        (["neg", "pos"], [1, None], r"dev\.parquet, row 2: expected a label"),
        (["", "pos"], [1, 0], r"dev\.parquet, row 2: expected a label"),
    ],
)
def test_odd_class_labels_in_parquet(
    stored: list[str], numbers: list[int], expected: list[str] | str, tmp_path: Path
) -> None:
    features = {"text": {"dtype": "string", "_type": "Value"}}
    features["label"] = {"names": stored, "_type": "ClassLabel"}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    rows = pyarrow.table({"text": ["a", "b"], "label": pyarrow.array(numbers, pyarrow.int64())})
    for split in ("train", "dev", "test"):
        parquet.write_table(rows.replace_schema_metadata(metadata), tmp_path / f"{split}.parquet")
    reader = TextReader(str(tmp_path))
    if isinstance(expected, list):
        assert names(reader) == expected
    else:
        with pytest.raises(UserError, match=expected.replace("dev", "train")):
            reader.read()


@pytest.mark.parametrize("kind", ["words", "text", "deep", "list"])
def test_class_labels_that_other_programs_left_are_none(kind: str, tmp_path: Path) -> None:
    described = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    features = {"words": described, "text": {"text": described["label"]}, "list": [1]}.get(kind)
    note = "[" * 10**5 if kind == "deep" else json.dumps({"info": {"features": features}})
    rows = pyarrow.table({"text": ["a", "b"], "label": ["pos", "other"]})
    rows = rows.replace_schema_metadata({"huggingface": note})
    for split in ("train", "dev", "test"):
        parquet.write_table(rows, tmp_path / f"{split}.parquet")
    assert read(TextReader(str(tmp_path)))["test"] == [("a", "pos"), ("b", "other")]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("text", [1, 2], "'text' is not text, but int64"),
        ("text", [[1], [2]], "'text' is not text, but list"),
        ("text", [b"a", b"b"], "'text' is not text, but binary"),
        ("label", [[1], [2]], "'label': expected labels .* found list"),
        ("label", [float("nan"), 1.0], "row 1: expected a label, found ''"),
    ],
)
def test_columns_of_another_type(column: str, values: list, message: str, tmp_path: Path) -> None:
    columns: dict[str, list] = {"text": ["a", "b"], "label": ["x", "y"], column: values}
    parquet.write_table(pyarrow.table(columns), tmp_path / "train.parquet")
    with pytest.raises(UserError, match=message):
        TextReader(str(tmp_path), test_size=1).read()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a", "label": ' + "[" * 10**5, "expected one JSON object a line, found '{"),
        ('{"text": "a", "text": "b", "label": 1}', "key 'text' is given twice"),
        ('{"text": "a", "label": NaN}', "expected a label"),
        ('{"text": "\\ud800", "label": 1}', "half of a surrogate pair"),
        ('{"text": "a", "label": {"b": "' + "c" * 3_000_000 + '"}}', "expected a label"),
    ],
)
def test_faulty_json_lines(write: Write, line: str, message: str) -> None:
    root = write({"train.jsonl": '{"text": "a", "label": 1}\n' + line})
    with pytest.raises(UserError, match=rf"train\.jsonl:2: .*{message}") as error:
        TextReader(str(root), test_size=1).read()
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("path", ["/", "//", "/.", "/tmp/..", "", "a\0b", "\ud800", "x" * 5000])
def test_paths_that_cannot_be(path: str) -> None:
    problems = check(DatasetReader, {"type": "text", "path": path})
    if problems:
        assert [problem.path for problem in problems] == ["path"]
    else:
        with pytest.raises(UserError, match="cannot be read"):
            TextReader(path).read()


def test_splits_that_are_too_small_do_not_blame_the_data(write: Write) -> None:
    rows = "text,label\n" + "".join(f"t,c{n}\n" for n in range(6)) + "t,x\nt,x\n"
    root = write({"train.csv": rows})
    with pytest.raises(UserError, match=r"test_size: 0\.5 takes every example of 3 of the classes"):
        TextReader(str(root), test_size=0.5).read()


def test_a_subset_that_lost_a_class_names_it(write: Write) -> None:
    rows = "text,label\n" + "t,x\nt,y\n" * 20 + "t,rare\n"
    root = write({f"{split}.csv": rows for split in ("train", "dev", "test")})
    message = r"4 examples have none of the class 'rare', which dev .* one of every class are (\d+)"
    with pytest.raises(TrainingFailed, match=message) as error:
        TextReader(str(root), max_train_examples=4).read()
    fewest = int(re.search(message, str(error.value))[1])  # type: ignore[index]
    assert len(TextReader(str(root), max_train_examples=fewest).read()["train"]) == fewest
    with pytest.raises(TrainingFailed):
        TextReader(str(root), max_train_examples=fewest - 1).read()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_evaluating_needs_a_test_set_alone(kind: str, tmp_path: Path) -> None:
    rows = table(["b", "a", "b"])
    folder = tmp_path / "new"
    folder.mkdir()
    (rows.to_csv if kind == "csv" else rows.to_parquet)(folder / f"test.{kind}")
    # as a run's config has them
    reader = TextReader(str(folder), dev_size=0.1, test_size=0.2)
    found = reader.read_test(["a", "b"])
    assert found["text"][:] == ["null b", "null a", "null b"]
    assert found["label"][:] == [1, 0, 1]
    with pytest.raises(UserError, match=r"the label 'b' is not a class of the model"):
        reader.read_test(["a", "c"])
    with pytest.raises(UserError, match="no training set; found test"):
        reader.read()
    (rows.to_csv if kind == "csv" else rows.to_parquet)(folder / f"train.{kind}")
    assert len(reader.read_test()) == 3
    (folder / f"test.{kind}").unlink()
    assert len(reader.read_test(["a", "b"])) == 1
    with pytest.raises(UserError, match=r"no test set there; set dataset\.test_size"):
        TextReader(str(folder)).read_test()


def test_labels_that_only_test_has(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    test = "text,label\na,odd\nb,pos\nc,neg\nd,7\n"
    root = str(write({"train.csv": CSV, "dev.csv": CSV, "test.csv": test}))
    with pytest.raises(
        UserError, match=r"(?s)test\.csv:5: the label '7'.*test\.csv:2: the label 'o"
    ):
        TextReader(root).read()
    reader = TextReader(root, labels_only_in_test="count")
    data = reader.read()
    assert data["train"].features["label"].names == ["neg", "pos"]
    assert data["test"].features["label"].names == ["neg", "pos", "7", "odd"]
    assert data["test"]["label"][:] == [3, 1, 0, 2]
    assert "2 examples have labels that training has not ('7', 'odd'); they count" in caplog.text
    assert reader.read_test(["neg", "pos"])["label"][:] == [3, 1, 0, 2]
    # a dev set chooses the epoch, and one that shares no label with training is another task's
    root = str(write({"train.csv": CSV, "dev.csv": test, "test.csv": CSV}, "dev"))
    with pytest.raises(UserError, match=r"dev\.csv:2: the label 'odd' of this dev"):
        TextReader(root, labels_only_in_test="count").read()
    root = str(write({"train.csv": CSV, "dev.csv": CSV, "test.csv": "text,label\na,x\n"}, "other"))
    with pytest.raises(UserError, match="the label 'x' is not a class"):
        TextReader(root, labels_only_in_test="count").read()


def test_classes_without_training_texts_may_be_kept(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    held_out = "text,label\na,odd\nb,pos\nc,neg\n"
    root = str(write({"train.csv": CSV, "dev.csv": held_out, "test.csv": held_out}))
    with pytest.raises(UserError, match=r"or set dataset\.unseen_classes to 'keep'"):
        TextReader(root).read()
    caplog.set_level("INFO")
    data = TextReader(root, unseen_classes="keep", max_train_examples=2).read()
    for split in ("train", "dev", "test"):
        assert data[split].features["label"].names == ["neg", "odd", "pos"]
    assert data["dev"]["label"][:] == [1, 2, 0]
    assert "1 of 3 dev texts are of classes without training texts: 'odd'" in caplog.text


def test_all_faults_at_once(write: Write) -> None:
    files = {
        "train.csv": "text,y\na,b\n",
        "dev.csv": "t,y\na,b\n",
        "test.csv": "text,label\n,b\n,c\n",
    }
    with pytest.raises(UserError) as error:
        TextReader(str(write(files))).read()
    train, dev, test = str(error.value).splitlines()
    assert "no column 'label'; the columns are 'text', 'y'. Set dataset.label_column to" in train
    assert "no column 'text' and no column 'label';" in dev
    assert "Set dataset.text_column and dataset.label_column to one of them." in dev
    assert "test.csv:2: the text is empty (and 1 more);" in test


def test_a_run_beside_the_data_is_no_data_set(write: Write) -> None:
    files = {f"{split}.csv": CSV for split in ("train", "dev", "test")}
    root = write(files | {"run/config.json": "{}", "run/epochs.jsonl": "{}", "more.csv": CSV})
    assert len(read(TextReader(str(root)))["train"]) == 2
    # but what is named is taken
    assert len(TextReader(str(root / "more.csv")).sources()) == 1
