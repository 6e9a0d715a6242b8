from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.experiments import Description, Runner, runner
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


def test_a_failed_trial_is_passed_over(description, tmp_path, monkeypatch, tools, caplog):
    run_experiment, table = tools
    description |= {"models": description["models"][:1], "sizes": [None], "reference": None}
    real = runner._work

    def fail_once(store, label, config):
        if config["trainer"]["C"] == 0.1:
            raise UserError("it diverged")
        return real(store, label, config)

    monkeypatch.setattr(runner, "_work", fail_once)
    description["models"][0]["parameters"]["C"]["values"] = [0.1, 1.0]
    description["tuning"] |= {"num_trials": 6}
    run_experiment(description, tmp_path)
    assert table(tmp_path)[1][0]["config"]["trainer"]["C"] == 1.0
    assert "failed: it diverged" in caplog.text
    description["models"][0]["parameters"]["C"]["values"] = [0.1]
    with pytest.raises(UserError, match=r"sst\.hard\.all: every trial failed: it diverged"):
        run_experiment(description, tmp_path / "other")


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
    from sopa_plugin.experiments.__main__ import main

    file = tmp_path / "report.json"
    file.write_text(json.dumps(description))
    main([str(file), "-s", str(whole), "--report"])
    printed = capsys.readouterr().out
    assert printed.startswith("# Small")
    assert "4 of 4 cells are finished" in printed
    main([str(file), "-s", str(tmp_path), "--report"])
    assert "0 of 4 cells are finished" in capsys.readouterr().out
