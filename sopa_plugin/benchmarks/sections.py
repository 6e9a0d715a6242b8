"""What is measured of training, matching, predicting and reading."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sopa_plugin.benchmarks.contenders import (
    BILSTM,
    CONVOLUTION,
    LEARNING_RATE,
    REFERENCE,
    Contender,
    Convolution,
    Trained,
    contenders,
    word_vectors,
)
from sopa_plugin.benchmarks.measuring import OURS, Bench, Spread, Table, Target, Work, interleave
from sopa_plugin.benchmarks.workload import DIM, LABELS, PATTERNS, Workload
from sopa_plugin.data.stream import Lines
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.files import shipped
from sopa_plugin.interpret import Explainer
from sopa_plugin.models import TextClassifier
from sopa_plugin.registry import Lazy, load_config
from sopa_plugin.training import (
    AccelerateTrainer,
    Experiment,
    Optimizer,
    RunFolder,
    run_experiment,
)
from sopa_plugin.wfsa.dispatch import choose_kernel

logger = logging.getLogger(__name__)
FASTTEXT = "fastText"
SUMS = ("sum_product", "log")
CAPTURED, NOT_CAPTURED = ", as one CUDA graph", f"{OURS}, kernel by kernel"
SEEDS = 3  # of trainings, at most
PHRASES = 10
EXPLAINED = 50
"""Sentences that are explained one by one."""

REPEATS = 10
"""How often the kernel takes a batch, so that its arc scores are in the cache, as in training."""


def training(bench: Bench) -> None:
    """Training steps of soft patterns, their reference loop, and other encoders."""
    bounds = {REFERENCE: (10, 20), CONVOLUTION: (3, None), BILSTM: (15, None)}
    for order, by_length in (("of like length together", True), ("in random order", False)):
        workload = bench.workload
        models: dict[str, TextClassifier | Contender] = {
            **soft_patterns(workload),
            **contenders(workload.classifier()),
        }
        trained = {name: Trained(each, workload.documents) for name, each in models.items()}
        _training_steps(bench, f"Training step, sentences {order}", trained, by_length, bounds)


def soft_patterns(workload: Workload) -> dict[str, TextClassifier]:
    """Soft patterns as they are by default, with dropout, and summing over paths."""
    return {
        OURS: workload.classifier(),
        f"{OURS}, dropout 0.1": workload.classifier(dropout=0.1),
        **{f"{OURS}, {name}": workload.classifier(semiring=name) for name in SUMS},
    }


def gpu(bench: Bench) -> None:
    """The same on a GPU, where there is one, and a training there; steps captured and not."""
    if not torch.cuda.is_available():
        logger.warning("gpu: no CUDA device: skipped")
        return
    title = f"Training step on {torch.cuda.get_device_name()}"
    bounds = {
        REFERENCE: (60, None),
        BILSTM: (5, None),
        BILSTM + CAPTURED: (2, None),
        CONVOLUTION: (4, None),
        CONVOLUTION + CAPTURED: (1, None),
    }
    _training_steps(bench, title, captured_and_plain(bench.workload, "cuda"), True, bounds)
    to_best_epoch(bench)


def captured_and_plain(workload: Workload, device: str) -> dict[str, Trained]:
    """What trains on a GPU: soft patterns as the trainer has them there, and others both ways."""
    others = contenders(workload.classifier())
    captured: dict[str, TextClassifier | Contender] = {
        **soft_patterns(workload),
        **{name + CAPTURED: others[name] for name in (BILSTM, CONVOLUTION)},
    }
    plain: dict[str, TextClassifier | Contender] = {
        NOT_CAPTURED: workload.classifier(),
        **contenders(workload.classifier()),
    }
    return {
        name: Trained(each, workload.documents, device, name in captured)
        for name, each in (captured | plain).items()
    }


def to_best_epoch(bench: Bench, *overrides: str) -> None:
    """Training to the end of its best epoch by the config shipped for SST, on real data alone."""
    if not os.environ.get("SOPA_SST") or not os.environ.get("SOPA_VECTORS"):
        logger.warning("training to the best epoch: SOPA_SST or SOPA_VECTORS is not set: skipped")
        return
    config = load_config(shipped("configs") / "sopa_sst.jsonnet", overrides, Experiment)

    def trained(seed: int) -> float:
        ends: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            metrics = run_experiment(
                config | {"seed": seed},
                Path(folder, "run"),
                on_epoch=lambda _: ends.append(time.monotonic()),
            )
        hours, minutes, rest = map(float, metrics["training_duration"].split(":"))
        return 3600 * hours + 60 * minutes + rest + ends[metrics["best_epoch"]] - ends[-1]

    found = Spread.of([trained(seed) for seed in range(min(bench.rounds, SEEDS))], "s")
    target = Target("training on SST to its best epoch", found, 5, at_most=True)
    bench.report.targets.append(target)


def _training_steps(
    bench: Bench,
    title: str,
    trained: Mapping[str, Trained],
    by_length: bool,
    bounds: Mapping[str, tuple[float, float | None]],
) -> None:
    batches = bench.workload.batches(bench.batches, by_length)

    def steps(each: Trained) -> Work:
        def work() -> None:
            for numbers in batches:
                each.step(numbers)
            if each.device != "cpu":
                torch.cuda.synchronize()

        return work

    work = {name: steps(each) for name, each in trained.items()}
    targets = {name: (f"{title}: {name}", *bound) for name, bound in bounds.items()}
    note = (
        "Everything that a step takes: packing or padding the batch, forward, backward, Adam. The "
        "reference loop is the same model on the padded batch, one time step at a time, its "
        "gradients by autograd; the others have the same frozen vectors and the same head."
    )
    seconds = bench.compare(title, work, "step", len(batches), targets, note)
    for name in SUMS:
        found = Spread.of(seconds[f"{OURS}, {name}"] / seconds[OURS])
        bench.report.targets.append(Target(f"{title}: {name}", found, 4, at_most=True))


class Inputs:
    """Batches of token vectors: packed (rows, index, offsets), and padded (tokens, mask)."""

    def __init__(self, bench: Bench) -> None:
        documents, vectors = bench.workload.documents, bench.workload.classifier().embedder
        self.packed: list[tuple[Tensor, ...]] = []
        self.padded: list[tuple[Tensor, ...]] = []
        for numbers in bench.workload.batches(bench.batches):
            packed, padded = documents.packed(numbers), documents.padded(numbers, 0)
            ids = packed["token_ids"]
            self.packed.append((vectors(ids, ids), packed["index"], packed["offsets"]))
            self.padded.append((vectors(padded["input_ids"], ids), padded["attention_mask"]))


def kernel(bench: Bench) -> None:
    """The recurrence alone per real token, beside the convolution alone."""
    inputs = Inputs(bench)
    encoder = SopaEncoder(DIM, {int(states): count for states, count in PATTERNS.items()})
    layout, convolution = encoder.layout, Convolution(DIM)
    module = choose_kernel("max_product", torch.device("cpu"), torch.float32)
    if module is None:
        return
    with torch.no_grad():
        scored = [encoder.operands(*packed)[-1] for packed in inputs.packed]
    best = [module.forward(layout, "max_product", arcs, True) for arcs in scored]

    def forward(i: int, keep_paths: bool) -> None:
        module.forward(layout, "max_product", scored[i], keep_paths)

    def backward(i: int) -> None:
        grad, *paths = best[i]
        module.backward(layout, "max_product", grad, scored[i], *paths)

    @torch.inference_mode()
    def convolve(i: int) -> None:
        convolution(*inputs.padded[i])

    def often(take: Callable[[int], None]) -> Work:
        def work() -> None:
            for i in range(len(scored)):
                for _ in range(REPEATS):
                    take(i)

        return work

    work = {
        OURS: often(lambda i: forward(i, keep_paths=False)),
        f"{OURS}, best paths kept": often(lambda i: forward(i, keep_paths=True)),
        f"{OURS}, backward": often(backward),
        CONVOLUTION: often(convolve),
    }
    tokens = REPEATS * sum(len(index) for _, index, _ in inputs.packed)
    targets = {CONVOLUTION: (f"kernel alone, per real token: {CONVOLUTION}", 20, 40)}
    note = "From arc scores to document scores, and from vectors to pooled filters, no gradients."
    bench.compare("Kernel, forward", work, "real token", tokens, targets, note)


def prediction(bench: Bench) -> None:
    """Labels of all sentences, from a list of strings, by the compiled model and by others."""
    workload = bench.workload
    texts = list(workload.texts)
    model = workload.classifier()
    compiled = model.to_compiled()
    joined, logs = "\n".join(texts).encode(), compiled.log_probabilities

    def answer() -> None:
        documents = Lines(BytesIO(joined), "text", is_json=False)
        for _ in documents.answered(lambda some: np.exp(logs(some)), compiled.labels):
            pass

    written = "lines in, JSON out"
    work: dict[str, Work] = {
        OURS: lambda: compiled.predict(texts),
        f"{OURS}, {written}": answer,
        f"{OURS}, not compiled": lambda: model.log_probabilities(texts),
    }
    note = (
        "A list of strings in, labels out; soft patterns compiled to a table. Lines in, JSON out: "
        "as the command `predict`."
    )
    try:
        import fasttext
    except ImportError:
        note += " fastText is not installed here (`pip install fasttext`)."
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "train.txt")
            lines = zip(workload.labels, texts, strict=True)
            file.write_text(
                "".join(f"__label__{label} {text}\n" for label, text in lines), encoding="utf-8"
            )
            trained = _train_fasttext(fasttext, str(file))
        work[FASTTEXT] = lambda: trained.predict(texts)
    tokens = len(workload.documents.ids)
    targets = {FASTTEXT: ("raw text to label: fastText", 1.0, None)}
    seconds = bench.compare("Prediction from raw text", work, "word", tokens, targets, note)
    found = Spread.of(len(texts) / seconds[f"{OURS}, {written}"], "a second")
    bench.report.targets.append(Target(f"documents, {written}", found, 150_000))


def _train_fasttext(fasttext: Any, file: str, attempts: int = 50) -> Any:
    # fastText 0.9.2 leaves a few numbers as the memory was (with one thread, most of them), and
    # stops where they are none. Predicting takes one thread in any case.
    for _ in range(attempts - 1):
        with suppress(RuntimeError):
            return fasttext.train_supervised(file, epoch=1, thread=2, verbose=0)
    return fasttext.train_supervised(file, epoch=1, thread=2, verbose=0)


def reading(bench: Bench) -> None:
    """Reading all sentences, and some of them one by one, beside predicting them."""
    texts = list(bench.workload.texts)
    model = bench.workload.classifier()
    compiled, explainer = model.to_compiled(), Explainer.from_model(model)
    explainer.use_means_of(texts)
    some = texts[:: max(1, len(texts) // EXPLAINED)]
    predict, read = f"{OURS}: labels of all", f"{OURS}: phrases, aligned, and effects"
    each, explain = "labels one by one, by the model", "explanations one by one"
    fast, text = "labels one by one, compiled", "explanations one by one, as text"
    work: dict[str, Work] = {
        predict: lambda: compiled.predict(texts),
        read: lambda: explainer.patterns(texts, k=PHRASES, words=0),
        each: lambda: [model.log_probabilities([one]) for one in some],
        fast: lambda: [compiled.predict([one]) for one in some],
        explain: lambda: [explainer.document(one) for one in some],
        text: lambda: [explainer.document(one).to_text() for one in some],
    }
    seconds = interleave(work, bench.rounds, bench.clock)
    rows = [{"what": name, "time": Spread.of(found, "s")} for name, found in seconds.items()]
    note = (
        f"{len(texts):,} sentences from raw text: labels by the compiled model; the {PHRASES} best "
        f"phrases of each of {len(explainer.subject.names)} patterns with alignments and effects. "
        f"One by one, {len(some)} of them."
    )
    bench.report.tables.append(Table("Reading a model", rows, note))
    for what, one, other, most in (
        ("phrases of all patterns against labels", read, predict, 5),
        ("explaining a document against predicting it", explain, each, 3),
    ):
        found = Spread.of(seconds[one] / seconds[other])
        bench.report.targets.append(Target(what, found, most, at_most=True))


def epoch(bench: Bench) -> None:
    """Epochs by the library's own trainer, in steps of the convolution taken between them."""
    workload, batches = bench.workload, bench.workload.batches(bench.batches)
    model = workload.classifier()
    peer = Trained(Contender(word_vectors(model), Convolution(DIM)), workload.documents)
    epochs: list[float] = []
    steps: list[float] = []
    began = 0.0

    def on_epoch(_: Any) -> None:
        nonlocal began
        ended = bench.clock()
        for numbers in batches:
            peer.step(numbers)
        epochs.append(ended - began)
        steps.append((bench.clock() - ended) / len(batches))
        began = bench.clock()

    trainer = AccelerateTrainer(
        num_epochs=bench.rounds + 1,
        patience=None,
        optimizer=Lazy(Optimizer, {"type": "adam", "lr": LEARNING_RATE, "fused": True}),
    )
    silent = logging.getLogger("sopa_plugin.training")
    level = silent.level
    silent.setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder, "run"), {}, on_epoch=on_epoch)
        trainer.set_up(model, run)
        run.start()
        began = bench.clock()
        trainer.train(model, _dataset(workload), run, seed=1)
        run.close()
    silent.setLevel(level)
    # The first epoch also compiles and tokenises.
    in_steps = Spread.of(np.array(epochs[1:]) / np.array(steps[1:]))
    rows = [
        {"what": f"epoch of {OURS}", "time": Spread.of(epochs[1:], "s"), "in steps": in_steps},
        {"what": f"training step of {CONVOLUTION}", "time": Spread.of(steps[1:], "s")},
    ]
    note = (
        "By the library's trainer: packing, forward, backward, Adam, evaluation on dev, metrics, "
        f"a checkpoint; {len(workload.texts):,} sentences and {len(workload.dev_texts):,} of dev."
    )
    bench.report.tables.append(Table("Epoch", rows, note))
    target = Target("an epoch, all included, in Conv1d steps", in_steps, 18, 13, at_most=True)
    bench.report.targets.append(target)


def _dataset(workload: Workload) -> Any:
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=LABELS)})
    train = {"text": [*workload.texts], "label": [*workload.labels]}
    dev = {"text": [*workload.dev_texts], "label": [*workload.dev_labels]}
    return DatasetDict(
        train=Dataset.from_dict(train, features), dev=Dataset.from_dict(dev, features)
    )
