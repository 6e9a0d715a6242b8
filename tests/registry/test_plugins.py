"""Plugins: packages named on the command line and installed ones, in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sopa_plugin
from sopa_plugin.registry import ConfigError, check_imported, import_plugins

REPOSITORY = Path(sopa_plugin.__file__).parents[1]
PREAMBLE = """
from sopa_plugin.registry import *
class Encoder(Registrable): ...
"""
PART = """
from __main__ import Encoder
@Encoder.register("{name}")
class Part(Encoder): ...
"""


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs the script in `folder`, which only becomes importable as the current folder."""
    file = folder / "script" / "main.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(PREAMBLE + script)
    return subprocess.run(
        [sys.executable, str(file)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose parts are in a module and a package below it, imported by neither."""
    root = tmp_path / "my_parts"
    (root / "deep").mkdir(parents=True)
    for file in ("__init__.py", "deep/__init__.py"):
        (root / file).touch()
    (root / "one.py").write_text(PART.format(name="one"))
    (root / "deep" / "two.py").write_text(PART.format(name="two"))
    (root / "__main__.py").write_text("raise SystemExit('not to be run')")
    return root


def install(folder: Path, entry: str) -> None:
    """What pip writes for a package with an entry point."""
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sopa_plugin.plugins]\nmine = {entry}\n")


def test_an_included_package_is_imported_with_all_its_modules(tmp_path, package) -> None:
    answer = run(
        tmp_path,
        "import_plugins(['my_parts']); import_plugins(['my_parts'])\n"
        "print(Encoder.list_available(), imported_plugins())\n"
        "print(check(Encoder, 'three')[0])",
    )
    assert answer.stdout.startswith("['one', 'two'] ['my_parts']\n"), answer.stderr
    assert "looked in sopa_plugin, my_parts" in answer.stdout


def test_an_installed_plugin_is_imported_and_remembered(tmp_path, package) -> None:
    install(tmp_path, "my_parts")
    answer = run(
        tmp_path,
        "import os, sys; sys.path.append(os.getcwd()); import_plugins()\n"
        "print(Encoder.list_available(), imported_plugins())",
    )
    assert answer.stdout.strip() == "['one', 'two'] ['my_parts']", answer.stderr


def test_what_lies_in_the_current_folder_is_not_installed(tmp_path, package) -> None:
    install(tmp_path, "my_parts")
    as_python_m = "import sys; sys.path.insert(0, '');"
    answer = run(tmp_path, f"{as_python_m} import_plugins(); print(imported_plugins())")
    assert answer.stdout.strip() == "[]", answer.stderr


def test_a_broken_installed_plugin_is_left_out_with_a_warning(tmp_path) -> None:
    install(tmp_path, "absent_parts")
    answer = run(
        tmp_path,
        "import os, sys; sys.path.append(os.getcwd()); import_plugins()\nprint(imported_plugins())",
    )
    assert answer.stdout.strip() == "[]"
    assert "plugin 'mine' (absent_parts) is left out: cannot import" in answer.stderr


def test_an_included_package_that_is_absent_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot import 'absent_parts': ModuleNotFoundError"):
        import_plugins(["absent_parts"])


def test_a_module_that_fails_is_an_error_that_says_why(tmp_path, package) -> None:
    (package / "wrong.py").write_text("1 / 0")
    answer = run(
        tmp_path,
        "try: import_plugins(['my_parts'])\nexcept ConfigError as error: print(error)",
    )
    assert "cannot import 'my_parts.wrong': ZeroDivisionError" in answer.stdout


@pytest.mark.parametrize("named", [[{"a": 1}], [None], 5, {"a": 1}, "absent_parts"])
def test_what_a_saved_file_names_is_an_error_if_it_is_no_package(named) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: made with the package"):
        check_imported(named, "config.json")
