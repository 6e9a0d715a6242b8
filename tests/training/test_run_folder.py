"""When a folder may be written to, and when it is left alone."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.training.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
CONFIG = {"dataset": {"type": "sst"}, "model": {}, "trainer": {"lr": 1}}


def test_a_new_folder_appears_whole(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a" / "b", CONFIG)
    assert not (tmp_path / "a").exists()
    run.start()
    assert json.loads((tmp_path / "a" / "b" / "experiment.json").read_text()) == CONFIG
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["b"]


def test_a_run_that_began_meanwhile_is_left_alone(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run", CONFIG), RunFolder(tmp_path / "run", CONFIG)
    first.start()
    (tmp_path / "run" / "checkpoints").mkdir()
    with pytest.raises(UserError, match="exists already; choose another with -s"):
        second.start()
    assert (tmp_path / "run" / "checkpoints").is_dir()


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


KILLED = """
import os, shutil, signal, sys
from sopa_plugin.training.run_folder import RunFolder

rename = os.rename


def killed(path, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_between(source, target):
    if os.path.basename(source).startswith(".moved.new-"):
        killed(source)
    rename(source, target)


for folder in sys.argv[2:]:
    if not os.fork():
        run = RunFolder(folder, eval(sys.argv[1]), force=True)
        os.rename, shutil.rmtree = killed_between, killed
        run.start()
    assert os.wait()[1] == signal.SIGKILL
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what runs with --force left of two others when they were killed.

    `moved` had been moved aside and the new run was not in its place yet; `replaced` had been
    replaced, and the old run was not deleted yet.
    """
    folder = tmp_path_factory.mktemp("killed")
    for name in ("moved", "replaced"):
        RunFolder(folder / name, CONFIG).start()
        (folder / name / "metrics.json").write_text('{"kept": 1}')
    subprocess.run(
        [sys.executable, "-c", KILLED, repr(CONFIG), folder / "moved", folder / "replaced"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=True,
    )
    return folder


def test_a_run_that_a_killed_force_moved_is_put_back(
    killed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = killed / "moved"
    assert not run.exists()
    others = [killed / ".moved.old-thesis", killed / ".unmoved.old-1"]  # no names that a run gives
    for each in others:
        each.mkdir()
    with pytest.raises(UserError, match="exists already"):
        RunFolder(run, CONFIG)
    (message,) = caplog.messages
    assert message.startswith(f"{run}: put back")
    assert RunFolder(run, CONFIG, recover=True).finished == {"kept": 1}
    assert set(killed.glob("*moved*")) == {run, *others}


def test_what_a_killed_force_left_is_removed(
    killed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run = killed / "replaced"
    assert len(list(killed.glob("*replaced*"))) == 2
    assert RunFolder(run, CONFIG, recover=True).finished is None  # the new run
    (message,) = caplog.messages
    assert message.startswith(f"{killed}/.replaced.old-")
    assert "removed" in message
    assert list(killed.glob("*replaced*")) == [run]


def test_force_replaces_a_link_and_not_the_run_behind_it(tmp_path: Path) -> None:
    RunFolder(tmp_path / "real", CONFIG).start()
    (tmp_path / "link").symlink_to("real")
    RunFolder(tmp_path / "link", {**CONFIG, "model": {"new": 1}}, force=True).start()
    assert {each.name for each in tmp_path.iterdir()} == {"real", "link"}
    assert not (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "real" / "experiment.json").read_text()) == CONFIG


def test_what_is_no_folder_was_not_left_by_a_run(tmp_path: Path) -> None:
    (tmp_path / ".run.old-1").write_text("precious")
    (tmp_path / ".run.new-1").symlink_to("nowhere")
    RunFolder(tmp_path / "run", CONFIG).start()
    assert {each.name for each in tmp_path.iterdir()} == {".run.old-1", ".run.new-1", "run"}


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("text")
    for options in ({"force": True}, {"recover": True}, {}):
        with pytest.raises(UserError):
            RunFolder(tmp_path / "run", CONFIG, **options)
    assert (tmp_path / "run").read_text() == "text"
