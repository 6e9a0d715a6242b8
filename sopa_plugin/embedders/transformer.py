"""Contextual token vectors of a pretrained transformer, as it is or tuned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
import transformers
from torch import Tensor
from torch.nn import functional
from transformers.utils import logging as transformers_logging

from sopa_plugin.embedders.token_embedder import TokenEmbedder
from sopa_plugin.errors import HUB_HELP, UserError, failing
from sopa_plugin.registry import LocalPath, PositiveInt


@TokenEmbedder.register("transformer")
class TransformerEmbedder(TokenEmbedder):
    """The hidden states of any transformers encoder (BERT, RoBERTa, MiniLM, T5's encoder, ...).

    Registered as `transformer`; belongs with the tokenizer `pretrained` of the same model. Nothing
    is pooled: each word piece is a token of the document. So are the special tokens that the
    tokenizer puts around it (`[CLS]`, `[SEP]`): they mark its start and end for patterns, and keep
    an empty document from being empty. A frozen model never drops anything and needs no gradient.

    A document longer than `max_length` pieces is cut into stretches of that length, each encoded
    for itself; no token is lost. (Padding belongs on the right.)

    Arguments:
        config: The model's own configuration, which `resolve` finds; handed over.
        model: A folder or a Hub id of a pretrained model.
        trainable: Tune the model with the classifier; false keeps it as it is.
        layer: Which hidden state: 0 is the embeddings, 1 the first layer, -1 the last, -2 the one
            before it. Layers above it are left out of the model; its final normalisation, where it
            has one (T5, GPT-2, ModernBERT), is applied to whichever layer is then the last.
        max_length: Most pieces to encode at once; null takes what the model can.
        normalize: Give every vector unit length, as word vectors have in the paper: arc scores then
            start where sigmoids are steep (MiniLM's hidden states are about 6 long).
    """

    contextual: ClassVar[bool] = True
    handed_over: ClassVar[frozenset[str]] = frozenset({"config"})

    def __init__(
        self,
        config: dict[str, Any],
        model: LocalPath | None = None,
        trainable: bool = False,
        layer: int = -1,
        max_length: PositiveInt | None = None,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.trainable = trainable
        self.max_length = max_length
        self.normalize = normalize
        self.model = _encoder(transformers.AutoModel.from_config(_shortened(config, layer)))
        self.requires_grad_(trainable)
        self.train()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Hidden states `[batch, tokens, dim]` of `input_ids [batch, tokens]`."""
        batch, tokens = input_ids.shape
        length = min(self.max_length or tokens, tokens)
        if not attention_mask.any():
            return torch.zeros(batch, tokens, self.get_output_dim(), device=input_ids.device)
        # shape: [batch * stretches, length]
        ids, mask = _stretches(input_ids, length), _stretches(attention_mask.long(), length)
        real = mask.any(dim=1)  # attention over padding alone can be nan
        with torch.set_grad_enabled(self.trainable and torch.is_grad_enabled()):
            states = self.model(input_ids=ids[real], attention_mask=mask[real]).last_hidden_state
        if self.normalize:
            states = functional.normalize(states, dim=-1)
        vectors = states.new_zeros(*ids.shape, states.shape[-1])
        vectors[real] = states
        padded: Tensor = vectors.view(batch, -1, states.shape[-1])
        return padded[:, :tokens]

    def get_output_dim(self) -> int:
        """Dimension of the hidden states."""
        return int(self.model.config.hidden_size)

    def train(self, mode: bool = True) -> Self:
        """Switches to training or evaluation; a frozen model stays in evaluation (no dropout)."""
        return super().train(mode and self.trainable)

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Whether a model is named."""
        if params.get("model") is None:
            yield "model", "required key is missing: the folder or Hub id of a pretrained model"

    @classmethod
    def pretrained_words(cls, params: Mapping[str, Any]) -> Iterator[str]:
        """None: word pieces have no vector apart from their context."""
        return iter(())

    @classmethod
    def resolve(
        cls, params: Mapping[str, Any], tokenizer: transformers.PreTrainedTokenizerBase
    ) -> dict[str, Any]:
        """`params` with the model's configuration instead of its name.

        Raises:
            UserError: The model is not to be had; it has no such layer; `max_length` is more than
                it can take; or `tokenizer` is not its own.
        """
        name = params["model"]
        with _reading(name):
            config = transformers.AutoConfig.from_pretrained(name)
            own_tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        if own_tokenizer.get_vocab() != tokenizer.get_vocab():
            raise UserError(
                f"embedder: the tokenizer does not belong to '{name}'; "
                f"expected tokenizer: {{type: 'pretrained', model: '{name}'}}"
            )
        config = _shortened(config.to_diff_dict(), params.get("layer", -1))
        limit = min(own_tokenizer.model_max_length, _most_positions(config))
        max_length = params.get("max_length") or limit
        if max_length > limit:
            raise UserError(
                f"embedder.max_length: expected at most {limit}, all that '{name}' can take, "
                f"found {max_length}"
            )
        return {
            "config": _plain(config),
            "trainable": params.get("trainable", False),
            "max_length": None if max_length >= _UNLIMITED else max_length,
            "normalize": params.get("normalize", True),
        }

    def load_pretrained(
        self, params: Mapping[str, Any], tokenizer: transformers.PreTrainedTokenizerBase
    ) -> dict[str, Any]:
        """Copies the weights of the pretrained model.

        Raises:
            UserError: The model is not to be had.
        """
        name = params["model"]
        with _reading(name):
            pretrained = transformers.AutoModel.from_pretrained(
                name, config=self.model.config, dtype=torch.float32
            )
        self.model.load_state_dict(_encoder(pretrained).state_dict())
        return {}


# Where no limit is known: larger than any document, and what tokenizers say then.
_UNLIMITED = 10**9


def _encoder(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """The part of `model` that gives hidden states.

    A pooler would be weights that nothing uses, which training on many processes refuses.
    """
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    if isinstance(getattr(encoder, "pooler", None), torch.nn.Module):
        encoder.pooler = None
    return encoder


def _shortened(config: Mapping[str, Any], layer: int) -> transformers.PreTrainedConfig:
    """The configuration of the model without what stands above hidden state `layer`."""
    shortened = transformers.AutoConfig.for_model(**config)
    layers = shortened.num_hidden_layers
    number = layer if layer >= 0 else layers + 1 + layer
    if not 0 <= number <= layers:
        raise UserError(
            f"embedder.layer: expected a number from {-layers - 1} to {layers}, found {layer}"
        )
    shortened.num_hidden_layers = number
    if getattr(shortened, "layer_types", None):
        shortened.layer_types = shortened.layer_types[:number]
    return shortened


def _most_positions(config: transformers.PreTrainedConfig) -> int:
    """Most tokens that a model of this configuration has positions for."""
    positions: int = getattr(config, "max_position_embeddings", None) or _UNLIMITED
    with torch.device("meta"):
        modules = dict(transformers.AutoModel.from_config(config).named_modules())
    for name, module in modules.items():
        padding: Any = getattr(module, "padding_idx", None)
        # in the family of RoBERTa they are counted from the padding's id on
        if name.endswith("position_embeddings") and padding is not None:
            return positions - int(padding) - 1
    return positions


def _plain(config: transformers.PreTrainedConfig) -> dict[str, Any]:
    """`config` as JSON has it, without the place and the number format it was stored in."""
    where = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures")
    config.dtype = None
    plain = json.loads(config.to_json_string(use_diff=True))
    return {key: value for key, value in plain.items() if key not in where}


def _stretches(values: Tensor, length: int) -> Tensor:
    """`values [batch, tokens]` cut into rows of `length`: `[batch * stretches, length]`."""
    missing = -values.shape[1] % length
    return functional.pad(values, (0, missing)).view(-1, length)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Says what a user can do about it if the model `name` cannot be read."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # weights left out on purpose are no news
    expected = (
        "expected a folder with a pretrained model (config.json, model.safetensors), or a Hub id"
    )
    try:
        with failing("embedder.model", f"no model from '{name}'; {expected}", HUB_HELP):
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
