"""Bag of vectors: logistic regression over the average of a document's token vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from sopa_plugin.data.batches import Documents, evaluation_batches
from sopa_plugin.embedders import TokenEmbedder
from sopa_plugin.embedders.token_embedder import build_embedder
from sopa_plugin.encoders import MeanEncoder
from sopa_plugin.models.linear_model import LinearModel, Tensors
from sopa_plugin.models.model import Model
from sopa_plugin.registry import Lazy, fill_defaults

EMBEDDER = "embedder."  # prefix of the embedder's weights in a saved model


@Model.register("bag_of_vectors", constructor="from_parts")
class BagOfVectors(LinearModel):
    """The average of frozen token vectors, words or a transformer's, as features.

    Registered as `bag_of_vectors`; trained by `sklearn`. The embedder is used as it is.

    Arguments of a config:
        embedder: a `TokenEmbedder`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        labels: list[str],
        embedder: dict[str, Any],
    ) -> None:
        super().__init__(tokenizer, labels)
        self._params = embedder
        self.embedder = build_embedder(embedder)
        self.embedder.eval()
        self.encoder = MeanEncoder(self.embedder.get_output_dim())

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Whether something of the embedder would have to be trained."""
        if params["embedder"].get("own_rows"):
            yield "embedder.own_rows", "expected false: this model trains no vectors"

    @classmethod
    def from_parts(
        cls,
        embedder: Lazy[TokenEmbedder],
        tokenizer: PreTrainedTokenizerBase,
        labels: list[str],
    ) -> Self:
        """A model to be trained: reads the files that the embedder's config names."""
        params = fill_defaults(TokenEmbedder, embedder.params)
        resolved = TokenEmbedder.by_name(params["type"]).resolve(params, tokenizer)
        model = cls(tokenizer, labels, {"type": params["type"], **resolved})
        model._params |= model.embedder.load_pretrained(params, tokenizer)
        return model

    def arguments(self) -> dict[str, Any]:
        """What the embedder is built from, with no file but its own."""
        return {"embedder": self._params}

    def fit_features(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """The features, which are given by the embedder."""
        return self.features(texts)

    @torch.inference_mode()
    def features(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Average vectors `[texts, dim]`; zeros for an empty text."""
        documents = Documents.encode(texts, self.tokenizer)
        features = np.zeros((len(documents), self.embedder.get_output_dim()))
        device = next(self.embedder.parameters()).device
        for numbers in evaluation_batches(documents.lengths):
            batch = documents.padded(numbers, self.tokenizer.pad_token_id or 0)
            ids, mask = (batch[key].to(device) for key in ("input_ids", "attention_mask"))
            features[numbers] = self.encoder(self.embedder(ids, mask), mask).cpu().numpy()
        return features

    def to_device(self, device: str) -> None:
        """Moves the embedder."""
        self.embedder.to(device)

    def parameter_counts(self) -> dict[str, int]:
        """As of every linear model, `total` with the embedder."""
        counts = super().parameter_counts()
        embedder = sum(each.numel() for each in self.embedder.parameters())
        return {**counts, "total": counts["total"] + embedder, "embedder": embedder}

    def feature_state(self) -> tuple[Any, Tensors]:
        """The embedder's weights."""
        weights = self.embedder.state_dict()
        tensors = {EMBEDDER + key: each.cpu().numpy() for key, each in weights.items()}
        return {}, tensors

    def set_feature_state(self, description: Any, tensors: Tensors) -> None:
        """Takes what `feature_state` gave."""
        self.embedder.load_state_dict(
            {key.removeprefix(EMBEDDER): torch.from_numpy(each) for key, each in tensors.items()}
        )
