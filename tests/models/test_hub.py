"""What goes to the Hub, and comes back from it, is a model that loads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi

from sopa_plugin import load_model, train_model
from sopa_plugin.errors import UserError
from sopa_plugin.explain import main as explain
from sopa_plugin.models import TextClassifier

ROOT = Path(__file__).parents[2]
TEXT = "a moving and funny film ."
LOADED = """
import json, sys
import sopa_plugin.models
from transformers import pipeline
print(json.dumps(pipeline("text-classification", model=sys.argv[1])(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        train_model("configs/sopa_sst.jsonnet", folder, ["trainer.num_epochs=1"])
    return folder


def pushed(model: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder that is uploaded; only the network is left out."""

    def upload(_: HfApi, repo_id: str, folder_path: Path, **options: Any) -> str:
        assert repo_id == "me/films"
        shutil.copytree(folder_path, folder)
        return "https://huggingface.co/me/films"

    named = lambda _, repo_id, **options: SimpleNamespace(repo_id=f"me/{repo_id}")  # noqa: E731
    monkeypatch.setattr(HfApi, "create_repo", named)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    assert model.push_to_hub("films", private=True) == "https://huggingface.co/me/films"
    return folder


@pytest.mark.parametrize("trained", [True, False])
def test_a_pipeline_loads_what_was_pushed(
    trained: bool, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = load_model(run)
    if not trained:  # of no run that has a card
        bare = TextClassifier(model.config)
        bare.load_state_dict(model.state_dict())
        bare.tokenizer, bare.name_or_path = model.tokenizer, ""
        model = bare
    folder = pushed(model, tmp_path / "pushed", monkeypatch)
    card = (folder / "README.md").read_text()
    assert "import sopa_plugin.models" in card
    assert "pip install" in card
    assert (folder / "metrics.json").exists() is trained
    assert not {"checkpoints", "experiment.json"} & {each.name for each in folder.iterdir()}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(folder), TEXT],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    best = model.log_probabilities([TEXT])[0]
    assert found["label"] == model.labels[best.argmax()]
    for file in folder.iterdir():
        assert str(run.parent).encode() not in file.read_bytes(), file


def test_explain_reads_what_only_save_pretrained_wrote(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_model(run).save_pretrained(tmp_path / "saved")  # type: ignore[attr-defined]
    folder = str(tmp_path / "saved")
    labelled = tmp_path / "films.csv"
    labelled.write_text(f"text,label\n{TEXT},positive\na dull film .,negative\n")
    explain([folder, "document", TEXT])
    assert "moving" in capsys.readouterr().out
    for action in (["patterns", "-k", "1"], ["where", "2-1"]):
        explain([folder, *action, "--data", str(labelled)])
        assert "2-1" in capsys.readouterr().out
    explain([folder, "report", "--data", str(labelled), "-o", str(tmp_path / "report.html")])
    assert "2-1" in (tmp_path / "report.html").read_text()
    with pytest.raises(UserError, match=r"no experiment\.json.*--data"):
        explain([folder, "where", "2-1"])
