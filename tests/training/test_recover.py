"""Runs that are killed and recovered, in processes of their own."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sopa_plugin.errors import UserError
from sopa_plugin.training import evaluate_run, run_experiment
from sopa_plugin.training.checkpoints import Checkpoints

ROOT = Path(__file__).parents[2]
Config = Callable[..., dict[str, Any]]
KILLED = -signal.SIGKILL


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As many threads here as in the processes that are killed: sums depend on them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


RunUntilKilled = Callable[[dict[str, Any], Path, int, str], None]


@pytest.fixture
def run_until_killed(monkeypatch: pytest.MonkeyPatch) -> RunUntilKilled:
    """Runs an experiment in a new process, which is killed at the n-th call of a function.

    The processes are forks of one that has imported everything and has but one thread.
    """
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sopa_plugin.training"])
    import kill_at

    def start(config: dict[str, Any], folder: Path, call: int, place: str) -> None:
        process = context.Process(target=kill_at.run, args=(config, str(folder), call, place))
        process.start()
        process.join()
        assert process.exitcode == KILLED

    return start


def assert_same_run(folder: Path, expected: Path) -> None:
    weights, wanted = (load_file(each / "model.safetensors") for each in (folder, expected))
    assert weights.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(weights[name], tensor), name
    metrics, right = (
        json.loads((each / "metrics.json").read_text()) for each in (folder, expected)
    )
    del metrics["training_duration"], right["training_duration"]
    assert metrics == right
    assert (folder / "epochs.jsonl").read_text() == (expected / "epochs.jsonl").read_text()


@pytest.fixture
def options() -> dict[str, Any]:
    """What has a state that must not be lost: dropout, Adam, a scheduler, patience, own rows."""
    return {
        "model__embedder": {
            "type": "static",
            "vectors": str(ROOT / "fixtures" / "vectors.txt"),
            "own_rows": True,
            "ngram_buckets": 50,
        },
        "trainer__embedder_pull": 0.1,
        "trainer__checkpoint_every": 1,
        "trainer__learning_rate_scheduler": {"type": "one_cycle", "max_lr": 0.02},
        "trainer__patience": 3,
        "trainer__num_epochs": 5,
    }


# 60 documents in batches of 16: 4 steps an epoch, a checkpoint after each
TRAINING = "sopa_plugin.training"
STEP = f"{TRAINING}.accelerate_trainer:AccelerateTrainer._optimizer_step"
MOMENTS = [
    pytest.param(1, STEP, id="before-anything"),
    pytest.param(7, STEP, id="mid-epoch"),
    pytest.param(6, f"{TRAINING}.checkpoints:torch.save", id="before-checkpoint"),
    pytest.param(6, f"{TRAINING}.checkpoints:os.fsync", id="mid-checkpoint"),
    pytest.param(2, f"{TRAINING}.run_folder:RunFolder.log_epochs", id="between-epochs"),
    pytest.param(
        1,
        f"{TRAINING}.accelerate_trainer:AccelerateTrainer.log_probabilities",
        id="after-training",
    ),
    pytest.param(1, "sopa_plugin.files:os.replace", id="begun"),
    pytest.param(1, f"{TRAINING}.run_folder:RunFolder.finish", id="before-saving"),
    pytest.param(1, "transformers:PreTrainedTokenizerBase.save_pretrained", id="mid-saving"),
]


@pytest.mark.parametrize(("call", "place"), MOMENTS)
def test_killed_and_recovered_as_if_never_stopped(
    config: Config,
    options: dict[str, Any],
    run_until_killed: RunUntilKilled,
    tmp_path: Path,
    whole_run: Path,
    call: int,
    place: str,
) -> None:
    settings = config(**options)
    run_until_killed(settings, tmp_path / "run", call, place)
    assert not (tmp_path / "run" / "metrics.json").exists()
    run_experiment(settings, tmp_path / "run", recover=True)
    assert_same_run(tmp_path / "run", whole_run)


@pytest.mark.parametrize(
    ("call", "place"),
    [
        pytest.param(1, f"{TRAINING}.state_lasso:prune", id="before-states-go"),
        pytest.param(2, f"{TRAINING}.accelerate_trainer:AccelerateTrainer._prepared", id="gone"),
        pytest.param(38, STEP, id="mid-epoch"),
    ],
)
def test_killed_where_states_are_taken_out(
    config: Config, run_until_killed: RunUntilKilled, tmp_path: Path, call: int, place: str
) -> None:
    settings = config(
        trainer__state_lasso=0.001,
        trainer__num_epochs=8,
        trainer__optimizer__lr=0.03,
        trainer__checkpoint_every=1,
        trainer__validation_metric="+epoch",
        model__encoder__self_loops="none",
    )
    metrics = run_experiment(settings, tmp_path / "whole")
    assert metrics["patterns_left"] != settings["model"]["encoder"]["patterns"]
    assert metrics["training_epochs"] == 16
    run_until_killed(settings, tmp_path / "run", call, place)
    run_experiment(settings, tmp_path / "run", recover=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.fixture
def whole_run(config: Config, options: dict[str, Any], tmp_path: Path) -> Path:
    """The same run, never stopped."""
    run_experiment(config(**options), tmp_path / "whole")
    return tmp_path / "whole"


def test_a_finished_run_is_left_as_it_is(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sopa_plugin")  # what is logged later is not of this run
    metrics = run_experiment(config(), tmp_path / "run")
    times = {each: each.stat().st_mtime_ns for each in (tmp_path / "run").rglob("*")}
    assert run_experiment(config(), tmp_path / "run", recover=True) == metrics
    assert {each: each.stat().st_mtime_ns for each in (tmp_path / "run").rglob("*")} == times


def test_what_cannot_be_recovered_is_refused(
    config: Config, run_until_killed: RunUntilKilled, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(config()["dataset"]["path"], data)
    mine = config(dataset__path=str(data))
    run = tmp_path / "run"
    run_until_killed(mine, run, 5, STEP)
    differs = r"another config; it differs at trainer\.batch_size"
    with pytest.raises(UserError, match=rf"{differs}.* \(only 'cuda_graphs', 'num_epochs', "):
        run_experiment({**mine, "trainer": {"batch_size": 8}}, run, recover=True)
    train = data / "stsa.binary.train"
    kept = train.read_text()
    train.write_text(kept + "1 good\n")
    with pytest.raises(UserError, match=r"since then the data .*changed"):
        run_experiment(mine, run, recover=True)
    train.write_text(kept)
    (checkpoint,) = (run / "checkpoints").iterdir()
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=rf"{checkpoint.name}: damaged"):
        run_experiment(mine, run, recover=True)
    checkpoint.write_bytes(whole)
    # and nothing of this was its end
    run_experiment(mine, run, recover=True)
    run_experiment(mine, tmp_path / "whole")
    assert_same_run(run, tmp_path / "whole")


def test_a_default_that_is_new_is_no_other_config(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_experiment(config(), run)
    (run / "metrics.json").unlink()
    saved = json.loads((run / "experiment.json").read_text())
    del saved["trainer"]["cache_embedder"]  # as if the version that trained had not known it
    (run / "experiment.json").write_text(json.dumps(saved))
    for changes, path in (
        ({"trainer__cache_embedder": False}, r"trainer\.cache_embedder"),
        ({"model__encoder__patterns": {"3": 4, "2": 4, "4": 1}}, r"model\.encoder\.patterns\.4"),
    ):
        with pytest.raises(UserError, match=f"it differs at {path}"):
            run_experiment(config(**changes), run, recover=True)
    assert run_experiment(config(), run, recover=True)["training_epochs"] == 4


def stop(_: Any) -> None:
    raise KeyboardInterrupt


def stopped(config: dict[str, Any], folder: Path) -> None:
    """A run that is stopped after its first epoch."""
    with pytest.raises(KeyboardInterrupt):
        run_experiment(config, folder, on_epoch=stop)


def test_no_damaged_checkpoint_is_gone_on_from(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped(config(), run)
    (checkpoint,) = (run / "checkpoints").iterdir()
    whole = checkpoint.read_bytes()
    random = np.random.default_rng(0)
    places = {*random.integers(len(whole), size=40).tolist(), 0, len(whole) - 80, len(whole) - 1}
    load = Checkpoints(run / "checkpoints").load
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(random.integers(8))
        checkpoint.write_bytes(flipped)
        with pytest.raises(UserError, match=f"{checkpoint.name}: damaged"):
            load(checkpoint.name)
    with pytest.raises(UserError, match=rf"{checkpoint.name}: damaged .*delete it to recover"):
        run_experiment(config(), run, recover=True)
    for name in (f"../checkpoints/{checkpoint.name}", str(checkpoint), "..", "other.pt"):
        with pytest.raises(UserError, match="is no name of a checkpoint"):
            load(name)
    checkpoint.unlink()
    with pytest.raises(UserError, match=r"cannot be read \(No such file"):
        load(checkpoint.name)
    checkpoint.mkdir()
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory"):
        load(checkpoint.name)


class Planted:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("planted",)


def test_a_checkpoint_is_data_and_no_code(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    stopped(config(), run)
    (checkpoint,) = (run / "checkpoints").iterdir()
    state = Checkpoints(run / "checkpoints").load(checkpoint.name)
    for changes, message in (
        ({"random": Planted()}, "damaged"),
        ({"progress": {**state["progress"], "best_checkpoint": "../../elsewhere.pt"}}, "no name"),
        ({"progress": {**state["progress"], "best_checkpoint": 1}}, "no name"),
        ({"progress": [1]}, "damaged"),
        ({"identity": {}}, "changed"),
        ({"weights": {}}, "of another model"),
        ({"tracker": None}, "does not fit this run"),
        ({"optimizer": {"state": {}}}, "does not fit this run"),
        ({"train_logits": torch.zeros(3)}, "does not fit this run"),
        ({"random": [{}]}, "does not fit this run"),
    ):
        Checkpoints(run / "checkpoints").save(checkpoint.name, {**state, **changes}, None)
        with pytest.raises(UserError, match=message):
            run_experiment(config(), run, recover=True)
    assert not (tmp_path / "planted").exists()


def test_nothing_is_written_or_deleted_behind_a_link(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped(config(), run)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(run / "checkpoints", elsewhere)
    (elsewhere / "thesis.tex").write_text("...")
    for name, target in {
        "checkpoints": elsewhere,
        ".saving": elsewhere,
        ".cache": elsewhere,
        "train.log": elsewhere / "thesis.tex",
        ".experiment.json.new-1": elsewhere / "thesis.tex",
    }.items():
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(target)
    run_experiment(config(), run, recover=True)
    assert (elsewhere / "thesis.tex").read_text() == "..."
    assert "epoch_4_step_0.pt" in {each.name for each in elsewhere.iterdir()}
    (run / "metrics.json").unlink()
    (run / ".lock").symlink_to(elsewhere / "thesis.tex")
    with pytest.raises(UserError, match="cannot be locked"):
        run_experiment(config(), run, recover=True)
    assert (elsewhere / "thesis.tex").read_text() == "..."


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_folder_that_goes_while_a_run_is_in_it_is_said(
    config: Config, tmp_path: Path, how: str
) -> None:
    def remove(_: Any) -> None:
        shutil.rmtree(tmp_path / "run")
        if how == "replaced":
            run_experiment(config(trainer__num_epochs=1), tmp_path / "run")

    with pytest.raises(UserError, match="deleted or replaced while this run was training"):
        run_experiment(config(), tmp_path / "run", on_epoch=remove)
    if how == "replaced":
        assert len((tmp_path / "run" / "epochs.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("option", ["force", "recover"])
def test_a_run_that_is_training_is_left_alone(config: Config, tmp_path: Path, option: str) -> None:
    told = []

    def second(_: Any) -> None:
        with pytest.raises(UserError) as raised:
            run_experiment(config(), tmp_path / "run", **{option: True})
        told.append(str(raised.value))

    metrics = run_experiment(config(), tmp_path / "run", on_epoch=second)
    assert len(told) == metrics["training_epochs"] == 4
    assert f"process {os.getpid()} on {platform.node()} (since " in told[0]
    # and afterwards it may be replaced
    assert run_experiment(config(trainer__num_epochs=1), tmp_path / "run", force=True)


def test_recovering_nothing_begins_anew_and_says_so(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sopa_plugin")
    assert run_experiment(config(), tmp_path / "run", recover=True)["training_epochs"] == 4
    assert f"{tmp_path / 'run'}: no run in it to recover: beginning one" in caplog.messages


def test_only_the_last_and_the_best_checkpoint_are_kept(config: Config, tmp_path: Path) -> None:
    metrics = run_experiment(
        config(trainer__num_epochs=20, trainer__optimizer={"type": "adam", "lr": 0.1}),
        tmp_path / "run",
    )
    best = metrics["best_epoch"] + 1
    assert best < 20
    names = {each.name for each in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {f"epoch_{best}_step_0.pt", "epoch_20_step_0.pt"}


@pytest.mark.parametrize(
    ("limit", "what"), [(10_000, "epoch_1_step_0.pt: cannot be written"), (100_000, "the model")]
)
def test_a_full_disk_is_one_error_and_the_run_goes_on_later(
    config: Config, tmp_path: Path, limit: int, what: str
) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(UserError, match=f"{what}.*--recover"):
            run_experiment(config(), tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    metrics = run_experiment(config(), tmp_path / "run", recover=True)
    assert metrics["training_epochs"] == 4
    assert not [each for each in (tmp_path / "run").rglob(".*") if each.is_file()]


@pytest.mark.parametrize("scheduler", [None, {"type": "step", "step_size": 2, "gamma": 0.5}])
def test_a_finished_run_goes_on_as_if_it_had_been_to_be_longer(
    config: Config, tmp_path: Path, scheduler: dict[str, Any] | None
) -> None:
    longer = config(trainer__num_epochs=6, trainer__learning_rate_scheduler=scheduler)
    run_experiment(
        config(trainer__num_epochs=2, trainer__learning_rate_scheduler=scheduler), tmp_path / "run"
    )
    metrics = run_experiment(longer, tmp_path / "run", recover=True)
    assert metrics["training_epochs"] == 6
    run_experiment(longer, tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    for name in ("experiment.json", "digests.json"):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "whole" / name).read_text()
    assert run_experiment(longer, tmp_path / "run", recover=True) == metrics  # it has finished


def test_more_patience_goes_on_and_what_the_steps_depend_on_does_not(
    config: Config, tmp_path: Path
) -> None:
    options = {"trainer__num_epochs": 30, "trainer__optimizer": {"type": "adam", "lr": 0.1}}
    short = run_experiment(config(**options, trainer__patience=1), tmp_path / "run")
    metrics = run_experiment(config(**options, trainer__patience=4), tmp_path / "run", recover=True)
    assert short["training_epochs"] < metrics["training_epochs"] < 30
    run_experiment(config(**options, trainer__patience=4), tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    one_cycle = {"trainer__learning_rate_scheduler": {"type": "one_cycle", "max_lr": 0.02}}
    stopped(config(**one_cycle), tmp_path / "cycle")
    with pytest.raises(UserError, match=r"another config; it differs at trainer\.num_epochs"):
        run_experiment(config(**one_cycle, trainer__num_epochs=9), tmp_path / "cycle", recover=True)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(UserError, match="has no checkpoints to go on from"):
        run_experiment(config(**options, trainer__patience=9), tmp_path / "run", recover=True)
    assert (tmp_path / "run" / "metrics.json").is_file()


def test_after_an_interruption_the_best_model_so_far_is_there(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    stopped(config(), run)
    assert f"saved in {run} and may be used; go on with the same command and --recover" in "".join(
        caplog.messages
    )
    run_experiment(config(trainer__num_epochs=1), tmp_path / "one")
    (dev, test), (right, _) = (list(evaluate_run(each)) for each in (run, tmp_path / "one"))
    assert dev == right
    assert not (run / "metrics.json").exists()
    # and it goes on from where it stopped, for longer too
    run_experiment(config(trainer__num_epochs=5), run, recover=True)
    run_experiment(config(trainer__num_epochs=5), tmp_path / "whole")
    assert_same_run(run, tmp_path / "whole")
    assert list(evaluate_run(run))[1] != test
