"""Files that are there whole or not at all, and JSON files that are not what they should be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.files import read_json, remove_left_aside, write_file, written_aside

ROOT = Path(__file__).parents[1]


def write_half(path: Path) -> None:
    with written_aside(path) as aside:
        aside.write_text("half of")
        raise KeyboardInterrupt


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "before")
    with pytest.raises(UnicodeEncodeError):
        write_file(tmp_path / "file", "after\ud800")
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "before"
    write_file(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_text() == "after"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be written \(No such .*; make its folder first"):
        write_file(tmp_path / "absent" / "file", "text")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"cannot be written \(Not a .*; name a file in a folder"):
        write_file(tmp_path / "file" / "file", "text")


def test_two_processes_write_the_same_file(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from sopa_plugin.files import write_file\n"
        "for _ in range(1000): write_file(Path(sys.argv[1]), sys.argv[2] * 1000)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    both = [subprocess.Popen([*command, each], cwd=ROOT) for each in "ab"]
    assert [each.wait(timeout=300) for each in both] == [0, 0]
    assert (tmp_path / "file").read_text() in ("a" * 1000, "b" * 1000)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", r"not JSON: no object, but \[1\]"),
    ],
    ids=["absent", "empty", "cut", "no-utf-8", "deep", "list"],
)
def test_what_is_no_json_is_one_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(
        UserError, match=rf"file\.json: cannot be read \({message}.*\); expected a run"
    ):
        read_json(tmp_path / "file.json", "a run")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read .Is a directory.; expected a run"):
        read_json(tmp_path, "a run")


def test_what_a_killed_process_left_of_a_file_goes_with_the_next_of_that_name(
    tmp_path: Path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    for name in ("a.csv", "b.csv"):
        (tmp_path / f".{name}.new-{process.pid}").touch()
    (tmp_path / f".a.csv.new-{os.getpid()}").touch()  # is being written
    remove_left_aside(tmp_path, ["a.csv"])
    left = {f".a.csv.new-{os.getpid()}", f".b.csv.new-{process.pid}"}
    assert {each.name for each in tmp_path.iterdir()} == left
