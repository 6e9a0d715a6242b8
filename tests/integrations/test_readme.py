"""README's paragraphs on other pipelines, run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sopa_plugin import train_model

ROOT = Path(__file__).parents[2]
SECTION = re.search(r"\n## In other pipelines\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.S)


def code_of(title: str) -> str:
    """The Python of the paragraph that begins with a title, after its commands of ours."""
    assert SECTION is not None
    _, *paragraphs = re.split(r"^\*\*(.+?)\*\*", SECTION[1], flags=re.MULTILINE)
    found = dict(zip(paragraphs[::2], paragraphs[1::2], strict=True))
    commands = re.findall(r"^python -m sopa_plugin\.(\w+) (.+)$", found[title], re.MULTILINE)
    run = [f"import_module('sopa_plugin.{name}').main({words.split()})" for name, words in commands]
    code = re.findall(r"```python\n(.*?)```", found[title], re.DOTALL)
    return "\n".join(["from importlib import import_module", *run, *code])


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the clone's root, with README's first run."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("configs", "fixtures"):
        (folder / name).symlink_to(ROOT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train_model("configs/sopa_sst.jsonnet", overrides=["trainer.num_epochs=3"])
    return folder


@pytest.mark.parametrize(
    ("title", "package"),
    [
        ("scikit-learn.", "sklearn"),
        ("sentence-transformers", "sentence_transformers"),
        ("spaCy", "spacy"),
        ("ONNX", "onnxruntime"),
        ("datasets, Ray Data", "ray"),
    ],
)
def test_the_paragraph_runs(
    title: str, package: str, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package, reason=f"README on {title} needs {package}")
    monkeypatch.chdir(clone)
    exec(compile(code_of(title), f"README.md, {title}", "exec"), {"__name__": "__main__"})
