"""Soft patterns in sentence-transformers: a pooling of token embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor
from torch.nn import functional

from sopa_plugin.encoders import Packed, Seq2VecEncoder, encode_packed, offsets_of, pad
from sopa_plugin.models.saved import WEIGHTS_FILE, check_weights
from sopa_plugin.registry import fill_defaults, imported_only


class SopaPooling(Module):
    """Encodes token embeddings by a `Seq2VecEncoder`, soft patterns if it is not said otherwise.

    Comes after a `Transformer` or, for word vectors, `StaticTokens`.

    Arguments:
        input_dim: dimension of the token embeddings, `get_embedding_dimension()` of what is before.
        encoder: its config, `type` and constructor arguments; `seq2vec` is the encoder itself.
    """

    config_keys = ["input_dim", "encoder"]  # noqa: RUF012

    def __init__(self, input_dim: int, encoder: Mapping[str, Any]) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.encoder = fill_defaults(Seq2VecEncoder, {"type": "sopa", **encoder})
        self.seq2vec = Seq2VecEncoder.from_params(self.encoder, input_dim=input_dim)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds `sentence_embedding [batch, output_dim]` of `token_embeddings [batch, tokens, dim]`.

        Tokens are those of the `attention_mask`, padded on either side, or with
        `cu_seq_lens_q [batch + 1]` all of one row, as flash attention leaves them.
        """
        tokens = features["token_embeddings"]
        if "cu_seq_lens_q" in features:
            rows, offsets = tokens.flatten(0, 1), features["cu_seq_lens_q"].long()
        else:
            mask = features["attention_mask"].bool()
            rows, offsets = tokens[mask], offsets_of(mask)
        packed = Packed(rows, torch.arange(len(rows), device=rows.device), offsets)
        features["sentence_embedding"] = encode_packed(self.seq2vec, packed)
        return features

    def get_embedding_dimension(self) -> int:
        """Numbers of a sentence embedding: one for each pattern."""
        return self.seq2vec.get_output_dim()

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Writes config and weights into a folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, kwargs.get("safe_serialization", True))

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> Self:
        """What `save` wrote, in a folder or on the Hub; nothing is imported because it says so."""
        of_hub = ("token", "cache_folder", "revision", "local_files_only")
        where = {key: kwargs[key] for key in of_hub if key in kwargs} | {"subfolder": subfolder}
        config = cls.load_config(model_name_or_path, **where)
        if (folder := Path(model_name_or_path, subfolder)).joinpath(WEIGHTS_FILE).is_file():
            check_weights(config, folder, "SopaPooling")
        with imported_only():
            module = cls(**config)
        cls.load_torch_weights(model_name_or_path, model=module, **where)
        return module


class StaticTokens(StaticEmbedding):
    """`StaticEmbedding` that gives the vector of each token, where that gives a text's mean."""

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds `token_embeddings [batch, tokens, dim]` and their `attention_mask`."""
        ids: Tensor = features["input_ids"]
        offsets = functional.pad(features["offsets"], (0, 1), value=len(ids))
        tokens, mask = pad(Packed(self.embedding.weight, ids, offsets))
        return features | {"token_embeddings": tokens, "attention_mask": mask.long()}

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> Self:
        """What `save` wrote."""
        static = super().load(*args, **kwargs)
        return cls(static.tokenizer, static.embedding.weight.detach())
