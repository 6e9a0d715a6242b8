"""An epoch of training, everything included."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from sopa_plugin.benchmarks.bench import OURS, Bench
from sopa_plugin.benchmarks.contenders import (
    CONVOLUTION,
    LEARNING_RATE,
    Convolution,
    Trained,
    word_vectors,
)
from sopa_plugin.benchmarks.report import Ratio, Seconds, Table, Target
from sopa_plugin.benchmarks.workload import LABELS, Workload
from sopa_plugin.registry import Lazy
from sopa_plugin.training import AccelerateTrainer, Optimizer, RunFolder


def epoch(bench: Bench) -> None:
    """Epochs by the library's own trainer, in steps of the convolution taken between them."""
    workload, batches = bench.workload, bench.workload.batches(bench.batches)
    model = workload.classifier()
    peer = Trained(Convolution(word_vectors(model)), workload.documents)
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
        run = RunFolder(Path(folder, "run"), {})
        trainer.set_up(model, run)
        run.start()
        began = bench.clock()
        trainer.train(model, _dataset(workload), run, seed=1, on_epoch=on_epoch)
        run.close_log()
    silent.setLevel(level)
    # The first epoch also compiles and tokenises.
    in_steps = Ratio.of(np.array(epochs[1:]) / np.array(steps[1:]))
    rows = [
        {"what": f"epoch of {OURS}", "time": Seconds.of(epochs[1:]), "in Conv1d steps": in_steps},
        {"what": f"training step of {CONVOLUTION}", "time": Seconds.of(steps[1:])},
    ]
    note = (
        "By the library's trainer: packing, forward, backward, Adam, evaluation on dev, metrics, "
        f"a checkpoint; {len(workload.texts):,} sentences and {len(workload.dev_texts):,} of dev."
    )
    bench.report.tables.append(Table("Epoch", rows, note))
    target = Target("an epoch, all included, in Conv1d steps", in_steps, 18, 13, at_most=True)
    bench.report.targets.append(target)


def _dataset(workload: Workload) -> DatasetDict:
    features = Features({"text": Value("string"), "label": ClassLabel(names=LABELS)})

    def split(texts: Sequence[str], labels: Sequence[int]) -> Dataset:
        return Dataset.from_dict({"text": list(texts), "label": list(labels)}, features=features)

    return DatasetDict(
        train=split(workload.texts, workload.labels),
        dev=split(workload.dev_texts, workload.dev_labels),
    )
