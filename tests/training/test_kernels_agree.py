"""Training with the kernel and with the reference recurrence is the same training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sopa_plugin.registry import load_config
from sopa_plugin.training import Experiment, run_experiment

ROOT = Path(__file__).resolve().parents[2]
OVERRIDES = [
    "dataset.max_train_examples=150",
    "trainer.batch_size=30",
    "trainer.num_epochs=5",
    "trainer.optimizer.lr=0.01",
    'model.encoder.patterns={"5": 4, "3": 4, "2": 4}',
]


@pytest.mark.parametrize("semiring", ["max_product", "max_sum"])
def test_the_same_seed_gives_the_same_dev_curve(
    semiring: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("SOPA_SST", "SOPA_VECTORS"):
        monkeypatch.delenv(name, raising=False)
    overrides = [*OVERRIDES, f"model.encoder.semiring={semiring}"]
    config = load_config("configs/sopa_sst.jsonnet", overrides, Experiment)
    curves = []
    for kernel in ("cpu", "reference"):
        monkeypatch.setenv("SOPA_KERNEL", kernel)
        run_experiment(config, tmp_path / kernel)
        lines = (tmp_path / kernel / "epochs.jsonl").read_text().splitlines()
        curves.append([json.loads(line) for line in lines])
    assert len(curves[0]) == len(curves[1]) == 5
    for ours, expected in zip(*curves, strict=True):
        for key in ("training_loss", "validation_loss"):
            assert ours[key] == pytest.approx(expected[key], rel=1e-4), key
        # a document on the border may fall on the other side
        difference = ours["validation_accuracy"] - expected["validation_accuracy"]
        assert abs(difference) <= 0.01
    # and it did learn something
    assert curves[0][-1]["training_loss"] < curves[0][0]["training_loss"] - 0.02
