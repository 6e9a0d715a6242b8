"""A transformer under the patterns: frozen and run once, or tuned."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, BertConfig, pipeline

from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.embedders import TransformerEmbedder
from sopa_plugin.models import TextClassifier, load_model
from sopa_plugin.training import run_experiment

Config = Callable[..., dict[str, Any]]
WORDS = ["the", "film", "is", "a", "of", "and", "good", "bad", "movie", "story", "funny", "not"]


@pytest.fixture
def bert(config: Config, tmp_path: Path) -> dict[str, Any]:
    """An experiment with a small BERT of random weights, as if it were pretrained."""
    folder = str(tmp_path / "bert")
    torch.manual_seed(0)
    bert = BertConfig(
        vocab_size=len(WORDS) + 2, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=32,
    )  # fmt: skip
    AutoModel.from_config(bert).save_pretrained(folder)
    tokenizer = make_tokenizer(WORDS)
    tokenizer.model_max_length = 32
    tokenizer.save_pretrained(folder)
    return config(
        tokenizer={"type": "pretrained", "model": folder},
        model__embedder={"type": "transformer", "model": folder, "trainable": False},
    )


def epochs(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("encoder", [None, {"type": "bilstm", "hidden_dim": 4}])
def test_a_frozen_embedder_is_run_once_and_nothing_changes_by_that(
    bert: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoder: dict[str, Any] | None,
) -> None:
    bert["model"]["encoder"] = encoder or bert["model"]["encoder"]
    bert["model"]["encoder"]["dropout"] = 0.0  # it is drawn by row, of which there are others
    seen: list[int] = []
    forward = TransformerEmbedder.forward

    def counting(self: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        seen.append(len(input_ids))
        return forward(self, input_ids, attention_mask)

    monkeypatch.setattr(TransformerEmbedder, "forward", counting)
    run_experiment(bert, tmp_path / "once")
    assert sum(seen) == 60 + 20 + 20 + 20  # train, dev and, of the best model, dev and test
    seen.clear()
    bert["trainer"]["cache_embedder"] = False
    run_experiment(bert, tmp_path / "always")
    # and train once more, for the means of the best model's document vectors
    assert sum(seen) == 4 * (60 + 20) + 20 + 20 + 60
    for once, always in zip(epochs(tmp_path / "once"), epochs(tmp_path / "always"), strict=True):
        assert once == pytest.approx(always, rel=1e-4)
    assert not (tmp_path / "once" / ".cache").exists()


def test_the_saved_model_stands_alone(bert: dict[str, Any], tmp_path: Path) -> None:
    run_experiment(bert, tmp_path / "run")
    shutil.rmtree(tmp_path / "bert")
    model = load_model(tmp_path / "run")
    assert isinstance(model, TextClassifier)
    assert not any(each.requires_grad for each in model.embedder.parameters())
    classify = pipeline("text-classification", model=str(tmp_path / "run"), top_k=None)
    texts = ["a good film", "", "bad", "the story is not funny but good " * 20]
    for text, row in zip(texts, np.exp(model.log_probabilities(texts)), strict=True):
        scores = {each["label"]: each["score"] for each in classify(text)[0]}
        assert [scores[label] for label in model.labels] == pytest.approx(row.tolist(), rel=1e-4)


def test_a_tuned_embedder_learns_at_its_own_rate(bert: dict[str, Any], tmp_path: Path) -> None:
    def change(name: str, rate: float) -> float:
        bert["trainer"]["embedder_lr"] = rate
        run_experiment(bert, tmp_path / name)
        model = load_model(tmp_path / name)
        assert isinstance(model, TextClassifier)
        before = AutoModel.from_pretrained(tmp_path / "bert").get_input_embeddings().weight.detach()
        after = model.embedder.model.get_input_embeddings().weight.detach()
        return float((after - before).abs().max())

    bert["model"]["embedder"]["trainable"] = True
    slow, fast = change("slow", 1e-5), change("fast", 1e-3)
    assert 0 < slow < 1e-3 < fast
