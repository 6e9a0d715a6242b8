from __future__ import annotations

import contextlib
import json
import logging
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from sopa_plugin.cli import run_command
from sopa_plugin.comparisons import Search, study, write_search_report
from sopa_plugin.comparisons import run_search as run
from sopa_plugin.errors import TrainingFailed, UserError
from sopa_plugin.registry import ConfigError, build

ROOT = Path(__file__).parents[2]
VECTORS = str(ROOT / "fixtures" / "vectors.txt")
SPACE = {
    "base": {
        "dataset": {"type": "sst", "path": str(ROOT / "fixtures" / "sst")},
        "model": {
            "type": "text_classifier",
            "embedder": {"type": "static", "vectors": VECTORS},
            "encoder": {"type": "dan"},
        },
        "trainer": {"type": "accelerate", "batch_size": 64, "num_epochs": 3},
    },
    "parameters": {
        "lr": {
            "type": "uniform",
            "low": 0.0003,
            "high": 0.03,
            "log": True,
            "keys": ["trainer.optimizer.lr"],
        },
        "hidden": {"values": [10, 20], "keys": ["model.head.hidden_dim"]},
    },
    "num_trials": 4,
}


def run_search(search, folder, *args):
    """As the command does it."""
    found = run(search, folder, *args)
    write_search_report(found, folder)
    return found


def trials(folder: Path) -> dict[int, tuple]:
    found = json.loads((folder / "trials.json").read_text())
    return {each["number"]: (each["state"], each["value"], each["parameters"]) for each in found}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    run_search(build(Search, SPACE), folder)
    return folder


def test_report(whole):
    found = trials(whole)
    assert [found[i][0] for i in range(4)] == ["complete"] * 4
    best = min(found.values(), key=lambda each: each[1])
    config = json.loads((whole / "best.json").read_text())
    assert config["trainer"]["optimizer"]["lr"] == best[2]["lr"]
    assert config["model"]["head"]["hidden_dim"] == best[2]["hidden"]
    table = (whole / "trials.md").read_text().splitlines()
    assert len(table) == 2 + 4
    assert f"| {best[1]:.4f} |" in table[2]
    for name in ("history.png", "parameters.png"):
        assert (whole / name).read_bytes().startswith(b"\x89PNG")
    assert not [each for each in (whole / "trials").iterdir() if each.is_dir()]


def test_best_config_is_ready_for_train(whole):
    from sopa_plugin.train import main

    main([str(whole / "best.json"), "--validate"])


def test_going_on_and_raising_the_number_of_trials(whole, tmp_path, monkeypatch):
    run_search(build(Search, {**SPACE, "num_trials": 2}), tmp_path)
    assert trials(tmp_path) == {number: trials(whole)[number] for number in (0, 1)}
    run_search(build(Search, SPACE), tmp_path)
    assert trials(tmp_path) == trials(whole)
    monkeypatch.setattr(study, "run_once", None)  # nothing is left to run
    run_search(build(Search, SPACE), tmp_path)


def test_another_search_in_the_same_folder_is_refused(whole):
    other = build(Search, {**SPACE, "seed": 2, "metric": "+accuracy"})
    with pytest.raises(UserError, match="it differs in metric, seed"):
        run_search(other, whole)


def test_killed_and_two_processes_in_one_folder(whole, tmp_path):
    file = tmp_path / "space.json"
    file.write_text(json.dumps(SPACE))
    command = [sys.executable, "-m", "sopa_plugin.search", str(file), "-s", str(tmp_path / "run")]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    begun = tmp_path / "run" / "trials" / f"{build(Search, SPACE).digest}.0"
    while not begun.is_dir() and time.monotonic() < deadline:
        assert first.poll() is None
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    first.wait()
    # the trial that it left is taken up by one of the two that come next
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in "ab"]
    logs = [each.communicate(timeout=300)[1].decode() for each in both]
    assert [each.returncode for each in both] == [0, 0], logs
    found, expected = trials(tmp_path / "run"), trials(whole)
    assert found.keys() == expected.keys()
    for number, (state, value, parameters) in expected.items():
        assert found[number][0] == state
        assert found[number][2] == parameters
        assert found[number][1] == pytest.approx(value, abs=1e-4)
    ran = [
        line.split("] ")[1].split(":")[0]
        for log in logs
        for line in log.splitlines()
        if "] trial " in line
    ]
    assert sorted(ran) == [f"trial {number}" for number in range(4)]


