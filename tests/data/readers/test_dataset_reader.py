"""What all readers share, seen through the `text` and `sst` readers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin.data.readers import DatasetReader, SstReader, TextReader
from sopa_plugin.errors import UserError
from sopa_plugin.registry import check, fill_defaults

Write = Callable[..., Path]
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(write: Write) -> str:
    header = "text,label\n"
    train = "".join(f"  Text {n}\tOf\u00a0Class  X ,{'x' if n % 4 else 'y'}\n" for n in range(200))
    return str(write({"train.csv": header + train, "test.csv": header + "A b,x\nText 1,y\n"}))


def texts(reader: DatasetReader, split: str = "train") -> list[str]:
    return list(reader.read()[split]["text"])


def test_every_reader_is_registered_with_the_shared_options() -> None:
    names = {"amazon", "roc", "sst", "text"}
    assert names <= set(DatasetReader.list_available())  # other tests register more
    for name in names:
        options = {"lowercase": True, "max_tokens": 3, "max_train_examples": 4, "dev_size": 0.5}
        options |= {"subsample_seed": 5, "test_size": 6, "split_seed": 7, "encoding": "latin-1"}
        reader = DatasetReader.from_params(
            {"type": name, "path": "x", "empty_text": "drop", **options}
        )
        assert {key: getattr(reader, key) for key in options} == options
        assert reader.empty_text == "drop"


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("amazon", {"empty_text": "drop"}),
        ("roc", {"dev_size": 0.1}),
        ("sst", {"granularity": "binary"}),
        ("text", {"text_column": "text", "train": None}),
    ],
)
def test_the_shared_options_in_a_config(name: str, own: dict[str, Any]) -> None:
    filled = fill_defaults(DatasetReader, {"type": name, "path": "x"})
    shared = {"lowercase": False, "max_tokens": None, "max_train_examples": None}
    shared |= {"subsample_seed": 0, "dev_size": None, "test_size": None, "split_seed": 0}
    shared |= {"encoding": "utf-8", "empty_text": "error"}
    assert filled | shared | own == filled
    config = {"type": name, "path": "x", "max_tokens": "3", "empty_text": "dorp", "lower_case": 1}
    found = {each.path: each.hint for each in check(DatasetReader, config)}
    assert found == {
        "max_tokens": "remove the quotes",
        "empty_text": "did you mean 'drop'?",
        "lower_case": "did you mean 'lowercase'?",
    }


def test_texts_are_read_as_written_but_for_blanks_at_the_ends(folder: str) -> None:
    assert "Text 1\tOf\u00a0Class  X" in texts(TextReader(folder))
    # case and length are the tokenizer's
    assert "Text 1\tOf\u00a0Class  X" in texts(TextReader(folder, lowercase=True, max_tokens=1))


def test_training_sets_of_several_sizes(folder: str) -> None:
    small = TextReader(folder, max_train_examples=20, subsample_seed=3).read()
    large = TextReader(folder, max_train_examples=60, subsample_seed=3).read()
    other = TextReader(folder, max_train_examples=20, subsample_seed=4).read()
    whole = TextReader(folder).read()
    assert Counter(small["train"]["label"]) == {0: 15, 1: 5}
    assert set(small["train"]["text"]) < set(large["train"]["text"]) < set(whole["train"]["text"])
    assert set(small["train"]["text"]) != set(other["train"]["text"])
    for loaded in (small, large, other):  # the held-out sets remain the same
        for split in ("dev", "test"):
            assert loaded[split][:] == whole[split][:]
        assert loaded["train"].features == whole["train"].features


def test_dev_by_share_or_count(folder: str) -> None:
    assert len(texts(TextReader(folder), "dev")) == 20
    assert len(texts(TextReader(folder, dev_size=0.25), "dev")) == 50
    loaded = TextReader(folder, dev_size=12).read()
    assert Counter(loaded["dev"]["label"]) == {0: 9, 1: 3}
    assert not set(loaded["dev"]["text"]) & set(loaded["train"]["text"])
    assert set(texts(TextReader(folder, dev_size=12, split_seed=1), "dev")) != set(
        loaded["dev"]["text"]
    )
    with pytest.raises(UserError, match="dev_size: 200 leaves nothing to train on"):
        TextReader(folder, dev_size=200).read()


def test_sizes_are_refused_where_the_data_have_the_set(folder: str) -> None:
    with pytest.raises(UserError, match=r"test_size: the data have a test set of their own.*csv"):
        TextReader(folder, test_size=10).read()


def test_a_test_set_can_be_done_without(write: Write) -> None:
    rows = "text,label\n" + "a,x\nb,y\n" * 10
    file = str(write({"all.csv": rows}) / "all.csv")
    loaded = TextReader(train=file, dev_size=4, test_size=0, unseen_classes="keep").read()
    assert {split: len(each) for split, each in loaded.items()} == {"train": 16, "dev": 4}
    with pytest.raises(UserError, match="no test set there"):
        TextReader(train=file, test_size=0).read_test()


def test_empty_texts_can_be_left_out(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rows = "text,label\na,x\n,y\nb,y\n"
    root = write({"train.csv": rows, "dev.csv": rows, "test.csv": rows})
    with pytest.raises(UserError, match=r"train\.csv:3: the text is empty"):
        TextReader(str(root)).read()
    assert texts(TextReader(str(root), empty_text="drop")) == ["a", "b"]
    assert "train.csv: left out 1 examples with an empty text" in caplog.text


def test_other_encodings(write: Write) -> None:
    rows = "text,label\ncafé,x\nthé,y\n".encode("latin-1")
    root = write({"train.csv": rows, "dev.csv": rows, "test.csv": rows})
    assert texts(TextReader(str(root), encoding="latin-1")) == ["café", "thé"]


def test_changed_files_and_options_are_seen(folder: str) -> None:
    before = texts(TextReader(folder), "test")
    path = Path(folder, "test.csv")
    content = path.read_text().replace("A b", "C d")  # same size, maybe the same second
    path.write_text(content)
    assert before == ["A b", "Text 1"]
    assert texts(TextReader(folder), "test") == ["C d", "Text 1"]
    swapped = TextReader(text_column="label", label_column="text", train=str(path), test_size=1)
    with pytest.raises(UserError, match="test_size: 1 takes every example of 1"):
        swapped.read()


def test_jobs_at_once(folder: str, tmp_path: Path) -> None:
    """They share a cache; and one where nothing can be written does without."""
    program = (
        "import sys; from sopa_plugin.data.readers import TextReader; "
        "print(TextReader(sys.argv[1]).read()['test'][0]['text'])"
    )
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", program, folder],
            cwd=REPOSITORY,
            env=os.environ | {"HF_DATASETS_CACHE": str(cache)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for cache in (tmp_path / "cache", tmp_path / "cache", "/proc/nothing")
    ]
    assert [job.communicate()[0].strip() for job in jobs] == ["A b"] * 3


def test_one_file_by_the_class_names_of_a_model(folder: str) -> None:
    reader = TextReader(folder)
    file = Path(folder, "test.csv")
    assert reader.read_file(file)["label"][:] == [0, 1]
    swapped = reader.read_file(file, class_names=["y", "x"])
    assert swapped["label"][:] == [1, 0]
    assert swapped.features["label"].names == ["y", "x"]
    with pytest.raises(UserError, match=r"test\.csv:3: the label 'y' is not a class of the model"):
        reader.read_file(file, class_names=["x", "z"])


def test_embedded_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert SstReader("fixtures/sst").is_embedded_sample
    monkeypatch.chdir(tmp_path)
    assert SstReader(str(REPOSITORY / "fixtures" / "sst")).is_embedded_sample
    assert not SstReader("fixtures/sst").is_embedded_sample
    assert not SstReader("SetFit/sst2").is_embedded_sample
    assert SstReader("SetFit/sst2").describe() == (
        "Stanford Sentiment Treebank sentences from SetFit/sst2"
    )


def test_a_check_reads_nothing_and_imports_no_datasets() -> None:
    program = (
        "import sys; from sopa_plugin.data.readers import DatasetReader; "
        "from sopa_plugin.registry import check; "
        "check(DatasetReader, {'type': 'text', 'path': 'nowhere'}); "
        "print([name for name in ('datasets', 'transformers', 'torch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_memory_is_mapped_from_the_cache(folder: str) -> None:
    """Reading a large file again takes no memory for its texts."""
    program = (
        "import resource, sys; from sopa_plugin.data.readers import TextReader; "
        "import datasets, pyarrow; held = pyarrow.total_allocated_bytes(); "
        "data = TextReader(sys.argv[1], test_size=0.1).read(); "
        "print(pyarrow.total_allocated_bytes() - held)"
    )
    file = Path(folder) / "large.csv"
    rows = "".join(f"{'word ' * 200}{n},{'xy'[n % 2]}\n" for n in range(5_000))
    file.write_text("text,label\n" + rows)
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < file.stat().st_size / 4
