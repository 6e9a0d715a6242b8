"""Damaged run folders: whatever a command meets, its answer is the right one or one error."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sopa_plugin import evaluate, explain, predict, train
from sopa_plugin.api import predict_texts
from sopa_plugin.errors import UserError
from sopa_plugin.registry import ConfigError, apply_overrides
from sopa_plugin.training import Experiment, run_experiment

ROOT = Path(__file__).parents[1]
VECTORS = {"type": "static", "vectors": str(ROOT / "fixtures" / "vectors.txt")}
CONFIG: dict[str, Any] = {
    "dataset": {"type": "sst", "path": str(ROOT / "fixtures" / "sst_lines")},
    "tokenizer": {"vocabulary": "train_dev"},
    "model": {"embedder": VECTORS, "encoder": {"type": "sopa", "patterns": {"3": 4, "2": 4}}},
    "trainer": {"num_epochs": 2, "batch_size": 16},
}
MODELS: dict[str, dict[str, Any]] = {
    "sopa": CONFIG,
    "tfidf": CONFIG | {"model": {"type": "tfidf"}, "trainer": {"type": "sklearn"}},
    "bag_of_vectors": CONFIG
    | {"model": {"type": "bag_of_vectors", "embedder": VECTORS}, "trainer": {"type": "sklearn"}},
    "hard_patterns": CONFIG | {"model": {"type": "hard_patterns"}, "trainer": {"type": "sklearn"}},
}
LINES = "a gripping , moving film\ndull\n\nnot good , not bad\n"


def flipped(content: bytes, draw: random.Random) -> bytes:
    position, bit = draw.randrange(len(content)), draw.randrange(8)
    return content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "missing": lambda _, __: None,
    "empty": lambda _, __: b"",
    "cut": lambda content, draw: content[: draw.randrange(len(content))],
    "foreign": lambda _, __: b"<!DOCTYPE html>\n<html>not found</html>\n",
    "flipped": flipped,
    "other JSON": lambda _, __: b'[{"a": null}]',
    "other value": lambda content, draw: _with_another_value(content, draw),
    "deep JSON": lambda _, __: b"[" * 100_000,
    "no text": lambda _, draw: draw.randbytes(1000),
}


ODD = [None, True, -1, 0, 7, 1.5, 10**12, "", "x", "\x1b[2J", [], {}, [[1]], {"a": None}]


def _with_another_value(content: bytes, draw: random.Random) -> bytes:
    """A JSON object of which one value, anywhere in it, is another."""
    try:
        place = whole = json.loads(content)
    except ValueError:
        return content[::-1]
    if not whole:
        return b"[0]"
    while True:
        key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or not place[key] or draw.random() < 0.2:
            place[key] = draw.choice(ODD)
            return json.dumps(whole).encode()
        place = place[key]


def predictions(run: Path, device: str = "cpu") -> Any:
    source, answers = run.with_name("lines.txt"), run.with_name("answers.jsonl")
    source.write_text(LINES)
    arguments = [str(run), "-i", str(source), "-O", str(answers), "--force"]
    predict.main([*arguments, "--device", device])
    return [json.loads(line) for line in answers.read_text().splitlines()]


def plain_predictions(run: Path) -> Any:
    return predictions(run, "cpu:0")  # which the compiled model is not for


def metrics(run: Path) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        evaluate.main([str(run), "--split", "test", "--device", "cpu"])
    return json.loads(printed.getvalue())


def explanation(run: Path) -> Any:
    output = run.with_name("patterns.json")
    action = ["patterns", "-k", "1", "--words", "0", "--split", "dev"]
    explain.main([str(run), *action, "-o", str(output), "--force", "--device", "cpu"])
    return json.loads(output.read_text())


def trained_on(run: Path) -> Any:
    """What a run that was continued notes; its weights, if it had not finished before."""
    finished = (run / "metrics.json").exists()
    train.main([str(run.with_name("config.json")), "-s", str(run), "--recover"])
    noted = json.loads((run / "metrics.json").read_text())
    noted.pop("training_duration", None)
    if finished:
        return {"metrics": noted}
    found = load_file(run / "model.safetensors")
    return {"metrics": noted, "weights": {name: each.tolist() for name, each in found.items()}}


COMMANDS = [predictions, plain_predictions, metrics, explanation, trained_on]


def outcome(command: Callable[[Path], Any], run: Path) -> Any:
    """The answer; None for an error of ours."""
    try:
        answer = command(run)
    except (UserError, ConfigError):
        return None
    json.dumps(answer, allow_nan=False)
    return answer


class Damaged:
    """Copies of a run with one file damaged, and what the commands make of them.

    Arguments:
        run: that has finished, or stopped; `config.json` is beside it.
        folder: for the copies.
        noted: whether the digests are there.
    """

    def __init__(self, run: Path, folder: Path, noted: bool) -> None:
        self.run, self.folder, self.noted = run, folder / "copy", noted
        self.draw = random.Random(1)
        self.outcomes = 0
        self.faults: list[str] = []
        files = [each.relative_to(run) for each in run.rglob("*") if each.is_file()]
        self.files = sorted(each for each in files if noted or each.name != "digests.json")
        self.right = functools.cache(lambda command: outcome(command, self._copy()))

    def use(self, command: Callable[[Path], Any], file: Path, kind: str) -> None:
        """Damages a file, then calls a command; what should not be is one of the `faults`."""
        copy = self._copy()
        content = (copy / file).read_bytes() or b"\n"
        damaged = DAMAGES[kind](content, self.draw)
        (copy / file).unlink()
        if damaged is not None:
            (copy / file).write_bytes(damaged)
        self.outcomes += 1
        try:
            answer = outcome(command, copy)
            if answer is not None and damaged != content:
                self._compare(answer, command, file, kind)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:300]
            self.faults.append(f"{command.__name__}, {kind} {file}: {reason}")

    def _compare(self, answer: Any, command: Callable[[Path], Any], file: Path, kind: str) -> None:
        right = self.right(command)
        if command is trained_on:
            if file.name == "metrics.json":
                return  # of what had finished, it is what was noted
            answer = {key: answer[key] for key in right}  # one had not finished, the other had
        decides = file.suffix in (".safetensors", ".json") and kind in ("flipped", "other value")
        if decides and not self.noted:
            return  # then nothing tells that an answer is another
        if command is predictions and file.name == "compiled.safetensors":
            assert [each["label"] for each in answer] == [each["label"] for each in right]
            for each, wanted in zip(answer, right, strict=True):
                assert each["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
        else:
            assert answer == right

    def _copy(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        shutil.copy(self.run.with_name("config.json"), self.folder)
        copy = shutil.copytree(self.run, self.folder / "run")
        if not self.noted:
            (copy / "digests.json").unlink(missing_ok=True)
        return copy


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums depend on how many."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(model: str, folder: Path, stopped: bool = False) -> Path:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    config = apply_overrides(Experiment, MODELS[model], [])
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with contextlib.suppress(KeyboardInterrupt):
        run_experiment(config, folder / "run", on_epoch=stop if stopped else None)
    return folder / "run"


# the rest of a run's files are read by nobody but its user
READ = {
    "config.json", "model.safetensors", "compiled.safetensors", "tokenizer.json",
    "tokenizer_config.json", "features.json", "experiment.json", "metrics.json", "digests.json",
}  # fmt: skip


@pytest.mark.parametrize("noted", [True, False], ids=["digests", "no-digests"])
@pytest.mark.parametrize("model", ["sopa", "tfidf"])
def test_damaged_files_of_a_run(model: str, noted: bool, tmp_path: Path) -> None:
    """Each of the first kinds of damage in each file, the commands by turns."""
    damaged = Damaged(trained(model, tmp_path / "whole"), tmp_path, noted)
    turn = 0
    for file in damaged.files:
        for kind in list(DAMAGES)[:6] if file.name in READ else ["foreign"]:
            damaged.use(COMMANDS[turn % len(COMMANDS)], file, kind)
            turn += 1
    assert not damaged.faults


def test_damaged_files_of_a_stopped_run(tmp_path: Path) -> None:
    damaged = Damaged(trained("sopa", tmp_path / "whole", stopped=True), tmp_path, noted=True)
    assert damaged.right(trained_on) is not None
    for file in damaged.files:
        for kind in ("missing", "flipped") if file.suffix == ".pt" else ("cut",):
            damaged.use(trained_on, file, kind)
    assert not damaged.faults


def regex(pattern: str) -> Callable[[dict[str, Any]], None]:
    split = {"type": "Split", "behavior": "Removed", "invert": False, "pattern": {"Regex": pattern}}
    return lambda tokenizer: tokenizer.update(pre_tokenizer=split)


MEANS = "document_vector_means"
CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "id-without-vector": ("tokenizer", lambda each: each["model"]["vocab"].update(good=5000)),
    "id-without-end": ("tokenizer", lambda each: each["model"]["vocab"].update(good=2**31)),
    "no-unknown-word": ("tokenizer", lambda each: each["model"]["vocab"].pop("[UNK]")),
    "exponential-time": ("tokenizer", regex("(o+)+$")),
    "slow-at-every-place": ("tokenizer", regex("(?:o|o){21}(?!)")),  # but nowhere too slow
    "no-expression": ("tokenizer", regex("(((")),
    "empty-rules": ("config", lambda each: each.update(rules={})),
    "means-of-others": ("config", lambda each: each["sopa_plugin"][MEANS].pop()),
    "labels-of-numbers": ("config", lambda each: each.update(id2label={"0": 1, "1": 2})),
    "labels-alike": ("config", lambda each: each.update(id2label={"0": "a", "1": "a"})),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("sopa", tmp_path_factory.mktemp("whole") / "sopa")


@pytest.mark.parametrize("change", CHANGES)
def test_what_does_not_fit_together_is_one_error(
    change: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sopa_plugin.data.tokenizers.LONGEST", 1)
    run = shutil.copytree(whole, tmp_path / "run")
    (run / "digests.json").unlink()
    name, apply = CHANGES[change]
    content = json.loads((run / f"{name}.json").read_text())
    apply(content)
    (run / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"tokenizer|rules|names of classes|do not fit"):
        predict_texts(run, ["so go" + 60 * "o" + "d"])


@pytest.mark.campaign
@pytest.mark.parametrize("noted", [True, False], ids=["digests", "no-digests"])
@pytest.mark.parametrize("model", [*MODELS, "stopped"])
def test_every_damage_of_every_file_by_every_command(
    model: str, noted: bool, tmp_path: Path
) -> None:
    stopped = model == "stopped"
    whole = trained("sopa" if stopped else model, tmp_path / "whole", stopped)
    damaged = Damaged(whole, tmp_path, noted)
    for file in damaged.files:
        for kind in DAMAGES:
            for command in COMMANDS:
                for _ in range(
                    4 if kind in ("cut", "flipped", "other value") and file.name in READ else 1
                ):
                    damaged.use(command, file, kind)
    assert damaged.outcomes > 500
    assert not damaged.faults
