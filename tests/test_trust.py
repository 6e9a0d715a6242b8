"""A saved folder is data: nothing is imported because it says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from sopa_plugin import evaluate, explain, predict
from sopa_plugin.cli import run_command
from sopa_plugin.compiled import load_compiled
from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.models import Model, load_model
from sopa_plugin.registry import names

ROOT = Path(__file__).parents[1]
PLANTED = "planted_package"
"""In the current folder, which is on the path, as `python -m` has it."""
MODULE = """
open({marker!r}, "w").close()
from sopa_plugin.encoders import SopaEncoder
class Part(SopaEncoder): ...
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a run, and beside it a module that must not be executed."""
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path(f"{PLANTED}.py").write_text(MODULE.format(marker=str(tmp_path / "executed")))
    folder = tmp_path / "run"
    folder.mkdir()
    params = {
        "embedder": {"type": "static", "embedding_dim": 4},
        "encoder": {"type": "sopa", "patterns": {"3": 2, "2": 2}},
    }
    tokenizer = make_tokenizer(["good", "bad", "film"])
    Model.from_params(params, tokenizer=tokenizer, labels=["no", "yes"]).save(folder)
    (folder / "digests.json").unlink()  # a stranger writes what digests he likes
    Path("data.txt").write_text("1 good film\n0 bad\n")
    dataset = {"type": "sst", "path": "data.txt"}
    (folder / "experiment.json").write_text(json.dumps({"dataset": dataset}))
    yield folder
    assert not Path("executed").exists()
    assert PLANTED not in sys.modules


def change(file: Path, path: str, value: Any) -> None:
    """Sets the value at a path of a JSON file."""
    content = json.loads(file.read_text())
    *parents, key = path.split(".")
    place = content
    for parent in parents:
        place = place[parent]
    place[key] = value
    file.write_text(json.dumps(content))


def change_compiled(folder: Path, key: str, value: Any) -> None:
    file = folder / "compiled.safetensors"
    with safe_open(file, framework="pt") as opened:
        metadata = json.loads(opened.metadata()["sopa_plugin"])
    metadata |= {key: value, "model_files": {}}
    save_file(load_file(file), file, {"sopa_plugin": json.dumps(metadata)})
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).unlink()


CHANGES: dict[str, Callable[[Path], None]] = {
    "plugins": lambda run: change(run / "config.json", "sopa_plugin.plugins", [PLANTED]),
    "model": lambda run: change(run / "config.json", "sopa_plugin.model", f"{PLANTED}.Part"),
    "embedder": lambda run: change(run / "config.json", "embedder.type", f"{PLANTED}.Part"),
    "encoder": lambda run: change(run / "config.json", "encoder.type", f"{PLANTED}.Part"),
    "head": lambda run: change(run / "config.json", "head.type", f"{PLANTED}.Part"),
}
LOADERS: dict[str, Callable[[Path], Any]] = {
    "load_model": load_model,
    "predict": lambda run: predict.main([str(run), "-i", "data.txt", "--device", "cpu"]),
    "evaluate": lambda run: evaluate.main([str(run), "--device", "cpu"]),
    "explain": lambda run: explain.main([str(run), "patterns", "--device", "cpu"]),
    "from_pretrained": AutoModelForSequenceClassification.from_pretrained,
}
TRUST = rf"'?{PLANTED}'?.*--include-package {PLANTED}, or import it in Python"


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("changed", CHANGES)
def test_what_a_saved_model_names_is_not_imported(changed: str, loader: str, run: Path) -> None:
    if (changed, loader) == ("model", "from_pretrained"):
        return  # which does not read it
    (run / "compiled.safetensors").unlink()
    CHANGES[changed](run)
    with pytest.raises(UserError, match=TRUST):
        LOADERS[loader](run)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("plugins", [PLANTED]),
        ("plugins", PLANTED),
        ("head", {"type": f"{PLANTED}.Part"}),
        ("head", f"{PLANTED}.Part"),
    ],
)
def test_nor_what_a_compiled_one_names(key: str, value: Any, run: Path) -> None:
    change_compiled(run, key, value)
    with pytest.raises(UserError, match=TRUST):
        load_compiled(run)
    with pytest.raises(UserError, match=TRUST):
        LOADERS["predict"](run)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_nor_is_attention_of_the_hub(key: str, run: Path) -> None:
    change(run / "config.json", f"embedder.{key}", "kernels-community/planted")
    with pytest.raises(UserError, match=f"{key}: expected 'eager' or 'sdpa', found 'kernels-"):
        load_model(run)


@pytest.mark.parametrize("loader", ["evaluate", "explain"])
def test_nor_the_reader_of_a_run(loader: str, run: Path) -> None:
    change(run / "experiment.json", "dataset.type", f"{PLANTED}.Reader")
    with pytest.raises(UserError, match=TRUST):
        LOADERS[loader](run)


def test_as_commands_in_the_folder_itself(run: Path) -> None:
    """With a module, and with what looks like an installed plugin."""
    shutil.copy(f"{PLANTED}.py", run)
    (run / "x-1.0.dist-info").mkdir()
    (run / "x-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: x\n")
    entry = f"[sopa_plugin.plugins]\nx = {PLANTED}\n"
    (run / "x-1.0.dist-info" / "entry_points.txt").write_text(entry)
    change(run / "config.json", "sopa_plugin.plugins", [PLANTED])
    done = subprocess.run(
        [sys.executable, "-m", "sopa_plugin.predict", ".", "--device", "cpu"],
        cwd=run,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input="good\n",
        capture_output=True,
        text=True,
        check=False,
    )
    # the table beside the changed config is of another model, so the model itself is asked
    assert done.returncode == 2, done.stderr
    assert f"--include-package {PLANTED}" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_trusted_is_used(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same folder, with a package that the user names."""
    monkeypatch.setattr(names, "_plugins", {})
    Path("trusted_package.py").write_text(MODULE.format(marker=str(run / "executed")))
    change(run / "config.json", "encoder.type", "trusted_package.Part")
    (run / "compiled.safetensors").unlink()
    arguments = [str(run), "-i", "data.txt", "--include-package", "trusted_package"]
    with pytest.raises(SystemExit) as left:
        run_command(lambda: predict.main(arguments))
    assert left.value.code == 0, capsys.readouterr().err
    assert (run / "executed").exists()
    # and in Python, where the package is imported by now
    assert type(load_model(run).encoder).__name__ == "Part"  # type: ignore[attr-defined]
    del sys.modules["trusted_package"]
