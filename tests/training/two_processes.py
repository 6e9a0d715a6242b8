"""What `test_processes` has each of two processes do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sopa_plugin.models import TextClassifier
from sopa_plugin.training import AccelerateTrainer, run_experiment
from sopa_plugin.training.processes import processes


class Stopped(Exception):
    pass


def main(config: dict[str, Any], folder: Path) -> None:
    trained: list[list[list[int]]] = []  # by epoch and step
    evaluated: list[int] = []
    make_batch, train_epoch = TextClassifier.make_batch, AccelerateTrainer._train_epoch

    def watched_batch(model: TextClassifier, documents: Any, numbers: Any) -> Any:
        if model.training:
            trained[-1].append(numbers.tolist())
        else:
            evaluated.extend(numbers.tolist())
        return make_batch(model, documents, numbers)

    def watched_epoch(trainer: AccelerateTrainer, *args: Any) -> Any:
        trained.append([])
        return train_epoch(trainer, *args)

    TextClassifier.make_batch = watched_batch  # type: ignore[method-assign]
    AccelerateTrainer._train_epoch = watched_epoch  # type: ignore[method-assign]
    metrics = run_experiment(config, folder / "run")
    seen = {"trained": trained[:], "evaluated": evaluated[:]}

    steps, optimizer_step = 0, AccelerateTrainer._optimizer_step

    def stopping_step(trainer: AccelerateTrainer, *args: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 4:  # in the middle of the second epoch
            raise Stopped
        return optimizer_step(trainer, *args)

    AccelerateTrainer._optimizer_step = stopping_step  # type: ignore[method-assign]
    try:
        run_experiment(config, folder / "stopped")
    except Stopped:
        AccelerateTrainer._optimizer_step = optimizer_step  # type: ignore[method-assign]
    recovered = run_experiment(config, folder / "stopped", recover=True)

    state = processes()
    report = {
        "num_processes": state.num_processes,
        "metrics": metrics,
        "recovered": recovered,
        **seen,
    }
    (folder / f"rank{state.process_index}.json").write_text(json.dumps(report))
    state.wait_for_everyone()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
