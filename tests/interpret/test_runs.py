"""The command on a real run, in processes of its own: read, drawn, edited."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from sopa_plugin import evaluate, explain
from sopa_plugin.cli import run_command
from sopa_plugin.compiled import load_compiled
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.runs import RunReader
from sopa_plugin.models import load_model
from sopa_plugin.training import run_experiment

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = {
    "dataset": {"type": "sst", "path": str(ROOT / "fixtures" / "sst_lines")},
    "model": {
        "type": "text_classifier",
        "embedder": {"type": "static", "vectors": str(ROOT / "fixtures" / "vectors.txt")},
        "encoder": {"type": "sopa", "patterns": {"4": 3, "2": 3}},
        "head": {"type": "mlp", "hidden_dim": 8},
    },
    "trainer": {"type": "accelerate", "batch_size": 16, "num_epochs": 3},
    "seed": 3,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    run_experiment(CONFIG, folder)
    return folder


Call = Callable[..., str]


@pytest.fixture
def call(run: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """What the command prints."""

    def main(*arguments: str) -> str:
        capsys.readouterr()
        explain.main([str(run), *arguments])
        return capsys.readouterr().out

    return main


def process(run: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in another folder than the run's config knew."""
    return subprocess.run(
        [sys.executable, "-m", "sopa_plugin.explain", str(run), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=run.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )


def test_a_fresh_process_explains_lines_of_its_input(run: Path) -> None:
    done = process(run, "document", "--format", "json", stdin="a dull film\n\na moving story\n")
    assert done.returncode == 0, done.stderr
    documents = json.loads(done.stdout)["documents"]
    assert [each["tokens"] for each in documents] == [
        ["a", "dull", "film"],
        [],
        ["a", "moving", "story"],
    ]
    expected = np.exp(load_model(run).log_probabilities(["a dull film", "", "a moving story"]))
    for document, row in zip(documents, expected, strict=True):
        assert list(document["probabilities"].values()) == pytest.approx(row.tolist(), abs=1e-5)


def test_a_mistake_is_one_line_and_no_traceback(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        run_command(lambda: explain.main([str(run), "document", "a film", "--target", "bad"]))
    assert left.value.code == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "error: no label 'bad'; expected one of negative, positive"


@pytest.mark.parametrize(
    "arguments",
    [
        ["patterns", "2-33"],
        ["document", "a film", "--activations", "2-33"],
        ["mask", "2-1", "2-33"],
        ["silence", "2-33", "--replacement", "mean"],
        ["fix", "2-1=1", "2-33=0"],
    ],
    ids=" ".join,
)
def test_a_wrong_name_is_told_before_data_are_read(
    arguments: list[str], run: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"  # a model alone: there are no data to read
    shutil.copytree(run, model, ignore=shutil.ignore_patterns("experiment.json"))
    with pytest.raises(UserError) as caught:
        explain.main([str(model), *arguments])
    start, _, names = str(caught.value).partition("; the nearest are ")
    assert start == "no pattern is called '2-33'"
    assert names.startswith("2-3, ")
    assert len(re.findall(r"\d-\d", names)) == 5


def test_a_model_alone_is_measured_on_the_file_that_is_read(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model, file = tmp_path / "model", tmp_path / "texts.csv"
    shutil.copytree(run, model, ignore=shutil.ignore_patterns("experiment.json"))
    file.write_text("text,label\na good film,positive\na dull film,negative\n", encoding="utf-8")
    explain.main([str(model), "patterns", "--data", str(file), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["measured"] == 2
    assert not caplog.records
    file.write_text("text\na good film\na dull film\n", encoding="utf-8")
    explain.main([str(model), "patterns", "--data", str(file), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["measured"] == 0
    assert "no figures of use" in caplog.text


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_file_is_replaced_by_force_alone_and_before_anything_is_read(
    form: str, call: Call, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    arguments = ["document", "a film", "--format", form, "-o", str(file)]
    with pytest.raises(UserError, match=r"file: the output file exists already.* --force"):
        explain.main(["no_such_run", *arguments])
    assert file.read_text() == "precious"
    link = tmp_path / "link"
    link.symlink_to(file)
    assert call(*arguments[:-1], str(link), "--force") == ""
    assert "film" in file.read_text()
    assert link.is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"file", "link"}
    with pytest.raises(UserError, match="is a folder"):
        call("document", "a film", "-o", str(tmp_path))


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(call: Call, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    file = tmp_path / "out.txt"
    file.write_text("before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))  # as a disk that is full then
    try:
        with pytest.raises(UserError, match=r"out\.txt: cannot be written \(File too large\)"):
            call("document", "a film", "-o", str(file), "--force")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["out.txt"]


def test_a_pipe_is_written_to_as_it_is(call: Call, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    call("document", "a film", "--format", "json", "-o", str(pipe))
    with os.fdopen(reader) as written:
        assert json.loads(written.read())["tokens"] == ["a", "film"]
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]


def test_bytes_that_are_no_utf_8_are_one_error(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"lines:2: not UTF-8 \(byte 0xe9\); convert"):
        explain.main([str(run), "document", "-i", str(lines)])
    with pytest.raises(SystemExit):
        explain.main([str(run), "document", os.fsdecode(b"caf\xe9")])
    assert "argument text: not UTF-8; convert" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.read_bytes())))
    with pytest.raises(UserError, match="input:2: not UTF-8"):
        explain.main([str(run), "document"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["patterns", "--words", "-1"], "expected a whole number from 0, found '-1'"),
        (["fix", "4-1=nan"], "expected NAME=NUMBER, found 'nan'"),
        (["fix", "4-1=inf"], "expected NAME=NUMBER, found 'inf'"),
        (
            ["patterns", "--top", "x"],
            "argument --top: expected a whole number from 1, found 'x'",
        ),
        (["patterns", "2-1", "--top", "1"], "argument --top: not allowed with argument names"),
        (["patterns", "--lines", "x", "--data", "y"], "--data: not allowed with argument --lines"),
        (["patterns", "--lines", "x", "--split", "dev"], "--split: not allowed with argument"),
        (["report", "--data", "x", "--split", "dev"], "--split: not allowed with argument --data"),
        (["document", "a film", "-i", "x"], "argument -i/--input: not allowed with argument text"),
        (["fix", "2-1=0", "--replacement", "zero"], "unrecognized arguments: --replacement"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused_at_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        explain.main(["no_such_run", *arguments])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "positive"], "--target says nothing about --activations"),
        (["--shown", "3"], "--shown says nothing"),
        (["--replacement", "no_match"], "--replacement says nothing"),
    ],
    ids=str,
)
def test_options_that_would_do_nothing_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        explain.main(["no_such_run", "document", "a film", "--activations", "2-1", *arguments])


def test_a_closed_output_is_told_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it where the caller closed it
    with pytest.raises(UserError, match="the standard output is closed; name a file with -o"):
        explain.main(["no_such_run", "document", "a film"])


def test_no_document_is_an_error(call: Call, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    for options in ([], ["--activations", "2-1"]):
        with pytest.raises(UserError, match="no document to explain"):
            call("document", "-i", str(empty), *options)


def test_patterns_of_the_training_set(call: Call, run: Path) -> None:
    found = json.loads(call("patterns", "-k", "3", "--format", "json"))
    texts = RunReader(run).examples(None, "train")[0]
    assert found["documents"] == len(texts)
    assert sorted(each["pattern"] for each in found["patterns"]) == [
        "2-1", "2-2", "2-3", "4-1", "4-2", "4-3",
    ]  # fmt: skip
    for pattern in found["patterns"]:
        assert len(pattern["matches"]) == 3
        assert all(len(arc["words"]) == 10 for arc in pattern["arcs"] if arc["arc"] != "epsilon")
        for match in pattern["matches"]:
            words = texts[match["document"]].split()[match["start"] : match["end"]]
            assert " ".join(words) == match["phrase"]
    assert found["order"] == "dev"
    for order in ("dev", "precision", "share", "influence"):
        figure = "loss" if order == "dev" else order
        first = json.loads(call("patterns", "--top", "1", "--sort", order, "--format", "json"))
        values = [
            max(each["effect"].values()) if order == "influence" else each["use"][figure]
            for each in found["patterns"] + first["patterns"]
        ]
        assert values[-1] == max(values)
    # What dev loses is what masking measures.
    masked = json.loads(call("mask", "4-2", "--format", "json"))
    (use,) = (each["use"] for each in found["patterns"] if each["pattern"] == "4-2")
    rise = masked["after"]["dev_loss"] - masked["before"]["dev_loss"]
    assert use["loss"] == pytest.approx(rise, abs=1e-5)
    strongest = found["patterns"][0]["pattern"]
    assert f"Pattern {strongest}" in call("patterns", "--top", "1")
    assert call("patterns", "4-2", "2-1").count("Pattern ") == 2
    assert "bias" in call("patterns", "4-2", "--automaton")


def test_patterns_over_any_lines(call: Call, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a moving film\u2028here\na dull story\n", encoding="utf-8")
    found = json.loads(call("patterns", "--lines", str(lines), "--format", "json", "--words", "0"))
    assert found["documents"] == 2
    # Lines are the same as for predict.
    lines.write_bytes(b"\xef\xbb\xbfa moving film\r\na dull story\r\n")
    read = json.loads(call("document", "-i", str(lines), "--format", "json"))["documents"]
    assert [each["tokens"] for each in read] == [["a", "moving", "film"], ["a", "dull", "story"]]
    with pytest.raises(UserError, match="cannot be read"):
        call("patterns", "--lines", str(tmp_path / "none.txt"))


def test_other_data_in_the_format_of_the_run(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "new.txt"
    file.write_text("1 a moving film\n0 a dull story\n", encoding="utf-8")
    found = json.loads(call("report", "--data", str(file), "--format", "json", "-k", "1"))
    assert found["metrics"]["examples"] == 2
    assert sum(map(sum, found["confusion"])) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("patterns", "--top", "2"),
        ("patterns", "2-1", "--automaton"),
        ("document", "a dull film"),
        ("document", "a dull film", "--activations", "4-1"),
    ],
    ids=" ".join,
)
def test_pages_and_pictures_are_written(
    arguments: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    for suffix in ("html", "svg"):
        file = tmp_path / "new" / f"out.{suffix}"
        assert call(*arguments, "-o", str(file)) == ""
        text = file.read_text(encoding="utf-8")
        if suffix == "svg":
            ElementTree.fromstring(text)
        else:
            HTMLParser().feed(text)
            assert "<script" not in text
    printed = call(*arguments, "--format", "svg")
    assert printed == (tmp_path / "new" / "out.svg").read_text(encoding="utf-8")


def test_a_report_is_one_page_with_all_of_it(call: Call, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    call("report", "-o", str(file), "--examples", "2", "-k", "2")
    text = file.read_text(encoding="utf-8")
    found = json.loads(call("report", "--format", "json", "--examples", "2", "-k", "2"))
    metrics = json.loads((run / "metrics.json").read_text())
    assert found["metrics"]["accuracy"] == pytest.approx(metrics["best_validation_accuracy"])
    assert found["metrics"]["examples"] == sum(map(sum, found["confusion"]))
    for name in ("2-1", "4-3"):
        assert f'id="pattern-{name}"' in text
        assert f'href="#pattern-{name}"' in text
    for document in found["wrong"]:
        assert document["gold"] != document["predicted"]
    for document in found["right"]:
        assert document["gold"] == document["predicted"]
    wrong = found["metrics"]["examples"] * (1 - found["metrics"]["accuracy"])
    assert len(found["errors"]) == round(wrong) == text.count('class="error"')
    assert [each["document"] for each in found["errors"][:2]] == [
        each["document"] for each in found["wrong"]
    ]
    assert sum(each["documents"] for each in found["calibration"]) == found["metrics"]["examples"]
    error = metrics["best_validation_calibration_error"]
    assert found["metrics"]["calibration_error"] == pytest.approx(error, abs=1e-4)
    assert f"kept: epoch {metrics['best_epoch']}" in text
    sure = [max(each["probabilities"].values()) for each in found["unsure"]]
    assert sure == sorted(sure)
    assert len(found["unsure"]) == 2
    with pytest.raises(
        UserError, match=r"as text, json, html; .* \(\.txt, \.json, \.html, \.htm\),"
    ):
        call("report", "-o", str(tmp_path / "report.svg"))


@pytest.mark.parametrize("content", [None, '{"training_loss": 1}\n', "[" * 9999, "\x00", "[1]"])
def test_a_report_does_without_a_training_curve(
    content: str | None, run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "epochs.jsonl").unlink()
    if content is not None:
        (copy / "epochs.jsonl").write_text(content)
    page = tmp_path / "report.html"
    explain.main([str(copy), "report", "-k", "1", "--examples", "1", "-o", str(page)])
    assert "How it was trained" not in page.read_text(encoding="utf-8")
    assert ("no training curve is drawn" in caplog.text) == (content is not None)


def test_a_concordance_of_wrong_labels(call: Call, run: Path, tmp_path: Path) -> None:
    every = json.loads(call("where", "2-1", "--format", "json", "--split", "train"))
    reading = json.loads(call("patterns", "2-1", "--format", "json", "--words", "0"))
    (pattern,) = reading["patterns"]
    assert len(every["places"]) == round(pattern["fires"] * reading["documents"])
    wrong = json.loads(call("where", "2-1", "--format", "json", "--split", "train", "--wrong"))
    differ = [each for each in every["places"] if each["gold"] != each["predicted"]]
    assert wrong["places"] == differ
    assert len(differ) < len(every["places"])
    text = call("where", "2-1")
    assert text.startswith("Pattern 2-1 fires in ")
    with pytest.raises(UserError, match="no pattern is called '2-33'"):
        call("where", "2-33", "-o", str(tmp_path / "places.html"))


@pytest.mark.parametrize(
    ("action", "replacement"), [("mask", "no_match"), ("silence", None)], ids=str
)
def test_masking_shows_dev_figures_and_saves_a_copy(
    action: str, replacement: str | None, call: Call, run: Path, tmp_path: Path
) -> None:
    before = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    copy = tmp_path / "edited"
    arguments = [action, "2-1", "4-3", "--format", "json"]
    arguments += ["--replacement", replacement] * (replacement is not None)
    found = json.loads(call(*arguments, "-s", str(copy)))
    metrics = json.loads((run / "metrics.json").read_text())
    assert found["before"]["dev_accuracy"] == pytest.approx(metrics["best_validation_accuracy"])
    assert found["after"]["dev_loss"] != found["before"]["dev_loss"]
    assert set(found["edits"]) == {"2-1", "4-3"}
    # The copy is a run: it predicts as was measured, by its model and compiled.
    texts, labels = RunReader(copy).examples(None, "dev")
    predicted = load_model(copy).log_probabilities(texts)
    accuracy = (predicted.argmax(axis=1) == np.array(labels)).mean()
    assert accuracy == pytest.approx(found["after"]["dev_accuracy"])
    compiled = load_compiled(copy)
    assert compiled is not None
    assert np.allclose(compiled.log_probabilities(texts), predicted, atol=1e-4)
    before_edit = load_model(run).log_probabilities(texts).argmax(axis=1)
    differ = np.flatnonzero(predicted.argmax(axis=1) != before_edit).tolist()
    assert [each["document"] for each in found["changed"]] == differ
    assert all(each["text"] == texts[each["document"]] for each in found["changed"])
    for each in found["changed"]:
        assert each["after"] == ("negative", "positive")[predicted[each["document"]].argmax()]
    told = "matches nothing" if replacement == "no_match" else "held at"
    assert f"- 2-1 {told}" in (copy / "README.md").read_text()
    # Whoever may read the run's config may read the copy.
    assert len({file.stat().st_mode for file in copy.iterdir()}) == 1
    # Nothing of the run has changed, and nothing is ever overwritten.
    assert before == {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    with pytest.raises(UserError, match="exists already; an edited model is saved in a new folder"):
        call(*arguments, "-s", str(copy))
    again = json.loads(call("document", "a dull film", "--format", "json"))
    assert again["document"] == 0


def test_a_run_is_compared_with_its_masked_copy_as_masking_told(
    call: Call, run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "edited"
    masked = json.loads(call("mask", "2-1", "4-3", "--format", "json", "-s", str(copy)))
    found = json.loads(call("compare", str(copy), "--format", "json"))
    assert found["names"] == ["small", "edited"]
    assert found["before"] == masked["before"]
    assert found["after"]["dev_loss"] == pytest.approx(masked["after"]["dev_loss"], abs=1e-6)
    ways = [
        [each[key] for key in ("document", "gold", "before", "after")] for each in found["changed"]
    ]
    assert ways == [
        [each[key] for key in ("document", "gold", "before", "after")] for each in masked["changed"]
    ]
    effects = {each["pattern"]: each["after"]["effect"] for each in found["patterns"]}
    assert list(effects["2-1"].values()) == pytest.approx([0, 0], abs=1e-6)
    assert call("compare", str(run)).startswith(f"{run} → {run}\n")
    page = tmp_path / "compared.html"
    for arguments in (("compare", str(copy), "--split", "train"), ("mask", "2-1")):
        call(*arguments, "-o", str(page), "--force")
        text = page.read_text(encoding="utf-8")
        HTMLParser().feed(text)
        assert "Labels that flip" in text


def test_faithfulness_is_the_same_in_table_and_evaluation(
    call: Call, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = json.loads(call("faithfulness", "--format", "json"))
    assert {"next", "no_match", "zero", "mean", "random"} < set(table["rankings"])
    phrases, spans = (table["rankings"][name]["comprehensiveness"] for name in ("next", "random"))
    assert phrases > spans
    evaluate.main([str(run), "--split", "dev", "--faithfulness"])
    found = json.loads(capsys.readouterr().out)["faithfulness"]
    assert found["documents"] == table["documents"] <= 100
    for name in ("next", "gradient", "leave_one_word_out", "random"):
        for figure in ("comprehensiveness", "sufficiency"):
            expected = table["rankings"][name][figure]
            assert found["rankings"][name][figure] == pytest.approx(expected, abs=1e-4)
    assert call("faithfulness", str(run)).startswith("Faithfulness over ")


def test_fixing_a_pattern_at_a_value(call: Call) -> None:
    text = call("fix", "2-1=0.5", "4-1=-1")
    assert text.startswith("2 patterns edited: 2-1 held at 0.5, 4-1 held at -1\n")
    assert "dev accuracy" in text
    with pytest.raises(UserError, match="2-1 is given several values"):
        call("fix", "2-1=3", "4-1=1", "2-1=2")


def test_the_mean_is_that_of_the_training_set(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As training saved it; of a run of an earlier version, taken when it is wanted."""
    old = tmp_path / "old"
    shutil.copytree(run, old, ignore=shutil.ignore_patterns("digests.json"))
    config = json.loads((old / "config.json").read_text())
    stored = config["sopa_plugin"].pop("document_vector_means")
    (old / "config.json").write_text(json.dumps(config))
    for folder, told in ((run, ""), (old, "taken over its train set now")):
        reader = RunReader(folder, "mean")
        options = {"names": [], "sort": None, "top": None, "automaton": False}
        reader.patterns(Namespace(lines=["a moving film"], k=1, words=0, **options))
        assert reader.explainer.means is not None
        assert reader.explainer.means.tolist() == pytest.approx(stored, rel=1e-5)
        assert told in caplog.text
        assert bool(caplog.text) == bool(told)


def test_what_has_no_patterns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        explain.main([str(tmp_path / "none"), "document", "a film"])


def test_test_texts_of_labels_that_the_model_has_not_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [(f"{word} thing {n}", word) for n in range(6) for word in ("good", "bad")]
    for split in ("train", "dev", "test"):
        rows = [*texts, ("odd thing", "odd")] if split == "test" else texts
        lines = ["text,label", *(f"{text},{label}" for text, label in rows)]
        (tmp_path / f"{split}.csv").write_text("\n".join(lines))
    config = {
        **CONFIG,
        "dataset": {"type": "text", "path": str(tmp_path), "labels_only_in_test": "count"},
        "model": {**CONFIG["model"], "embedder": {"type": "static", "embedding_dim": 4}},
    }
    run_experiment(config, tmp_path / "run")
    explain.main([str(tmp_path / "run"), "where", "2-1", "--split", "test"])
    assert "of 12 documents" in capsys.readouterr().out
    explain.main(
        [str(tmp_path / "run"), "report", "--split", "test", "-o", str(tmp_path / "r.html")]
    )
    saved = tmp_path / "run" / "config.json"
    others = saved.read_text().replace('"good"', '"fine"').replace('"bad"', '"poor"')
    saved.write_text(others.replace('"odd"', '"rare"'))
    with pytest.raises(UserError, match="the dev set has no label that the model knows; expected"):
        explain.main(
            [
                str(tmp_path / "run"),
                "mask",
                "2-1",
                "-s",
                str(tmp_path / "masked"),
                "--accept-changed",
            ]
        )
    assert not (tmp_path / "masked").exists()
