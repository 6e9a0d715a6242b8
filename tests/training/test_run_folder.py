"""When a folder may be written to, and when it is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.training.run_folder import RunFolder, write_file

CONFIG = {"dataset": {"type": "sst"}, "model": {}, "trainer": {"lr": 1}}


def test_a_new_folder_appears_whole(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a" / "b", CONFIG)
    assert not (tmp_path / "a").exists()
    run.start()
    assert json.loads((tmp_path / "a" / "b" / "experiment.json").read_text()) == CONFIG
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["b"]


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    RunFolder(tmp_path / "run", CONFIG).start()
    assert (tmp_path / "run" / "experiment.json").is_file()


def test_a_run_is_replaced_by_force_alone(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", CONFIG).start()
    (tmp_path / "run" / "metrics.json").write_text("{}")
    with pytest.raises(UserError, match="exists already; choose another with -s"):
        RunFolder(tmp_path / "run", CONFIG)
    forced = RunFolder(tmp_path / "run", CONFIG, force=True)
    # nothing is lost before the new run begins
    assert (tmp_path / "run" / "metrics.json").is_file()
    forced.start()
    assert {each.name for each in (tmp_path / "run").iterdir()} == {"experiment.json", "train.log"}
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("content", [None, "{}", "no json", '{"dataset": 1}'])
def test_force_deletes_nothing_but_runs(tmp_path: Path, content: str | None) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("...")
    if content is not None:
        (precious / "experiment.json").write_text(content)
    for options in ({"force": True}, {"recover": True}, {}):
        with pytest.raises(UserError):
            RunFolder(precious, CONFIG, **options)
    with pytest.raises(UserError, match="--force does not delete it"):
        RunFolder(precious, CONFIG, force=True)
    assert (precious / "thesis.tex").read_text() == "..."


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("text")
    for options in ({"force": True}, {"recover": True}, {}):
        with pytest.raises(UserError):
            RunFolder(tmp_path / "run", CONFIG, **options)
    assert (tmp_path / "run").read_text() == "text"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "before")
    with pytest.raises(UnicodeEncodeError):
        write_file(tmp_path / "file", "after\ud800")
    assert (tmp_path / "file").read_text() == "before"
