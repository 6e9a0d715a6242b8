from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import optuna
import pytest

from sopa_plugin.comparisons import Description, Runner, runner, study
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
    # Optuna alone reads what is kept
    backend = optuna.storages.journal.JournalFileBackend(str(whole / "studies.log"))
    storage = optuna.storages.JournalStorage(backend)
    studies = [
        optuna.load_study(study_name=name, storage=storage)
        for name in optuna.get_all_study_names(storage)
    ]
    by_name = {each.user_attrs["name"]: each for each in studies}
    assert len(studies) == len(by_name) == 8
    for cell in cells:
        name = f"sst.{cell['model']}.{cell['size'] or 'all'}"
        best = by_name[name].best_trial.user_attrs
        other = by_name[f"{name} seed 2"].best_trial.user_attrs
        (final,) = by_name[name].user_attrs["finals"].values()
        assert final == by_name[f"{name} seed 2"].study_name
        assert cell["config"] == best["config"]
        assert best["config"]["seed"] == 1
        assert other["config"]["seed"] == 2
        assert other["config"]["model"] == best["config"]["model"]
        for accuracy, run in zip(cell["accuracies"], (best, other), strict=True):
            assert accuracy == pytest.approx(100 * run["metrics"]["test_accuracy"])
            result = study.Result(**run)
            assert result.right().mean() == pytest.approx(run["metrics"]["test_accuracy"])
            assert len(result.right()) == result.examples == 100
    # nothing but results stays of a run
    assert {each.suffix for each in (whole / "trials").iterdir()} == {".lock"}


def test_interrupted_and_gone_on_with_gives_the_same_table(whole, description, tmp_path, tools):
    run_experiment, table = tools
    run_experiment(description, tmp_path, cells=1)
    assert " & --" in table(tmp_path)[0]
    assert len(table(tmp_path)[1]) == 1
    run_experiment(description, tmp_path)
    assert table(tmp_path) == table(whole)


def test_what_is_done_is_not_done_again(whole, description, monkeypatch):
    monkeypatch.setattr(study, "run_once", None)
    again = Runner(build(Description, description).plans(), whole)
    assert again.done == again.total == 12
    assert list(again.run()) == []
    # another comparison finds what it has in common, whatever it calls it
    description |= {"models": description["models"][:1], "sizes": [None], "reference": None}
    description["models"][0]["name"] = "other"
    found = Runner(build(Description, description).plans(), whole)
    assert list(found.run()) == []
    assert found.done == 3


def test_a_failed_trial_is_passed_over_and_not_tried_again(
    description, tmp_path, monkeypatch, tools, caplog
):
    run_experiment, table = tools
    description |= {"models": description["models"][:1], "sizes": [None], "reference": None}
    frequency = {"keys": ["model.min_frequency"], "values": [3, 100_000]}
    description["models"][0]["parameters"] = {"frequency": frequency}
    description["tuning"] |= {"num_trials": 6}
    done = run_experiment(description, tmp_path)
    assert table(tmp_path)[1][0]["config"]["model"]["min_frequency"] == 3
    assert "failed: model.min_frequency: no pattern is in 100000 of the" in caplog.text
    states = [each.state.name for each in done.cells[0].search.trials]
    assert set(states) == {"COMPLETE", "FAIL"}
    # what was drawn before is not run again: one complete trial, and the second seed
    assert table(tmp_path)[1][0]["runs"] == 2
    assert states.count("COMPLETE") > 1

    monkeypatch.setattr(study, "run_once", None)  # nothing is left to run
    again = Runner(build(Description, description).plans(), tmp_path)
    assert [each.results is not None for each in again.cells] == [True]
    assert list(again.run()) == []
    monkeypatch.undo()

    description["models"][0]["parameters"]["frequency"]["values"] = [100_000]
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"^sst\.hard\.all: no trial came to an end: model\.min_freq"
        ):
            run_experiment(description, tmp_path)


def test_a_cell_that_cannot_be_finished_does_not_hold_up_the_others(description, tmp_path):
    description |= {"sizes": [None], "reference": None}
    description["models"][0]["parameters"] = {}
    description["models"][0]["config"]["model"]["min_frequency"] = 100_000
    found = Runner(build(Description, description).plans(), tmp_path)
    finished = []
    with pytest.raises(UserError, match=r"^sst\.hard\.all: no trial came to an end: [^\n]*$"):
        finished.extend(each.plan.name for each in found.run())
    assert finished == ["sst.dan.all"]


def test_a_class_that_a_subset_lost_fails_its_cell(description, tmp_path):
    for split, rare in (("train", 2), ("dev", 1), ("test", 1)):
        lines = ["good\tit is fine and good"] * 30 + ["bad\tit is poor and bad"] * 30
        (tmp_path / f"{split}.tsv").write_text(
            "\n".join(["label\ttext", *lines, *["odd\tit is strange"] * rare])
        )
    description["data"][0]["config"]["dataset"] = {"type": "text", "path": str(tmp_path)}
    description |= {"models": description["models"][:1], "sizes": [4, None], "reference": None}
    found = Runner(build(Description, description).plans(), tmp_path / "results")
    finished = []
    with pytest.raises(UserError, match=r"^sst\.hard\.4: no trial came to an end: .*\bodd\b"):
        finished.extend(each.plan.name for each in found.run())
    assert finished == ["sst.hard.all"]


def test_a_run_that_was_half_deleted_is_made_again(description, tmp_path, monkeypatch):
    compared = build(Description, description)
    config = compared.config(compared.cells()[0], 1)

    remove = shutil.rmtree

    def die(folder, **options):
        if folder != tmp_path / "run":
            return remove(folder, **options)
        (folder / "test_predictions.jsonl").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", die)
    with pytest.raises(KeyboardInterrupt):
        study.run_once(config, tmp_path / "run")
    monkeypatch.undo()
    assert len(study.run_once(config, tmp_path / "run").right()) > 0