@pytest.fixture
def levels():
    """The loggers' levels, as they were before a command set them."""
    loggers = [logging.getLogger(f"sopa_plugin{part}") for part in ("", ".comparisons")]
    before = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


@pytest.mark.parametrize(
    ("arguments", "epochs"), [([], 0), (["--verbose"], 3), (["--workers", "2"], 0)]
)
@pytest.mark.usefixtures("levels")
def test_a_trial_is_a_line(arguments, epochs, tmp_path, caplog, capfd):
    from sopa_plugin.search import main

    file = tmp_path / "space.json"
    file.write_text(json.dumps({**SPACE, "num_trials": 1}))
    with pytest.raises(SystemExit) as left:
        run_command(lambda: main([str(file), "-s", str(tmp_path / "run"), *arguments]))
    assert left.value.code == 0
    assert sum(each.startswith("[1/1] trial 0: dev loss ") for each in caplog.messages) == 1
    assert sum(each.startswith("epoch ") for each in caplog.messages) == epochs
    lines = [each for each in caplog.messages if not each.endswith("; 2 workers")]
    assert epochs or len(lines) == 1
    assert "best validation" not in capfd.readouterr().err  # as a worker's own log has it


def test_a_database_that_folders_share(tmp_path, monkeypatch):
    space = {**SPACE, "sampler": "tpe", "pruner": "median", "metric": "+accuracy", "num_trials": 3}
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    best = run_search(build(Search, space), tmp_path / "run", storage).complete[0]
    found = trials(tmp_path / "run")
    assert best.value == max(each[1] for each in found.values() if each[1] is not None)
    monkeypatch.setattr(study, "run_once", None)  # nothing is left to run
    run_search(build(Search, space), tmp_path / "of another machine", storage)
    assert trials(tmp_path / "of another machine") == found
    with pytest.raises(UserError, match="--storage nonsense: cannot be opened"):
        run_search(build(Search, space), tmp_path / "run", "nonsense")


def begin(search, folder, storage=None):
    """A trial that is begun, as a process leaves it that is killed before it trains."""
    found = study.Study(search, "", study.Storage(folder, storage))
    with contextlib.ExitStack() as held:
        assert found._take(held).number == 0
    return found


def test_a_trial_without_heartbeats_is_done_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(study, "HEARTBEAT", 1)
    only = build(Search, {**SPACE, "num_trials": 1})
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    assert begin(only, tmp_path / "killed", storage).is_running
    caplog.set_level(logging.INFO, "sopa_plugin.comparisons")
    run_search(only, tmp_path / "run", storage)
    assert "waiting for trials that run in other processes" in caplog.messages
    assert [state for state, *_ in trials(tmp_path / "run").values()] == ["complete"]


def test_a_trial_that_runs_elsewhere_is_waited_for(tmp_path, caplog):
    only = build(Search, {**SPACE, "num_trials": 1})
    lock = FileLock(begin(only, tmp_path)._lock(0).lock_file, thread_local=False)
    lock.acquire()
    threading.Timer(1, lock.release).start()
    caplog.set_level(logging.INFO, "sopa_plugin.comparisons")
    run_search(only, tmp_path)
    assert "waiting for trials that run in other processes" in caplog.messages
    assert trials(tmp_path)[0][0] == "complete"


def test_a_pruned_trial_is_stopped_and_no_number(tmp_path, monkeypatch):
    import optuna

    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", lambda *_: _[2].number > 0)
    space = {**SPACE, "pruner": "median", "num_trials": 3}
    run_search(build(Search, space), tmp_path)
    found = trials(tmp_path)
    assert [found[number][:2] for number in (1, 2)] == [("pruned", None)] * 2
    assert (tmp_path / "trials.md").read_text().count("| pruned |") == 2
    assert not [each for each in (tmp_path / "trials").iterdir() if each.is_dir()]
    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", lambda *_: True)
    with pytest.raises(UserError, match="no trial came to an end: all were pruned"):
        run_search(build(Search, space), tmp_path / "other")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_result_that_is_no_number_fails_its_trial(tmp_path, monkeypatch, value):
    real = study.run_once

    def diverge(config, folder, on_epoch):
        result = real(config, folder, on_epoch)
        return replace(result, metrics={**result.metrics, "best_validation_loss": value})

    monkeypatch.setattr(study, "run_once", diverge)
    with pytest.raises(UserError, match=f"training diverged: the best dev -loss is {value}"):
        run_search(build(Search, {**SPACE, "num_trials": 1}), tmp_path)


