from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from sopa_plugin.comparisons import Description, Runner, runner, single_run
from sopa_plugin.comparisons.workers import worker_pool
from sopa_plugin.errors import UserError
from sopa_plugin.registry import build


def test_every_run_is_there_and_the_best_trial_was_taken(whole):
    cells = json.loads((whole / "report" / "table.json").read_text())
    assert [(each["model"], each["size"]) for each in cells] == [
        ("hard", 60),
        ("dan", 60),
        ("hard", None),
        ("dan", None),
    ]
    for cell in cells:
        name = f"sst.{cell['model']}.{cell['size'] or 'all'}"
        results = [
            json.loads(each.read_text()) for each in (whole / "results" / name).glob("*.json")
        ]
        trials = [each for each in results if each["config"]["seed"] == 1]
        best = min(trials, key=lambda each: each["metrics"]["best_validation_loss"])
        assert cell["config"] == best["config"]
        assert cell["accuracies"][0] == pytest.approx(100 * best["metrics"]["test_accuracy"])
        right = sum(g == p for g, p in zip(best["gold"], best["predicted"], strict=True))
        assert right / len(best["gold"]) == pytest.approx(best["metrics"]["test_accuracy"])
        # nothing but results stays
        assert {each.suffix for each in (whole / "results" / name).iterdir()} == {".json", ".lock"}


def test_interrupted_and_gone_on_with_gives_the_same_table(whole, description, tmp_path, tools):
    run_experiment, table = tools
    run_experiment(description, tmp_path, cells=1)
    assert " & --" in table(tmp_path)[0]
    assert len(table(tmp_path)[1]) == 1
    run_experiment(description, tmp_path)
    assert table(tmp_path) == table(whole)


def test_what_is_done_is_not_done_again(whole, description, monkeypatch):
    def refuse(*_):
        raise AssertionError("nothing is left to run")

    monkeypatch.setattr(runner, "_work", refuse)
    again = Runner(build(Description, description), whole)
    assert again.done == again.total == 16
    assert list(again.run(workers=0)) == []
    # another experiment finds the results it has in common
    description |= {"models": description["models"][:1], "sizes": [None], "reference": None}
    assert list(Runner(build(Description, description), whole).run(workers=0)) == []


def test_a_failed_trial_is_passed_over_and_not_tried_again(
    description, tmp_path, monkeypatch, tools, caplog
):
    run_experiment, table = tools
    description |= {"models": description["models"][:1], "sizes": [None], "reference": None}
    frequency = {"keys": ["model.min_frequency"], "values": [3, 100_000]}
    description["models"][0]["parameters"] = {"frequency": frequency}
    description["tuning"] |= {"num_trials": 6}
    run_experiment(description, tmp_path)
    assert table(tmp_path)[1][0]["config"]["model"]["min_frequency"] == 3
    assert "failed: model.min_frequency: no pattern is in 100000 of the" in caplog.text
    assert "(to try again, delete " in caplog.text
    # nothing but results stays
    kept = {each.suffix for each in (tmp_path / "results" / "sst.hard.all").iterdir()}
    assert kept == {".json", ".lock"}

    monkeypatch.setattr(runner, "_work", None)  # nothing is left to run
    again = Runner(build(Description, description), tmp_path)
    assert [each.finished is not None for each in again.states] == [True]
    assert list(again.run(workers=0)) == []
    monkeypatch.undo()

    description["models"][0]["parameters"]["frequency"]["values"] = [100_000]
    for _ in range(2):
        message = r"sst\.hard\.all: every trial failed: model\.min_freq.*\(to try again, delete "
        with pytest.raises(UserError, match=message):
            run_experiment(description, tmp_path)


def test_what_is_no_fault_of_a_trial_ends_the_experiment(description, tmp_path, monkeypatch):
    description |= {"models": description["models"][:1], "sizes": [None], "reference": None}

    def full_disk(*_):
        raise UserError("the model cannot be written")

    monkeypatch.setattr(runner, "_work", full_disk)
    with pytest.raises(UserError, match=r"sst\.hard\.all trial 1: the model cannot be written"):
        list(Runner(build(Description, description), tmp_path).run(workers=0))
    monkeypatch.undo()
    done = Runner(build(Description, description), tmp_path)
    assert done.done == 0
    assert len(list(done.run(workers=0))) == 1


