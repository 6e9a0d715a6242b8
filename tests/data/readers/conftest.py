from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Finds real data beside the repository, or skips the test."""

    def find(name: str) -> Path:
        path = REPOSITORY.parent / "shared" / "data" / name
        if not path.exists() and not list(path.parent.glob(path.name + "*")):
            pytest.skip(f"needs the real data at ../shared/data/{name}")
        return path

    return find


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes files named by keyword-safe names: `write({"train.txt": "…"})` returns the folder."""

    def write_files(files: dict[str, str | bytes], folder: str = "data") -> Path:
        root = tmp_path / folder
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return root

    return write_files