def test_what_is_no_fault_of_a_trial_ends_the_search(tmp_path, monkeypatch):
    def full_disk(*_):
        raise UserError("the model cannot be written")

    monkeypatch.setattr(study, "run_once", full_disk)
    with pytest.raises(UserError, match="trial 0: the model cannot be written"):
        run_search(build(Search, {**SPACE, "num_trials": 1}), tmp_path)
    monkeypatch.undo()
    run_search(build(Search, {**SPACE, "num_trials": 1}), tmp_path)  # takes the trial up again
    assert [state for state, *_ in trials(tmp_path).values()] == ["complete"]


def test_values_that_do_not_go_together_fail_their_trial(tmp_path):
    base = json.loads(json.dumps(SPACE["base"]))
    base["model"]["encoder"] = {"type": "cnn"}
    both = {
        "encoder": {"keys": ["model.encoder.type"], "values": ["dan", "cnn"]},
        "window": {"keys": ["model.encoder.window_sizes"], "values": [[2], [3]]},
    }
    run_search(build(Search, {"base": base, "parameters": both, "num_trials": 4}), tmp_path)
    states = {each[2]["encoder"]: each[0] for each in trials(tmp_path).values()}
    assert states == {"dan": "fail", "cnn": "complete"}


def test_a_journal_that_was_cut_off_is_gone_on_with(whole, tmp_path):
    folder = tmp_path / "search"
    shutil.copytree(whole, folder)
    only = build(Search, SPACE)
    journal = folder / "studies.log"
    text = journal.read_text()
    journal.write_text(text[:-20])
    run_search(only, folder)
    assert trials(folder) == trials(whole)
    for line in ("no json", "{}"):
        journal.write_text(f"{line}\n{text}")
        with pytest.raises(UserError, match=r"studies\.log: damaged"):
            run_search(only, folder)


def test_defaults_make_no_other_search():
    """Nor does a setting that a later version brings, as long as it is left as it is."""
    whole = build(Search, SPACE)
    assert whole.settings.keys() == {"base", "parameters", "metric"}
    same = {**SPACE, "sampler": "random", "seed": 1, "num_trials": 2}
    assert build(Search, same).digest == whole.digest
    assert build(Search, {**SPACE, "seed": 2}).digest != whole.digest


def test_a_trial_that_ended_meanwhile_is_not_abandoned(tmp_path):
    """It ends after the running trials are listed and before they are put back."""
    only = build(Search, {**SPACE, "num_trials": 1})
    found = begin(only, tmp_path)
    listed = found.optuna.get_trials(deepcopy=False)
    found.optuna.tell(0, 0.5)
    assert not found._set_state(listed[0], "WAITING")
    assert found.is_done


def test_failing_trials(tmp_path, monkeypatch):
    real = study.run_once

    def fail(config, folder, on_epoch):
        if not folder.name.endswith(".2"):
            raise TrainingFailed("it diverged")
        return real(config, folder, on_epoch)

    monkeypatch.setattr(study, "run_once", fail)
    best = run_search(build(Search, {**SPACE, "num_trials": 3}), tmp_path).complete[0]
    assert best.number == 2
    assert [trials(tmp_path)[number][0] for number in range(3)] == ["fail", "fail", "complete"]
    with pytest.raises(UserError, match="no trial came to an end: it diverged"):
        run_search(build(Search, {**SPACE, "num_trials": 2}), tmp_path / "other")


def test_mistakes_are_told_before_anything_runs():
    wrong = json.loads(json.dumps(SPACE))
    wrong["base"]["model"]["encoder"]["word_droput"] = 0.1
    with pytest.raises(ConfigError, match="word_droput"):
        build(Search, wrong)
    with pytest.raises(ConfigError, match=r"hidden_dim"):
        build(Search, {**SPACE, "parameters": {"model.head.hiden_dim": {"values": [1]}}})
