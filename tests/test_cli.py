"""What the commands share: names, imports and endings, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin import bench
from sopa_plugin.__main__ import COMMANDS
from sopa_plugin.benchmarks import SECTIONS
from sopa_plugin.cli import read_config
from sopa_plugin.errors import UserError, failing, visible
from sopa_plugin.registry import ConfigError, build
from sopa_plugin.training import run_experiment

ROOT = Path(__file__).parents[1]
CONFIG = str(ROOT / "configs" / "sopa_sst.jsonnet")
TFIDF = str(ROOT / "configs" / "tfidf_sst.jsonnet")
HEAVY = ("torch", "datasets", "accelerate", "transformers")
WATCHED = f"""
import atexit, runpy, sys
seen = lambda: [each for each in {HEAVY} if each in sys.modules]
atexit.register(lambda: print("imported:", *seen(), file=sys.stderr))
sys.argv[:] = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *argv],
        capture_output=True,
        text=True,
        env=environment | options.pop("env", {}),
        **options,
    )


def imported(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Which of the heavy packages a process that was watched has imported."""
    assert done.returncode == 0, done.stderr
    (line,) = (each for each in done.stderr.splitlines() if each.startswith("imported:"))
    return set(line.split()[1:])


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained, of a model that is compiled."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "vectors.txt").write_text("good 1 0\nbad 0 1\n")
    (folder / "data").mkdir()
    for split in ("train", "dev", "test"):
        (folder / "data" / f"{split}.txt").write_text("1 good\n0 bad\n" * 3)
    config = {
        "dataset": {"type": "sst", "path": str(folder / "data")},
        "model": {
            "embedder": {"type": "static", "vectors": str(folder / "vectors.txt")},
            "encoder": {"type": "sopa", "patterns": {"2": 2}},
        },
        "trainer": {"num_epochs": 1},
    }
    run_experiment(config, folder / "run")
    return folder / "run"


class TestImports:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_the_help_of_a_command_imports_nothing_heavy(self, command: str) -> None:
        done = run("-c", WATCHED, f"sopa_plugin.{command}", "--help")
        assert imported(done) == set()
        assert done.stdout.startswith(f"usage: python -m sopa_plugin.{command} ")

    def test_validating_imports_neither_datasets_nor_accelerate(self) -> None:
        done = run("-c", WATCHED, "sopa_plugin.train", CONFIG, "--validate")
        assert imported(done).isdisjoint({"datasets", "accelerate"})

    def test_predicting_from_a_compiled_run_imports_nothing_heavy(self, run_folder: Path) -> None:
        done = run("-c", WATCHED, "sopa_plugin.predict", str(run_folder), input="good\n")
        assert imported(done) == set()
        assert "label" in json.loads(done.stdout)


class TestOneScript:
    def test_without_arguments_it_lists_the_commands(self) -> None:
        done = run("-m", "sopa_plugin")
        assert done.returncode == 0
        for command in COMMANDS:
            assert f"\n  {command} " in done.stdout
        assert run("-m", "sopa_plugin", "--help").stdout == done.stdout

    def test_it_calls_a_command_by_its_name(self) -> None:
        done = run("-m", "sopa_plugin", "train", CONFIG, "--validate")
        assert done.stdout == f"{CONFIG}: no problems found\n"
        done = run("-m", "sopa_plugin", "train", "absent.jsonnet")
        assert done.returncode == 2
        assert done.stderr.startswith("error: absent.jsonnet: no such config file")

    def test_the_help_names_a_command_as_it_was_called(self) -> None:
        done = run("-m", "sopa_plugin", "predict", "--help")
        assert done.stdout.startswith("usage: python -m sopa_plugin predict ")
        installed = "import sys; sys.argv[0] = '/usr/bin/sopa-plugin'\n"
        installed += "from sopa_plugin.__main__ import script; script()"
        done = run("-c", installed, "predict", "--help")
        assert done.stdout.startswith("usage: sopa-plugin predict ")

    def test_an_unknown_command_is_one_error(self) -> None:
        done = run("-m", "sopa_plugin", "tarin")
        assert done.returncode == 1
        assert done.stderr.startswith("error: no command 'tarin': expected one of init, train, ")

    def test_sections_of_the_benchmark_are_named_in_its_help(self) -> None:
        assert tuple(SECTIONS) == bench.SECTIONS


WITHOUT = """
import importlib, sys
sys.modules.update(dict.fromkeys({missing}))
from sopa_plugin.cli import run_command
run_command(lambda: importlib.import_module("sopa_plugin." + sys.argv[1]).main(sys.argv[2:]))
"""


class TestMissingPackages:
    @pytest.mark.parametrize(
        ("missing", "argv"),
        [
            ("torch", ["train", CONFIG]),
            ("torch", ["evaluate", "runs/mine"]),
            ("torch", ["explain", "runs/mine", "report"]),
            ("torch", ["rules.__main__", "check", "mine.rules"]),
            ("torch", ["bench", "kernel"]),
            ("pyarrow", ["init", "mine.jsonnet", "--data", "mine.csv"]),
            ("scikit-learn", ["train", TFIDF, "-s", "tfidf"]),
        ],
    )
    def test_a_command_says_what_to_install(
        self, tmp_path: Path, missing: str, argv: list[str]
    ) -> None:
        (tmp_path / "mine.csv").write_text("text,label\ngood film,1\nbad film,0\n")
        module = {"scikit-learn": "sklearn"}.get(missing, missing)
        done = run("-c", WITHOUT.format(missing=[module]), *argv, cwd=tmp_path)
        *_, last = done.stderr.splitlines()
        assert last.startswith(f"error: this needs {missing}: pip install {missing} (or ")
        assert "Traceback" not in done.stderr
        assert done.returncode == 1

    def test_what_nobody_requires_stays_as_it_is(self) -> None:
        done = run("-c", SPOKEN.format(what="import one_of_my_own"))
        assert "Traceback" in done.stderr
        assert "No module named 'one_of_my_own'" in done.stderr


SPOKEN = """
import os, time
from sopa_plugin.cli import run_command
from sopa_plugin.errors import UserError
def main():
    {what}
run_command(main)
"""


class TestProcesses:
    @pytest.mark.parametrize(
        ("what", "said"),
        [
            ("raise UserError('all say it')", ["error: all say it"]),
            ("raise UserError('says ' + os.environ['RANK'])", ["error: says 0", "error: says 1"]),
            (
                "if os.environ['RANK'] == '1': raise OSError(28, 'No space', 'out')\n"
                "    time.sleep(60)",
                ["error: out: No space"],
            ),
        ],
    )
    def test_an_error_is_said_once_and_never_lost(
        self, tmp_path: Path, what: str, said: list[str]
    ) -> None:
        (tmp_path / "spoken.py").write_text(SPOKEN.format(what=what))
        launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
        launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        done = run(
            *launch, "--main_process_port", "0", str(tmp_path / "spoken.py"),
            env={"ACCELERATE_USE_CPU": "1"},
        )  # fmt: skip
        assert done.returncode != 0
        lines = [each for each in done.stderr.splitlines() if each.startswith("error")]
        found = [each.replace(" in process 1", "") for each in lines]
        # the launcher ends the others once one has failed, maybe before they say theirs
        assert 1 <= len(found) == len(set(found))
        assert set(found) <= set(said)


class TestVisible:
    def test_a_terminal_has_nothing_to_obey(self) -> None:
        assert visible("a\x1b[31mb\x07\x7f\t\n") == "a␛[31mb␇␡␉␊"
        assert visible("\x9b31m \u202eabc\u2066 \ud800") == "�31m �abc� �"
        assert visible("a\tb\n", keep="\n\t") == "a\tb\n"
        assert visible("naïve 👩‍👩‍👧‍👦 שלום") == "naïve 👩‍👩‍👧‍👦 שלום"

    def test_errors_and_log_lines_are_such(self, tmp_path: Path) -> None:
        what = "import logging; logging.getLogger('sopa_plugin').info('log \\x9b2J'); "
        what += "raise UserError('two\\nlines \\x1b[2J')"
        done = run("-c", SPOKEN.format(what=what))
        assert done.stderr == "log �2J\nerror: two\nlines ␛[2J\n"


class Refusing:
    """Its constructor refuses what its hints allow."""

    def __init__(self, number: int) -> None:
        raise ValueError(f"{number} is not to its taste")


def test_what_a_constructor_refuses_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text('{"number": 3}')
    assert read_config(Refusing, str(file), ["number=4"], ()) == {"number": 4}
    with pytest.raises(ConfigError, match=r"own\.json: .*\n? *4 is not to its taste"):
        read_config(Refusing, str(file), ["number=4"], (), build)


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (KeyError("a"), "here: damaged (KeyError: 'a'); mend it"),
        (FileNotFoundError(2, "No such file", "here"), "here: damaged (No such file); mend it"),
        (UserError("too long"), "here: too long"),
        (UserError("here/a: too long"), "here/a: too long"),
    ],
)
def test_whatever_goes_wrong_is_one_error_that_says_where(cause: Exception, message: str) -> None:
    with pytest.raises(UserError) as raised, failing("here", "damaged", "; mend it"):
        raise cause
    assert str(raised.value) == message
