"""Whole experiments on the embedded sample: what a run leaves, and what is refused before."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from transformers import pipeline

from sopa_plugin.compiled import load_compiled
from sopa_plugin.data import batches
from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.encoders.dan import DanEncoder
from sopa_plugin.errors import TrainingFailed, UserError
from sopa_plugin.models import TextClassifier, load_model
from sopa_plugin.registry import ConfigError, build, check, load_config
from sopa_plugin.training import AccelerateTrainer, Experiment, evaluate_run, run_experiment
from sopa_plugin.training.run_folder import RunFolder

Config = Callable[..., dict[str, Any]]
REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_run_leaves_everything(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="sopa_plugin"):
        metrics = run_experiment(config(), tmp_path / "run")
    run = tmp_path / "run"
    assert {
        "README.md", "checkpoints", "config.json", "epochs.jsonl", "experiment.json",
        "metrics.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "train.log",
    } <= {each.name for each in run.iterdir()}  # fmt: skip
    assert json.loads((run / "metrics.json").read_text()) == metrics
    for split, size in (("training", 60), ("validation", 20), ("test", 20)):
        assert metrics[f"{split}_examples"] == size
        for name in ("accuracy", "loss", "macro_f1"):
            assert np.isfinite(metrics[f"{split}_{name}"])
    assert metrics["training_epochs"] == 4
    assert metrics["parameters_total"] > metrics["parameters_trainable"] > 0
    assert metrics["parameters_encoder_released"] >= metrics["parameters_encoder_stored"]
    epochs = [json.loads(line) for line in (run / "epochs.jsonl").read_text().splitlines()]
    assert [each["epoch"] for each in epochs] == [0, 1, 2, 3]
    best = min(epochs, key=lambda each: each["validation_loss"])
    assert metrics["best_epoch"] == best["epoch"]
    for name in ("accuracy", "loss", "macro_f1"):
        assert metrics[f"best_validation_{name}"] == best[f"validation_{name}"]
        assert metrics[f"training_{name}"] == epochs[-1][f"training_{name}"]
    log = (run / "train.log").read_text()
    assert sum(" epoch " in line for line in log.splitlines()) == 4
    assert "embedded sample" in caplog.messages[0]
    means = json.loads((run / "config.json").read_text())["sopa_plugin"]["document_vector_means"]
    assert np.isfinite(means).all()


def test_texts_that_are_held_out_and_trained_on_are_told(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.csv").write_text(f"text,label\na,x\nb,y\n{split},y\n")
    data = {"type": "text", "path": str(tmp_path)}
    with caplog.at_level(logging.INFO, logger="sopa_plugin"):
        run_experiment(config(dataset=data, trainer__num_epochs=1), tmp_path / "run")
    assert "2 of 3 dev texts also occur in train" in caplog.text


def test_the_log_tells_what_was_trained_on_what(config: Config, tmp_path: Path) -> None:
    # from Python, where no command set up a log
    run_experiment(config(model__encoder__patterns={"40": 1, "3": 2}), tmp_path / "run")
    log = (tmp_path / "run" / "train.log").read_text()
    for told in ("torch 2", "{'train': 60, ", "parameters: total", " epoch 0"):
        assert told in log
    # an epsilon before each of 19 tokens and after the last, in a pattern of 39 arcs
    texts = build(DatasetReader, config()["dataset"]).read()["train"]["text"]
    short = sum(len(text.split()) < 19 for text in texts)
    assert f"{short} of 60 training texts have fewer than 19 tokens, too few for 1 of 3" in log


@pytest.mark.parametrize(
    "encoder", [{"semiring": "boolean"}, {"semiring": "sum_product", "encoding": "positive"}]
)
def test_what_has_no_gradient_is_refused_before_there_is_a_run(
    config: Config, tmp_path: Path, encoder: dict[str, Any]
) -> None:
    encoder = {"type": "sopa", "patterns": {"3": 2}, **encoder}
    (key, value), *_ = reversed(encoder.items())
    with pytest.raises(ConfigError, match=rf"model\.encoder\.{key}: {key} '{value}' has no gradi"):
        run_experiment(config(model__encoder=encoder), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_saved_model_is_the_best_one(config: Config, tmp_path: Path) -> None:
    # long enough to know the few training sentences by heart
    spoiling = config(trainer__optimizer={"type": "adam", "lr": 0.1}, trainer__num_epochs=20)
    metrics = run_experiment(spoiling, tmp_path / "run")
    assert metrics["best_epoch"] < 19
    assert metrics["best_validation_loss"] < metrics["validation_loss"]
    evaluated = {each.pop("split"): each for each in evaluate_run(tmp_path / "run")}
    for split, prefix in (("dev", "best_validation"), ("test", "test")):
        for name in ("accuracy", "loss", "macro_f1", "examples"):
            assert evaluated[split][name] == pytest.approx(metrics[f"{prefix}_{name}"], abs=1e-6)


def test_the_card_says_on_what_it_was_trained(config: Config, tmp_path: Path) -> None:
    run_experiment(config(trainer__num_epochs=1), tmp_path / "run")
    card = (tmp_path / "run" / "README.md").read_text()
    front, text = card.removeprefix("---\n").split("---\n", 1)
    assert "pipeline_tag: text-classification" in front
    assert "embedded sample" in text.strip().splitlines()[0]
    assert "60 train, 20 dev, 20 test" in text
    assert "import sopa_plugin.models" in text
    # whoever may read the card may read the model
    assert (
        len({file.stat().st_mode for file in (tmp_path / "run").iterdir() if file.is_file()}) == 1
    )
    # on other data there is no such line
    (tmp_path / "own").mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / "own" / f"{split}.txt").write_text("1 good\n0 bad\n" * 8)
    own = config(trainer__num_epochs=1, dataset__path=str(tmp_path / "own"))
    run_experiment(own, tmp_path / "other")
    assert "embedded sample" not in (tmp_path / "other" / "README.md").read_text()


def test_coverage_is_that_of_the_tokens(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "vectors.txt").write_text("good 1 0\nbad 0 1\nnever 1 1\n")
    for split, text in (
        ("train", "good qzx qzx\n0 bad vvw"),
        ("dev", "good\n0 bad"),
        ("test", "new"),
    ):
        (tmp_path / "own" / f"{split}.txt").write_text(f"1 {text}\n" * 8)
    own = config(trainer__num_epochs=1, dataset__path=str(tmp_path / "own"))

    def said(vectors: Path) -> dict[int, str]:
        caplog.clear()
        own["model"]["embedder"]["vectors"] = str(vectors)
        with caplog.at_level(logging.INFO, logger="sopa_plugin"):
            run_experiment(own, tmp_path / "run", force=True)
        told = [each for each in caplog.records if "vector" in each.message]
        return {level: "".join(each.message for each in told if each.levelno == level)
                for level in (logging.INFO, logging.WARNING)}  # fmt: skip

    found = said(tmp_path / "vectors.txt")
    assert "40.0 % of train's, 100.0 % of dev's, 0.0 % of test's tokens" in found[logging.INFO]
    assert "60.0 % of the training tokens" in found[logging.WARNING]
    assert "most often: qzx vvw." in found[logging.WARNING]
    sample = Path(config()["model"]["embedder"]["vectors"])
    assert "for data of your own name a real file" in said(sample)[logging.WARNING]
    with caplog.at_level(logging.WARNING, logger="sopa_plugin"):
        caplog.clear()
        run_experiment(config(trainer__num_epochs=1), tmp_path / "sample")
    assert "vector" not in caplog.text


def test_one_seed_one_result(config: Config, tmp_path: Path) -> None:
    def weights(name: str, **changes: Any) -> dict[str, torch.Tensor]:
        run_experiment(config(**changes), tmp_path / name)
        return load_model(tmp_path / name).state_dict()

    first, same, other = weights("a"), weights("b"), weights("c", seed=4)
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not torch.equal(first["head.output.weight"], other["head.output.weight"])


def test_patience_stops(config: Config, tmp_path: Path) -> None:
    stopping = config(
        trainer__patience=2,
        trainer__num_epochs=50,
        trainer__validation_metric="+accuracy",
        trainer__optimizer={"type": "sgd", "lr": 1e-9},
    )
    metrics = run_experiment(stopping, tmp_path / "run")
    assert (metrics["best_epoch"], metrics["training_epochs"]) == (0, 3)


def test_accumulated_batches_are_one_large_batch(config: Config, tmp_path: Path) -> None:
    def losses(name: str, **changes: Any) -> list[float]:
        still = {"model__encoder__dropout": 0.0, "model__head__dropout": 0.0}
        run_experiment(
            config(**still, **changes, trainer__batches_by_length=False, trainer__grad_norm=0.1),
            tmp_path / name,
        )
        lines = (tmp_path / name / "epochs.jsonl").read_text().splitlines()
        return [json.loads(line)["validation_loss"] for line in lines]

    for reduction, optimizer in (("mean", "adam"), ("sum", "sgd")):
        options = {
            "trainer__loss_reduction": reduction,
            "trainer__optimizer": {"type": optimizer, "lr": 0.01},
        }
        # one step an epoch, since the order of documents within a step does not matter
        large = losses(f"{reduction}-large", trainer__batch_size=60, **options)
        parts = losses(
            f"{reduction}-parts",
            trainer__batch_size=16,
            trainer__num_gradient_accumulation_steps=4,
            **options,
        )
        assert parts == pytest.approx(large, rel=1e-4)


def test_options_that_change_training(config: Config, tmp_path: Path) -> None:
    def loss(name: str, **changes: Any) -> float:
        return float(run_experiment(config(**changes), tmp_path / name)["validation_loss"])

    losses = {
        "plain": loss("plain"),
        "sum": loss("sum", trainer__loss_reduction="sum", trainer__optimizer="sgd"),
        "mean": loss("mean", trainer__optimizer="sgd"),
        "norm": loss("norm", trainer__grad_norm=1e-9, trainer__optimizer="sgd"),
        "clip": loss("clip", trainer__grad_clipping=1e-4, trainer__optimizer="sgd"),
        "schedule": loss(
            "schedule", trainer__learning_rate_scheduler={"type": "exponential", "gamma": 0.1}
        ),
        "precision": loss("precision", trainer__mixed_precision="bf16"),
        "length": loss("length", trainer__batches_by_length=False),
    }
    assert len(set(losses.values())) == len(losses)


def test_the_embedder_has_a_learning_rate_of_its_own(config: Config, tmp_path: Path) -> None:
    def moved(name: str, **changes: Any) -> float:
        """How far vectors are from those of the file."""
        trained = config(model__embedder__trainable=True, **changes)
        run_experiment(trained, tmp_path / name)
        model = load_model(tmp_path / name)
        assert isinstance(model, TextClassifier)
        return float(model.embedder.own_rows.learned.weight.detach().norm(dim=1).mean())

    assert moved("slow", trainer__embedder_lr=1e-7) < moved("fast") / 100
    with pytest.raises(UserError, match=r"trainer.embedder_lr: the embedder is frozen"):
        run_experiment(config(trainer__embedder_lr=0.1), tmp_path / "frozen")
    assert not (tmp_path / "frozen").exists()


def test_the_callback_sees_every_epoch_and_can_stop(config: Config, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    seen = []

    def on_epoch(metrics: dict[str, Any]) -> None:
        seen.append(metrics["validation_loss"])
        if len(seen) == 2:
            raise Stop

    with pytest.raises(Stop):
        run_experiment(config(), tmp_path / "run", on_epoch=on_epoch)
    assert len(seen) == 2
    # and the run can be taken up again
    metrics = run_experiment(config(), tmp_path / "run", recover=True)
    assert metrics["training_epochs"] == 4


def test_tensorboard_gets_every_epoch(config: Config, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run_experiment(config(trainer__trackers=["tensorboard"]), tmp_path / "run")
    log = events.EventAccumulator(str(tmp_path / "run" / "tracking")).Reload()
    assert [each.step for each in log.Scalars("validation_loss")] == [0, 1, 2, 3]


def test_every_problem_of_a_config_at_once(config: Config, tmp_path: Path) -> None:
    wrong = config(
        dataset__typo=1,
        model__encoder__type="sopaa",
        model__head__hidden_dim="many",
        trainer__validation_metric="accuracy",
        trainer__optimizer={"type": "adam", "lrr": 0.1},
    )
    paths = {problem.path for problem in check(Experiment, wrong)}
    assert paths == {
        "dataset.typo",
        "model.encoder.type",
        "model.head.hidden_dim",
        "trainer.validation_metric",
        "trainer.optimizer.lrr",
    }
    with pytest.raises(ConfigError) as raised:
        run_experiment(wrong, tmp_path / "run")
    assert len(raised.value.problems) == 5
    assert list(tmp_path.iterdir()) == []


def test_values_are_checked_beside_faults_of_other_kinds(config: Config) -> None:
    wrong = config(
        seed=-1,
        model__head__dropout=1.5,
        model__head__hidden_dim="many",
        trainer__batch_size=0,
        trainer__optimizer={"type": "adam", "lrr": 0.1},
    )
    assert sorted(problem.path for problem in check(Experiment, wrong)) == [
        "model.head.dropout",
        "model.head.hidden_dim",
        "seed",
        "trainer.batch_size",
        "trainer.optimizer.lrr",
    ]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"trainer__patience": 0}, "trainer.patience"),
        ({"trainer__grad_norm": -1.0}, "trainer.grad_norm"),
        ({"trainer__trackers": ["tensorbord"]}, "trainer.trackers.0"),
        ({"model__tokenizer": "whitespace"}, "model.tokenizer"),
    ],
)
def test_faulty_values(config: Config, changes: dict[str, Any], path: str) -> None:
    (problem,) = check(Experiment, config(**changes))
    assert problem.path == path


def write_lines(folder: Path, **splits: str) -> str:
    folder.mkdir()
    for split, text in splits.items():
        (folder / f"{split}.txt").write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": "", "dev": "1 a\n", "test": "1 a\n"}, "train"),
        ({"train": "1 a\n0 b\n", "dev": "1 a\n", "test": "-1 b\n"}, "-1"),
        ({"train": "1 a\n1 b\n", "dev": "1 a\n", "test": "0 b\n"}, "train"),
    ],
    ids=["empty-train", "label-minus-one", "one-class"],
)
def test_faults_of_the_data_cost_nothing(
    config: Config, tmp_path: Path, splits: dict[str, str], message: str
) -> None:
    before = run_experiment(config(trainer__num_epochs=1), tmp_path / "run")
    faulty = config(dataset__path=write_lines(tmp_path / "data", **splits))
    with pytest.raises(UserError, match=message):
        run_experiment(faulty, tmp_path / "run", force=True)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == before


class CarelessReader(DatasetReader):
    """A reader of one's own that checks nothing."""

    def sources(self) -> dict:
        return {}

    def examples(self, source: Any) -> Any:
        raise NotImplementedError

    def read(self) -> DatasetDict:
        features = Features({"text": Value("string"), "label": ClassLabel(names=["x", "y", "z"])})

        def split(*labels: int) -> Dataset:
            columns = {"text": ["a"] * len(labels), "label": list(labels)}
            return Dataset.from_dict(columns, features=features)

        return DatasetDict(
            {
                "empty": {"train": split(), "dev": split(0)},
                "lacking": {"train": split(0, 1), "dev": split(0), "test": split(2)},
                "negative": {"train": split(0, 1), "dev": split(0), "test": split(-1)},
            }[str(self.path)]
        )


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("empty", "no train examples"),
        ("lacking", "examples of the class 'z', of which the training set has none"),
        ("negative", "the test set has the label -1, which is of no class"),
    ],
)
def test_a_careless_reader_is_found_out(
    config: Config, tmp_path: Path, case: str, message: str
) -> None:
    careless = config(dataset={"type": f"{__name__}.CarelessReader", "path": case})
    with pytest.raises(UserError, match=message):
        run_experiment(careless, tmp_path / "run")