def test_results_on_other_examples_are_not_compared_until_run_again(
    description, tmp_path, tools, caplog
):
    run_experiment, table = tools
    description |= {"sizes": [60]}
    description["models"][1]["parameters"] = {}
    data = tmp_path / "data"
    shutil.copytree(description["data"][0]["config"]["dataset"]["path"], data)
    description["data"][0]["config"]["dataset"]["path"] = str(data)
    run_experiment({**description, "models": description["models"][1:]}, tmp_path / "out")
    lines = (data / "test.txt").read_text().splitlines(keepends=True)
    (data / "test.txt").write_text("".join(lines[1:]))
    run_experiment(description, tmp_path / "out")
    assert "sst.hard.60: not compared: its models were tested on different examples" in caplog.text
    assert "--redo 'sst.*'" in caplog.text
    assert [each["comparison"] for each in table(tmp_path / "out")[1]] == [None, None]
    found = Runner(build(Description, description).plans(), tmp_path / "out")
    found.redo("sst.dan.*")
    assert [each.done for each in found.cells] == [3, 0]
    run_experiment(description, tmp_path / "out")
    assert table(tmp_path / "out")[1][0]["comparison"] is not None
    with pytest.raises(UserError, match=r"--redo sst\.cnn: no such cell; expected one of sst\.ha"):
        found.redo("sst.cnn")


def test_more_examples_than_there_are_is_left_open(description, tmp_path, tools):
    run_experiment, table = tools
    description |= {"models": description["models"][:1], "sizes": [60, 100_000, None]}
    description |= {"reference": None}
    run_experiment(description, tmp_path)
    assert [each["size"] for each in table(tmp_path)[1]] == [60, None]
    text = (tmp_path / "report" / "table.md").read_text()
    assert "Left open, for want of training examples: SST (100,000)." in text
    assert "**SST: the embedded sample; figures say nothing about real data.**" in text


PLUGIN = """
import os, signal
from sopa_plugin.data.readers import DatasetReader, SstReader

@DatasetReader.register("deadly")
class DeadlyReader(SstReader):
    def read(self):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_dead_worker_is_told_of(description, tmp_path):
    (tmp_path / "deadly_plugin.py").write_text(PLUGIN)
    description["data"][0]["config"]["dataset"]["type"] = "deadly"
    file = tmp_path / "deadly.json"
    file.write_text(json.dumps(description))
    command = [sys.executable, "-m", "sopa_plugin.experiments", str(file), "--workers", "2"]
    command += ["-s", str(tmp_path / "out"), "--include-package", "deadly_plugin"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    found = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert found.returncode == 1
    assert "error: a worker process died" in found.stderr


def test_killed_while_training_and_started_again(whole, description, tmp_path, tools):
    run_experiment, table = tools
    file = tmp_path / "small.json"
    file.write_text(json.dumps(description))
    command = [sys.executable, "-m", "sopa_plugin.experiments", str(file), "--workers", "2"]
    process = subprocess.Popen([*command, "-s", str(tmp_path)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        trials = tmp_path / "trials"
        if trials.is_dir() and any(each.is_dir() for each in trials.iterdir()):
            break
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert Runner(build(Description, description).plans(), tmp_path).done < 12
    run_experiment(description, tmp_path)  # waits for what the workers hold until they end too
    assert table(tmp_path) == table(whole)


def test_workers_share_out_gpus():
    from joblib import Parallel, delayed

    def gpu(gpus):
        runner._set_up_worker((), gpus)
        time.sleep(0.2)
        return os.environ["CUDA_VISIBLE_DEVICES"]

    found = Parallel(2)(delayed(gpu)(("4", "7")) for _ in range(2))
    assert set(found) == {"4", "7"}


def test_command_reports_prints_and_keeps_tables(whole, description, tmp_path, capsys):
    from sopa_plugin.experiments import main

    file = tmp_path / "report.json"
    file.write_text(json.dumps(description))
    page = tmp_path / "docs" / "README.md"
    page.parent.mkdir()
    mark = "<!-- report.{} -->\n{}<!-- end -->\n"
    page.write_text(
        "before\n"
        + mark.format("accuracy", "old\n")
        + "between\n"
        + mark.format("curve", "")
        + "<!-- other.accuracy -->\nleft alone\n<!-- end -->\n"
    )
    main([str(file), "-s", str(whole), "--report", "--into", str(page)])
    printed = capsys.readouterr().out
    assert printed.startswith("# Small")
    assert "4 of 4 cells are finished" in printed
    kept = page.read_text()
    assert kept.startswith(
        f"before\n<!-- report.accuracy -->\n`python -m sopa_plugin.experiments {file}`. Test "
    )
    assert (
        "| – paper | 71.0 | 83.1 |\n\n† differs from DAN (p < 0.05).\n<!-- end -->\nbetween" in kept
    )
    assert kept.endswith(
        "between\n<!-- report.curve -->\n![Small](../report.svg)\n<!-- end -->\n"
        "<!-- other.accuracy -->\nleft alone\n<!-- end -->\n"
    )
    assert "training examples (SST)" in (tmp_path / "report.svg").read_text()
    page.write_text("nothing\n")
    with pytest.raises(UserError, match=r"README\.md: expected lines as <!-- report\.accuracy -->"):
        main([str(file), "-s", str(whole), "--report", "--into", str(page)])
    capsys.readouterr()
    main([str(file), "-s", str(tmp_path), "--report"])
    assert "0 of 4 cells are finished" in capsys.readouterr().out
