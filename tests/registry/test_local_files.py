"""Relative paths in a config: from the current folder, then from the config's own."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin.registry import ConfigError, load_config, missing_files
from sopa_plugin.train import main as train
from sopa_plugin.training import Experiment


def written(folder: Path, data: str = "topics.csv", vectors: str = "my.vec") -> Path:
    config: dict[str, Any] = {
        "dataset": {"type": "text", "path": data},
        "model": {
            "embedder": {"type": "static", "vectors": vectors},
            "encoder": {"type": "sopa", "patterns": {"2": 2}},
        },
    }
    folder.mkdir(exist_ok=True)
    (folder / "mine.json").write_text(json.dumps(config))
    return folder / "mine.json"


def test_the_current_folder_goes_before_the_config_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = written(tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs" / "topics.csv").write_text("text,label\n")
    (tmp_path / "configs" / "my.vec").write_text("a 1\n")
    (tmp_path / "my.vec").write_text("a 2\n")
    with caplog.at_level(logging.INFO, "sopa_plugin"):
        loaded = load_config("configs/mine.json", kind=Experiment)
    assert loaded["dataset"]["path"] == "configs/topics.csv"
    assert loaded["model"]["embedder"]["vectors"] == "my.vec"
    (line,) = caplog.messages
    assert line.startswith("dataset.path: no topics.csv in the current folder; found as configs/")
    # what is set by hand is looked for in the same way
    assert config.samefile("configs/mine.json")
    overridden = load_config("configs/mine.json", ["dataset.path=mine.json"], Experiment)
    assert overridden["dataset"]["path"] == "configs/mine.json"


def test_the_embedded_sample_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "fixtures/text/csv", "fixtures/vectors.txt")
    loaded = load_config("mine.json", kind=Experiment)
    assert Path(loaded["dataset"]["path"], "train.csv").is_file()
    assert Path(loaded["model"]["embedder"]["vectors"]).is_file()


def test_validating_looks_for_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    config = written(tmp_path, "topics.csv", "vectors/my.vec")
    (tmp_path / "topic.csv").write_text("text,label\n")
    with pytest.raises(ConfigError) as error:
        train([str(config), "--validate"])
    data, vectors = str(error.value).split("model.embedder.vectors: ")
    assert "dataset.path: no such file or folder" in data
    assert "did you mean 'topic.csv'?" in data
    assert vectors.startswith("no such file or folder")
    # not what the Hub may have, by a name that is none of a file
    written(tmp_path, "SetFit/sst2", "hf://some/where/vectors.vec")
    assert missing_files(Experiment, load_config(config, kind=Experiment)) == []
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "my.vec").write_text("a 1\n")
    written(tmp_path, "topic.csv", "vectors/my.vec")
    train([str(config), "--validate"])
    assert capsys.readouterr().out == f"{config}: no problems found\n"