def test_a_cell_that_cannot_be_finished_does_not_hold_up_the_others(description, tmp_path):
    description |= {"sizes": [None], "reference": None}
    description["models"][0]["parameters"] = {}
    description["models"][0]["config"]["model"]["min_frequency"] = 100_000
    done = Runner(build(Description, description), tmp_path)
    finished = []
    with pytest.raises(UserError, match=r"^sst\.hard\.all: every trial failed: [^\n]*$"):
        finished.extend(each.cell.name for each in done.run(workers=0))
    assert finished == ["sst.dan.all"]


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"config": ', "null"])
def test_a_damaged_result_is_made_again(whole, description, tmp_path, tools, damage, caplog):
    run_experiment, table = tools
    description |= {"models": description["models"][:1], "sizes": [None], "reference": None}
    shutil.copytree(whole / "results", tmp_path / "results")
    (broken, *_) = sorted((tmp_path / "results" / "sst.hard.all").glob("*.json"))
    broken.write_text(damage)
    run_experiment(description, tmp_path)
    assert f"{broken}: no result" in caplog.text
    (cell,) = table(tmp_path)[1]
    (expected,) = [each for each in table(whole)[1] if each["model"] == "hard" and not each["size"]]
    assert cell["accuracies"] == expected["accuracies"]


def test_a_run_that_was_half_deleted_is_made_again(description, tmp_path, monkeypatch):
    cell = build(Description, description).cells()[0]
    config = build(Description, description).config(cell, 1)

    remove = shutil.rmtree

    def die(folder, **options):
        if folder != tmp_path / "run":
            return remove(folder, **options)
        (folder / "test_predictions.jsonl").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", die)
    with pytest.raises(KeyboardInterrupt):
        single_run.run_once(config, tmp_path / "run")
    monkeypatch.undo()
    assert len(single_run.run_once(config, tmp_path / "run").predicted) > 0


def test_results_on_other_examples_are_not_compared(description, tmp_path, tools, caplog):
    run_experiment, table = tools
    description |= {"sizes": [60]}
    run_experiment(description, tmp_path)
    for file in (tmp_path / "results" / "sst.hard.60").glob("*.json"):
        result = json.loads(file.read_text())
        file.write_text(json.dumps({**result, "gold": result["gold"][1:] + result["gold"][:1]}))
    run_experiment(description, tmp_path)
    assert "sst.hard.60: not compared: its models were tested on different examples" in caplog.text
    assert [each["comparison"] for each in table(tmp_path)[1]] == [None, None]


def test_more_examples_than_there_are_is_left_open(description, tmp_path, tools):
    run_experiment, table = tools
    description |= {"models": description["models"][:1], "sizes": [60, 100_000, None]}
    description |= {"reference": None}
    run_experiment(description, tmp_path)
    assert [each["size"] for each in table(tmp_path)[1]] == [60, None]
    text = (tmp_path / "report" / "table.md").read_text()
    assert "Left open, for want of training examples: SST (100,000)." in text
    assert "**SST: the embedded sample; figures say nothing about real data.**" in text


def _die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_dead_worker_is_told_of():
    with pytest.raises(UserError, match="a worker process died"), worker_pool(1) as pool:
        pool.submit(_die).result()


def test_killed_while_training_and_started_again(whole, description, tmp_path, tools):
    run_experiment, table = tools
    file = tmp_path / "small.json"
    file.write_text(json.dumps(description))
    command = [sys.executable, "-m", "sopa_plugin.experiments", str(file), "--workers", "2"]
    process = subprocess.Popen([*command, "-s", str(tmp_path)], stderr=subprocess.DEVNULL)
    results = tmp_path / "results"
    deadline = time.monotonic() + 300
    while not list(results.glob("*/*.run")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(list(results.glob("*/*.json"))) < 12  # it was not done
    run_experiment(description, tmp_path)  # waits for the locks, which the workers' end frees
    assert table(tmp_path) == table(whole)


def test_command_reports_and_prints(whole, description, tmp_path, capsys):
    from sopa_plugin.comparisons.__main__ import main

    file = tmp_path / "report.json"
    file.write_text(json.dumps(description))
    main([str(file), "-s", str(whole), "--report"])
    printed = capsys.readouterr().out
    assert printed.startswith("# Small")
    assert "4 of 4 cells are finished" in printed
    main([str(file), "-s", str(tmp_path), "--report"])
    assert "0 of 4 cells are finished" in capsys.readouterr().out
