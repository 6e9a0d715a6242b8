"""When a folder may be written to, and when it is left alone."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.training.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
CONFIG = {"dataset": {"type": "sst"}, "model": {}, "trainer": {"lr": 1}}


def test_a_new_folder_appears_whole(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a" / "b", CONFIG)
    assert not (tmp_path / "a").exists()
    run.start()
    run.close()
    assert {each.name for each in run.path.iterdir()} == {"experiment.json", "train.log"}
    assert json.loads((tmp_path / "a" / "b" / "experiment.json").read_text()) == CONFIG
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["b"]


def test_a_run_that_began_meanwhile_is_left_alone(tmp_path: Path) -> None:
    first, second, third = (RunFolder(tmp_path / "run", CONFIG) for _ in range(3))
    first.start()
    (tmp_path / "run" / "checkpoints").mkdir()
    with pytest.raises(UserError, match=rf"process {os.getpid()} on .* is at work in this folder"):
        second.start()
    first.close()
    with pytest.raises(UserError, match="exists already; choose another with -s"):
        third.start()
    assert (tmp_path / "run" / "checkpoints").is_dir()


def begin(path: Path, **options: Any) -> None:
    """A run that begins and ends."""
    with RunFolder(path, CONFIG, **options) as run:
        run.start()


def test_an_empty_folder_will_do_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "run" / ".experiment.json.new-1").write_text("{")  # of a start that was killed
    for name in ("run", "link"):
        begin(tmp_path / name)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "experiment.json").is_file()


def test_a_run_is_replaced_by_force_alone(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    (tmp_path / "run" / "metrics.json").write_text("{}")
    with pytest.raises(UserError, match="exists already; choose another with -s"):
        RunFolder(tmp_path / "run", CONFIG)
    forced = RunFolder(tmp_path / "run", CONFIG, force=True)
    # nothing is lost before the new run begins
    assert (tmp_path / "run" / "metrics.json").is_file()
    forced.start()
    forced.close()
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


KILLED = """
import importlib, os, signal, sys
from pathlib import Path
from sopa_plugin.training.run_folder import RunFolder

folder, places = Path(sys.argv[1]), sys.argv[3:]
for place in places:
    if not os.fork():
        run = RunFolder(folder / place, eval(sys.argv[2]), force=True)
        owner, _, name = place.rpartition(".")
        owner = Path if owner == "Path" else importlib.import_module(owner)
        setattr(owner, name, lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL))
        run.start()
    assert os.wait()[1] == signal.SIGKILL
"""
MOVED = ["Path.mkdir", "sopa_plugin.training.run_folder.write_file"]
REPLACED = ["shutil.rmtree"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What runs with --force left of others when they were killed, by what they were about to do.

    Those `MOVED` had been moved aside, and the new run had not begun; in the place of those
    `REPLACED` the new run had begun, and they were not deleted yet.
    """
    folder = tmp_path_factory.mktemp("killed")
    for name in (*MOVED, *REPLACED):
        begin(folder / name)
        (folder / name / "metrics.json").write_text('{"kept": 1}')
    subprocess.run(
        [sys.executable, "-c", KILLED, folder, repr(CONFIG), *MOVED, *REPLACED],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=True,
    )
    return folder


@pytest.mark.parametrize("name", MOVED)
def test_a_run_that_a_killed_force_moved_is_put_back(
    killed: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    run = killed / name
    assert not (run / "experiment.json").exists()
    others = [killed / f".{name}.old-thesis", killed / f".un{name}.old-1"]  # no names of a run's
    for each in others:
        each.mkdir()
    with pytest.raises(UserError, match="exists already"):
        RunFolder(run, CONFIG)
    (message,) = caplog.messages
    assert message.startswith(f"{run}: put back")
    assert RunFolder(run, CONFIG, recover=True).finished == {"kept": 1}
    assert set(killed.glob(f"*{name}*")) == {run, *others}
    assert {each.name for each in run.iterdir()} == {"experiment.json", "metrics.json", "train.log"}


@pytest.mark.parametrize("name", REPLACED)
def test_what_a_killed_force_left_is_removed(
    killed: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO)
    run = killed / name
    assert len(list(killed.glob(f"*{name}*"))) == 2
    assert RunFolder(run, CONFIG, recover=True).finished is None  # the new run
    (message,) = caplog.messages
    assert message.startswith(f"{killed}/.{name}.old-")
    assert "removed" in message
    assert list(killed.glob(f"*{name}*")) == [run]


def test_what_a_living_force_moved_is_left_alone(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    first = RunFolder(tmp_path / "run", CONFIG, force=True)
    os.rename(tmp_path / "run", tmp_path / ".run.old-1")  # as it does, before it makes the new one
    RunFolder(tmp_path / "run", CONFIG, force=True)
    assert [each.name for each in tmp_path.iterdir()] == [".run.old-1"]
    first.close()
    with pytest.raises(UserError, match="exists already"):
        RunFolder(tmp_path / "run", CONFIG)  # put back


def test_force_replaces_a_link_and_not_the_run_behind_it(tmp_path: Path) -> None:
    begin(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    with RunFolder(tmp_path / "link", {**CONFIG, "model": {"new": 1}}, force=True) as run:
        run.start()
    assert {each.name for each in tmp_path.iterdir()} == {"real", "link"}
    assert not (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "real" / "experiment.json").read_text()) == CONFIG


def test_what_is_no_folder_was_not_left_by_a_run(tmp_path: Path) -> None:
    (tmp_path / ".run.old-1").write_text("precious")
    (tmp_path / ".run.new-1").symlink_to("nowhere")
    begin(tmp_path / "run")
    assert {each.name for each in tmp_path.iterdir()} == {".run.old-1", ".run.new-1", "run"}


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("text")
    for options in ({"force": True}, {"recover": True}, {}):
        with pytest.raises(UserError):
            RunFolder(tmp_path / "run", CONFIG, **options)
    assert (tmp_path / "run").read_text() == "text"
