"""Damaged run folders: whatever a command meets, its answer is the right one or one error."""

from __future__ import annotations

import copy
import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin.compiled import load_compiled
from sopa_plugin.errors import UserError
from sopa_plugin.models import load_model
from sopa_plugin.predict import predict_stream
from sopa_plugin.registry import ConfigError
from sopa_plugin.training import evaluate_run, run_experiment

ROOT = Path(__file__).parents[1]
CONFIG: dict[str, Any] = {
    "dataset": {"type": "sst", "path": str(ROOT / "fixtures" / "sst_lines")},
    "tokenizer": {"vocabulary": "train_dev"},
    "model": {
        "embedder": {"type": "static", "vectors": str(ROOT / "fixtures" / "vectors.txt")},
        "encoder": {"type": "sopa", "patterns": {"3": 4, "2": 4}},
    },
    "trainer": {"num_epochs": 2, "batch_size": 16},
}
LINEAR: dict[str, Any] = CONFIG | {"model": {"type": "tfidf"}, "trainer": {"type": "sklearn"}}
TEXTS = b"a gripping , moving film\ndull\n\nnot good , not bad\n"


def flipped(content: bytes, chance: random.Random) -> bytes:
    position, bit = chance.randrange(len(content)), chance.randrange(8)
    return content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "missing": lambda _, __: None,
    "empty": lambda _, __: b"",
    "cut": lambda content, _: content[: len(content) // 2],
    "foreign": lambda _, __: b"<!DOCTYPE html>\n<html>not found</html>\n",
    "other JSON": lambda _, __: b'[{"a": null}]',
    "deep JSON": lambda _, __: b"[" * 100_000,
    "flipped": flipped,
}


def predict(run: Path) -> Any:
    output = io.StringIO()
    predict_stream(load_compiled(run) or load_model(run), io.BytesIO(TEXTS), output)
    return [json.loads(line) for line in output.getvalue().splitlines()]


def predict_uncompiled(run: Path) -> Any:
    return load_model(run).log_probabilities(TEXTS.decode().splitlines()).tolist()


def evaluate(run: Path) -> Any:
    return [metrics | {"data": ""} for metrics in evaluate_run(run)]


def go_on(run: Path) -> Any:
    is_linear = run.parent.name == "tfidf"
    metrics = run_experiment(copy.deepcopy(LINEAR if is_linear else CONFIG), run, recover=True)
    return {key: each for key, each in metrics.items() if key != "training_duration"}


COMMANDS = [predict, predict_uncompiled, evaluate, go_on]


@pytest.fixture(scope="module", params=["text_classifier", "tfidf"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / request.param / "run"
    run_experiment(copy.deepcopy(LINEAR if request.param == "tfidf" else CONFIG), folder)
    return folder


def damage_and_use(run: Path, tmp_path: Path, kinds: list[str], tries: int) -> None:
    right = {command: command(run) for command in COMMANDS}
    chance = random.Random(1)
    refused = 0
    for file in sorted(each for each in run.rglob("*") if each.is_file()):
        for kind in kinds:
            for _ in range(tries if kind == "flipped" else 1):
                content = file.read_bytes()
                damaged = DAMAGES[kind](content, chance) if content else b"\0"
                for command in COMMANDS:
                    folder = tmp_path / run.parent.name / "run"
                    shutil.copytree(run, folder)
                    target = folder / file.relative_to(run)
                    target.unlink()
                    if damaged is not None:
                        target.write_bytes(damaged)
                    what = f"{command.__name__}, {kind} {file.relative_to(run)}"
                    try:
                        answer = command(folder)
                    except (UserError, ConfigError) as error:
                        assert "\n" not in str(error)[:20], what
                        refused += 1
                    except Exception as error:
                        pytest.fail(f"{what}: {type(error).__name__}: {error}")
                    else:
                        # what had finished is reported as it was noted
                        if (command, file.name) != (go_on, "metrics.json"):
                            assert answer == right[command], what
                    shutil.rmtree(folder)
    assert refused


def test_damaged_files_of_a_run(run: Path, tmp_path: Path) -> None:
    damage_and_use(run, tmp_path, ["missing", "empty", "cut", "foreign", "flipped"], tries=1)


@pytest.mark.campaign
def test_many_damaged_files_of_a_run(run: Path, tmp_path: Path) -> None:
    damage_and_use(run, tmp_path, list(DAMAGES), tries=30)