def test_what_accelerate_is_told_of_accumulation_changes_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descent = config(trainer__optimizer={"type": "sgd", "lr": 0.1}, trainer__num_epochs=2)
    before = run_experiment(descent, tmp_path / "before")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    after = run_experiment(descent, tmp_path / "after")
    assert after["training_loss"] == before["training_loss"]


def test_options_of_the_optimizer_that_rule_one_another_out(config: Config, tmp_path: Path) -> None:
    both = {"type": "adam", "fused": True, "foreach": True}
    with pytest.raises(UserError, match=r"trainer\.optimizer: .*cannot be `?True`? together"):
        run_experiment(config(trainer__optimizer=both), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_experiment_of_a_config_without_defaults(config: Config, tmp_path: Path) -> None:
    params = config(trainer__num_epochs=1)
    params["model"].pop("type", None)
    metrics = build(Experiment, params).run(RunFolder(tmp_path / "run", params))
    assert metrics["training_epochs"] == 1


def test_gradients_are_unscaled_once(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clipped = {"trainer__grad_norm": 0.05, "trainer__grad_clipping": 0.01}
    plain = run_experiment(config(**clipped), tmp_path / "plain")
    set_up = AccelerateTrainer.set_up

    def with_scaler(trainer: AccelerateTrainer, *args: Any) -> None:
        """As for fp16, which Accelerate has on a GPU alone."""
        set_up(trainer, *args)
        trainer.accelerator.native_amp = True
        trainer.accelerator.state._mixed_precision = "fp16"
        trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
        monkeypatch.setattr(trainer.accelerator, "autocast", nullcontext)

    monkeypatch.setattr(AccelerateTrainer, "set_up", with_scaler)
    scaled = run_experiment(config(**clipped), tmp_path / "scaled")
    assert scaled["validation_loss"] == pytest.approx(plain["validation_loss"], rel=1e-2)


def test_a_class_that_a_subset_lost_is_named(config: Config, tmp_path: Path) -> None:
    table = "text,label\n" + "good,fine\nbad,poor\n" * 30 + "odd,rare\n"
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.csv").write_text(table)
    data = {"type": "text", "path": str(tmp_path), "max_train_examples": 10}
    with pytest.raises(TrainingFailed, match="none of the class 'rare', which dev"):
        run_experiment(config(dataset=data), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Constant(DanEncoder):
    """A deep averaging network with a number that is not learned."""

    def __init__(self, input_dim: int) -> None:
        super().__init__(input_dim)
        self.factor = torch.nn.Parameter(torch.tensor(2.0), requires_grad=False)


def test_a_frozen_number_is_a_weight_like_any_other(config: Config, tmp_path: Path) -> None:
    constant = config(model__encoder={"type": f"{__name__}.Constant"}, trainer__num_epochs=1)
    run_experiment(constant, tmp_path / "run")
    assert load_model(tmp_path / "run").state_dict()["encoder.factor"] == 2


def test_divergence_is_said(config: Config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="training diverged"):
        run_experiment(config(trainer__optimizer={"type": "sgd", "lr": 1e38}), tmp_path / "run")


def test_text_is_lower_cased_at_prediction_as_it_was_by_the_reader(
    config: Config, tmp_path: Path
) -> None:
    run_experiment(config(dataset__lowercase=True, trainer__num_epochs=1), tmp_path / "run")
    model = load_model(tmp_path / "run")
    upper, lower = model.log_probabilities(["A GOOD FILM", "a good film"])
    assert np.array_equal(upper, lower)


def test_a_dev_set_may_lack_a_class(config: Config, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "data", train="1 good\n0 bad\n" * 9, dev="1 good\n", test="0 bad\n"
    )
    metrics = run_experiment(config(dataset__path=path), tmp_path / "run")
    assert metrics["validation_examples"] == 1


def test_other_data_are_evaluated_by_the_names_of_their_classes(
    config: Config, tmp_path: Path
) -> None:
    path = write_lines(
        tmp_path / "data", train="1 good\n0 bad\n" * 9, dev="1 good\n", test="0 bad\n"
    )
    run_experiment(config(dataset__path=path, trainer__num_epochs=30), tmp_path / "run")
    other = tmp_path / "other.txt"
    other.write_text("0 bad\n0 bad\n1 good\n1 bad\n")
    (metrics,) = evaluate_run(tmp_path / "run", [str(other)])
    assert (metrics["accuracy"], metrics["examples"]) == (0.75, 4)
    table = tmp_path / "table.csv"
    table.write_text("text,label\ngood,splendid\n")
    run = json.loads((tmp_path / "run" / "experiment.json").read_text())
    run["dataset"] = {"type": "text", "path": str(table)}
    (tmp_path / "run" / "experiment.json").write_text(json.dumps(run))
    with pytest.raises(UserError, match="'splendid'"):
        list(evaluate_run(tmp_path / "run", [str(table)], accept_changed=True))
    # what is wrong with them does not name options of a config
    table.write_bytes("text,label\ngut,schön\n".encode("latin-1"))
    (tmp_path / "columns.csv").write_text("words,label\ngood,1\n")
    for name, fault in (
        ("absent.csv", "no such file or folder"),
        ("columns.csv", "no column 'text'; the columns are 'words', 'label'"),
        ("table.csv", "byte 0xf6 is not utf-8"),
    ):
        with pytest.raises(UserError, match=f"{name}.*{fault}; give data like those that the run"):
            list(evaluate_run(tmp_path / "run", [str(tmp_path / name)], accept_changed=True))


@pytest.mark.parametrize("calibrate", [False, True])
def test_texts_are_tokenised_once(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrate: bool
) -> None:
    seen: Counter[str] = Counter()
    split = batches._token_ids

    def spy(texts: list[str], *others: Any) -> list[list[int]]:
        seen.update(texts)
        return split(texts, *others)

    monkeypatch.setattr(batches, "_token_ids", spy)
    run_experiment(config(calibrate=calibrate, trainer__num_epochs=2), tmp_path / "run")
    data = build(DatasetReader, config()["dataset"]).read()
    assert seen == Counter(text for each in data.values() for text in each["text"])


def test_how_good_a_model_is_class_by_class(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sopa_plugin")
    run = tmp_path / "run"
    metrics = run_experiment(config(), run)
    for prefix in ("best_validation", "test"):
        assert sum(map(sum, metrics[f"{prefix}_confusion_matrix"])) == 20
        assert set(metrics[f"{prefix}_per_class"]) == set(load_model(run).labels)
    predictions = [json.loads(line) for line in (run / "test_predictions.jsonl").open()]
    test = build(DatasetReader, config()["dataset"]).read()["test"]
    assert [(each["text"], each["row"]) for each in predictions] == list(
        zip(test["text"], test["row"], strict=True)
    )
    figures = [each["label"] == each["predicted"] for each in predictions]
    assert np.mean(figures) == metrics["test_accuracy"]
    log = (run / "train.log").read_text()
    assert "precision  recall" in log
    # the same again, and the errors
    with (tmp_path / "errors.jsonl").open("w") as file:
        evaluated = list(evaluate_run(run, splits=("train", "test"), errors=file))
    assert [each["split"] for each in evaluated] == ["train", "test"]
    assert evaluated[1]["per_class"] == metrics["test_per_class"]
    errors = [json.loads(line) for line in (tmp_path / "errors.jsonl").open()]
    errors = [each for each in errors if each["split"] == "test"]
    assert len(errors) == 20 - sum(figures) > 0
    probabilities = [each["probability"] for each in errors]
    assert probabilities == sorted(probabilities, reverse=True)
    for each in errors:
        (known,) = (one for one in predictions if one["row"] == each["row"])
        assert (known["text"], known["label"]) == (each["text"], each["gold"])
        assert known["predicted"] == each["predicted"] != each["gold"]
        assert known["probabilities"][each["predicted"]] == each["probability"]


@pytest.mark.parametrize("head", ["mlp", "linear"])
def test_a_calibrated_model_is_one_everywhere(config: Config, tmp_path: Path, head: str) -> None:
    options = {"trainer__num_epochs": 40, "trainer__validation_metric": "+accuracy"}
    options["model__head"] = {"type": head}
    plain = run_experiment(config(**options), tmp_path / "plain")
    metrics = run_experiment(config(**options, calibrate=True), tmp_path / "run")
    temperature = metrics["temperature"]
    assert temperature != pytest.approx(1, abs=0.02)
    assert metrics["best_validation_loss"] < plain["best_validation_loss"]
    assert metrics["test_accuracy"] == plain["test_accuracy"]
    texts = ["a gripping film", "dull", "a dull , gripping story"]
    before = load_model(tmp_path / "plain").log_probabilities(texts) / temperature
    expected = np.exp(before - np.logaddexp.reduce(before, axis=1, keepdims=True))
    classify = pipeline("text-classification", str(tmp_path / "run"), top_k=None)
    model = load_model(tmp_path / "run")
    for found in (
        np.exp(model.log_probabilities(texts)),
        np.exp(load_compiled(tmp_path / "run").log_probabilities(texts)),
        [
            [one["score"] for one in sorted(each, key=lambda one: model.labels.index(one["label"]))]
            for each in classify(texts)
        ],
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_classes_may_have_weights(config: Config, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "data",
        train="1 good film\n" * 18 + "0 good bad\n0 film\n",
        dev="1 good\n0 bad\n",
        test="1 good\n0 film\n",
    )

    def loss(name: str, weights: Any) -> float:
        """After some epochs on what is one class but for two documents."""
        settings = config(
            dataset__path=path, trainer__class_weights=weights, trainer__num_epochs=20
        )
        return float(run_experiment(settings, tmp_path / name)["training_loss"])

    names = build(DatasetReader, config(dataset__path=path)["dataset"]).read()["train"]
    negative, positive = names.features["label"].names
    balanced = {negative: 20 / (2 * 2), positive: 20 / (2 * 18)}  # as scikit-learn has it
    by_name = loss("by_name", balanced)
    assert loss("balanced", "balanced") == pytest.approx(by_name, rel=1e-5)
    plain = loss("plain", None)
    assert plain != pytest.approx(by_name, rel=1e-2)
    assert loss("ones", {positive: 1.0}) == pytest.approx(plain, rel=1e-5)
    with pytest.raises(UserError, match=r"trainer\.class_weights\.odd: not a class of the data"):
        loss("odd", {"odd": 2.0})


def test_a_model_may_start_from_another_run(config: Config, tmp_path: Path) -> None:
    first = run_experiment(config(trainer__num_epochs=10), tmp_path / "first")
    none = {"trainer__num_epochs": 1, "trainer__optimizer": {"type": "sgd", "lr": 1e-9}}
    on = run_experiment(config(**none, init_from=str(tmp_path / "first")), tmp_path / "on")
    assert on["test_loss"] == pytest.approx(first["test_loss"], rel=1e-4)
    with pytest.raises(UserError, match=r"init_from: .* other parts or sizes, at 'encoder\."):
        run_experiment(
            config(init_from=str(tmp_path / "first"), model__encoder__patterns={"3": 5}),
            tmp_path / "other",
        )
    with pytest.raises(UserError, match="nowhere"):
        run_experiment(config(init_from="nowhere"), tmp_path / "nothing")
    # other classes: the encoder is the same, the head a new one
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "good film,x\nbad film,y\nthe story,z\n" * 10)
    data = {"type": "text", "path": str(table), "dev_size": 6, "test_size": 6}
    settings = config(**none, init_from=str(tmp_path / "first"))
    run_experiment({**settings, "dataset": data}, tmp_path / "three")
    ours, theirs = (load_model(tmp_path / name) for name in ("three", "first"))
    assert ours.labels == ["x", "y", "z"]
    for mine, other in zip(ours.encoder.parameters(), theirs.encoder.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-6)


def test_labels_that_only_test_has_count_as_wrong(config: Config, tmp_path: Path) -> None:
    rows = "text,label\n" + "a fine film,good\na dull film,bad\n" * 8
    for split in ("train", "dev"):
        (tmp_path / f"{split}.csv").write_text(rows)
    (tmp_path / "test.csv").write_text(rows + "a film,odd\n" * 8)
    dataset = {"type": "text", "path": str(tmp_path), "labels_only_in_test": "count"}
    metrics = run_experiment(config(dataset=dataset), tmp_path / "run")
    assert metrics["test_examples"] == 24
    assert metrics["test_accuracy"] <= 2 / 3
    assert np.isfinite(metrics["test_loss"])
    predictions = (tmp_path / "run" / "test_predictions.jsonl").read_text().splitlines()
    assert json.loads(predictions[-1])["label"] == "odd"
    assert load_model(tmp_path / "run").labels == ["bad", "good"]
    _, own = evaluate_run(tmp_path / "run")
    (other,) = evaluate_run(tmp_path / "run", [str(tmp_path / "test.csv")])
    for each in (own, other):
        assert each["accuracy"] == pytest.approx(metrics["test_accuracy"])
        assert each["macro_f1"] == pytest.approx(metrics["test_macro_f1"])


def test_plain_files_after_training_on_named_splits(config: Config, tmp_path: Path) -> None:
    stored = Dataset.from_dict({"text": ["a fine film", "a dull film"] * 8, "label": [1, 0] * 8})
    DatasetDict(fit=stored, check=stored).save_to_disk(tmp_path / "stored")
    dataset = {
        "type": "text",
        "path": str(tmp_path / "stored"),
        "split_names": {"train": "fit", "dev": "check", "test": "check"},
    }
    run_experiment(config(dataset=dataset), tmp_path / "run")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "test.csv").write_text("text,label\na fine film,1\n")
    for name in ("plain", "plain/test.csv"):
        (found,) = evaluate_run(tmp_path / "run", [str(tmp_path / name)])
        assert found["examples"] == 1


def test_frequent_classes_that_are_never_predicted_are_named(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """21 training and 4 dev texts are many, 20 and 4 are not; a class may have none at all."""
    caplog.set_level("INFO")
    texts = {"usual": (90, 30), "many": (21, 4), "few": (20, 4), "none": (0, 4)}
    for number, split in enumerate(("train", "dev")):
        rows = [f"the film,{name}\n" * counts[number] for name, counts in texts.items()]
        (tmp_path / f"{split}.csv").write_text("text,label\n" + "".join(rows))
    (tmp_path / "test.csv").write_text("text,label\nthe film,usual\n")
    dataset = {"type": "text", "path": str(tmp_path), "unseen_classes": "keep"}
    metrics = run_experiment(config(dataset=dataset), tmp_path / "run")
    assert metrics["unpredicted_classes"] == ["many"]
    assert "no dev text is predicted to be 'many'" in caplog.text
    assert np.isfinite(metrics["best_validation_loss"])


def test_own_data_in_capitals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """README's recipe replaces the tokenizer; case is the vectors' all the same."""
    monkeypatch.chdir(REPOSITORY)
    data, tokenizer = '{"type": "text", "path": "fixtures/text/csv"}', "tokenizer.type=words"
    assert f"-o dataset='{data}' -o {tokenizer}" in Path("README.md").read_text()
    overrides = [f"dataset={data}", tokenizer, "trainer.num_epochs=2"]
    loaded = load_config("configs/sopa_sst.jsonnet", overrides, Experiment)
    run_experiment(loaded, tmp_path / "run")
    model = load_model(tmp_path / "run")
    texts = DatasetReader.by_name("text")("fixtures/text/csv").read()["test"]["text"][:]
    written = model.log_probabilities(texts)
    assert np.ptp(written) > 0.01
    assert (model.log_probabilities([each.upper() for each in texts]) == written).all()
    assert (model.log_probabilities([each.title() for each in texts]) == written).all()


def test_what_is_trained_of_the_embedder_is_pulled_to_its_start(
    config: Config, tmp_path: Path
) -> None:
    (tmp_path / "vectors.txt").write_text("the 1 0\na 0 1\n")

    def learned(name: str, **changes: Any) -> torch.Tensor:
        changes |= {f"model__embedder__{key}": each for key, each in own_rows.items()}
        run_experiment(config(trainer__num_epochs=1, **changes), tmp_path / name)
        model: Any = load_model(tmp_path / name)
        return model.embedder.own_rows.learned.weight.detach()  # type: ignore[no-any-return]

    own_rows = {"vectors": str(tmp_path / "vectors.txt"), "own_rows": True}
    free = learned("free")
    assert len(free) > 100
    assert free.norm(dim=1).max() > 0.01
    # of 60 documents in batches of 16: four steps, each of a hundredth
    torch.testing.assert_close(learned("pulled", trainer__embedder_pull=1.0), 0.99**4 * free)
    assert not learned("held", trainer__embedder_pull=100.0).any()
    with pytest.raises(UserError, match=r"trainer.embedder_pull: the embedder is frozen"):
        run_experiment(config(trainer__embedder_pull=1.0), tmp_path / "frozen")


@pytest.mark.parametrize("option", ["grad_norm", "grad_clipping"])
def test_sparse_gradients_are_clipped_as_others_are(
    config: Config, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vectors.txt").write_text("the 1 0\na 0 1\n")
    changes = {
        "model__embedder__vectors": str(tmp_path / "vectors.txt"),
        "model__embedder__own_rows": True,
        f"trainer__{option}": 1e-3,
    }
    norms: list[float] = []
    clip = AccelerateTrainer._clip

    def watched(trainer: Any, model: Any) -> None:
        clip(trainer, model)
        gradients = [each.grad.to_dense() for each in model.parameters() if each.grad is not None]
        flat = torch.cat([each.flatten() for each in gradients])
        norms.append(float(flat.norm() if option == "grad_norm" else flat.abs().max()))

    monkeypatch.setattr(AccelerateTrainer, "_clip", watched)
    run_experiment(config(trainer__num_epochs=1, **changes), tmp_path / "run")
    assert norms == pytest.approx([1e-3] * 4, rel=1e-3)
