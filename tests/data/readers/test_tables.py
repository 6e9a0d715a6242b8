from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from sopa_plugin.data.readers import RocReader, SstReader
from sopa_plugin.data.readers.tables import load_hub
from sopa_plugin.errors import UserError

PROGRAM = """
import sys
from sopa_plugin.data.readers import SstReader
from sopa_plugin.errors import UserError
try:
    SstReader("nobody/no-such-data-set").read()
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_no_hub_is_one_clear_error(variable: str, tmp_path: Path) -> None:
    """In a process of its own: the offline variables are read at import."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {variable: "1", "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    message = done.stdout.strip()
    assert message.startswith("nobody/no-such-data-set: no such file or folder, and no data set")
    assert f"{variable} is set, so the Hub was not asked." in message
    assert message.endswith("Set SOPA_SST (dataset.path) to a local file or folder.")
    assert "\n" not in message


def test_what_cannot_be_an_id_is_not_asked_for(tmp_path: Path) -> None:
    for path in ("/no/such/folder", str(tmp_path / "gone"), "../gone", "a/b/c"):
        with pytest.raises(UserError, match=r"no such file or folder\. Set SOPA_X to a file"):
            load_hub(path, None, "SOPA_X to a file")


def test_a_path_beside_existing_files_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixtures").mkdir()
    with pytest.raises(UserError, match=r"fixtures/sstt: no such file or folder\. Set SOPA_SST"):
        SstReader("fixtures/sstt").read()


def five_classes() -> dict[str, list]:
    return {"text": ["a b", "c", "d", "e"], "label": [0, 4, 2, 1], "label_text": ["x"] * 4}


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A local builder folder under the name of a Hub id, which `load_dataset` reads like one."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reviews"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        Dataset.from_dict(five_classes()).to_parquet(folder / f"{split}.parquet")
    return "reviews"


def test_load_dataset_gives_its_splits(builder: str) -> None:
    tables = load_hub(builder, None, "")
    assert list(tables) == ["train", "validation", "test"]
    assert list(tables["test"].columns) == ["text", "label", "label_text"]
    text, label = tables["test"].read(["text"], ["label"])
    assert text.to_pylist() == ["a b", "c", "d", "e"]
    assert label.to_pylist() == ["0", "4", "2", "1"]
    with pytest.raises(UserError, match="no data set could be had under this name"):
        load_hub(builder, "no-such-config", "it")


def test_sst_from_a_data_set_of_the_hub(builder: str) -> None:
    fine = SstReader(builder, granularity="fine").read()
    assert list(fine["dev"]["label"]) == [0, 4, 2, 1]
    binary = SstReader(builder).read()
    assert binary["test"]["text"][:] == ["a b", "c", "e"]
    assert binary["test"]["label"][:] == [0, 1, 0]


def test_hidden_labels_of_a_data_set_of_the_hub(tmp_path: Path) -> None:
    good = Dataset.from_dict({"sentence": ["a", "b"], "label": [0, 1]})
    hidden = Dataset.from_dict({"sentence": ["a", "b"], "label": [-1, -1]})
    splits = {"train": good, "validation": good, "test": hidden}
    DatasetDict(splits).save_to_disk(tmp_path / "sst2")
    with pytest.raises(UserError, match=r"sst2\[test\], row 1: the label is -1.*SetFit/sst2"):
        SstReader(str(tmp_path / "sst2")).read()


def test_stored_and_plain_files_in_one_folder(builder: str) -> None:
    Path(builder, "train.txt").write_text("1 a\n0 b\n")
    with pytest.raises(
        UserError, match=r"both train\.parquet and train\.txt could be the train set"
    ):
        SstReader(builder).read()


def test_stories_as_the_hub_names_their_columns(tmp_path: Path) -> None:
    stories = Dataset.from_dict(
        {
            "story_id": ["x", "y"] * 5,
            "sentence_quiz1": ["He won.", "She left."] * 5,
            "sentence_quiz2": ["He lost.", "She stayed."] * 5,
            "answer_right_ending": [1, 2] * 5,
        }
    )
    DatasetDict({"validation": stories, "test": stories}).save_to_disk(tmp_path / "roc")
    loaded = RocReader(str(tmp_path / "roc")).read()
    assert [len(data) for data in loaded.values()] == [18, 2, 20]
    assert loaded["test"][:4]["label"] == [1, 0, 0, 1]
