"""The order of rooms: who may import whom, read from the import statements themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sopa_plugin"
ORDER = [
    {"errors"},
    {"files"},
    {"registry"},
    {"data"},
    {"embedders", "wfsa"},
    {"encoders", "heads"},
    {"rules"},
    {"compiled"},
    {"models"},
    {"training"},
    {"interpret", "comparisons"},
    {"integrations"},
    {"benchmarks"},
    {"cli"},
    {"api"},
    {"train", "evaluate", "predict", "explain", "search", "experiments", "bench", "init", "export"},
    {"__main__"},
]
"""Rooms, lowest first: one imports from those of sets before its own."""
FREE = {""}
"""The package itself."""
FILES = sorted(PACKAGE.rglob("*.py"))


def module_of(file: Path) -> str:
    """The dotted name that imports `file`."""
    parts = ("sopa_plugin", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def imported(file: Path) -> Iterator[str]:
    """Modules of the package that `file` imports anywhere, for type checking too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == "sopa_plugin":
                yield name if name in MODULES else name.rpartition(".")[0]


def room_of(module: str) -> str:
    if module.endswith(".__main__"):
        return "__main__"  # a command, wherever it stands
    return [*module.split("."), ""][1]


def rank_of(room: str) -> int:
    return next(rank for rank, rooms in enumerate(ORDER) if room in rooms)


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_from_rooms_before_it(module: str) -> None:
    room = room_of(module)
    if room in FREE:
        return
    for other in imported(MODULES[module]):
        target = room_of(other)
        if target not in (room, ""):
            assert rank_of(target) < rank_of(room), f"{module} imports {other}"


def test_files_import_one_another_in_no_circle() -> None:
    graph = {module: set(imported(file)) - {module} for module, file in MODULES.items()}
    graph["sopa_plugin"] = set()  # whose names are looked up when they are used
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


def test_the_package_stays_small() -> None:
    # each of a later feature's rooms comes with files of its own
    own = ("api", "init", "export", "open_vocabulary", "ngrams", "comparison", "rules")
    own += ("faithfulness",)
    rooms = {"rules", "integrations"}
    added = [file for file in FILES if rooms & {*file.parts} or file.stem in own]
    assert len(FILES) - len(added) <= 120
