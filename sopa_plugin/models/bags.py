"""Linear models over bags, where order does not count: of words and n-grams, and of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from sopa_plugin.data.batches import Documents, evaluation_batches
from sopa_plugin.data.tokenizers import bounded, in_batches
from sopa_plugin.embedders import TokenEmbedder
from sopa_plugin.embedders.token_embedder import build_embedder
from sopa_plugin.encoders import MeanEncoder
from sopa_plugin.errors import TrainingFailed
from sopa_plugin.models.linear_model import LinearModel, Tensors
from sopa_plugin.models.model import Model
from sopa_plugin.registry import Lazy, PositiveInt, fill_defaults

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


@Model.register("tfidf")
@dataclass(eq=False, repr=False)
class Tfidf(LinearModel):
    """Counts of n-grams, scaled by how few documents have them (scikit-learn's definition).

    Registered as `tfidf`; trained by `sklearn`. The tokenizer's tokens are counted.

    Arguments:
        max_ngram: most tokens of an n-gram; 1 counts single tokens.
        min_documents: leave out n-grams in fewer training documents.
        max_features: keep only the most frequent n-grams; null keeps all.
        sublinear: count c as 1 + log c.
    """

    max_ngram: PositiveInt = 2
    min_documents: PositiveInt = 1
    max_features: PositiveInt | None = None
    sublinear: bool = True
    vectorizer: Any = field(default=None, init=False)

    def fit_features(self, texts: Sequence[str]) -> Any:
        """Decides which n-grams count; the texts' features, sparse `[texts, n-grams]`."""
        self.vectorizer = self._make_vectorizer(None)
        try:
            return self.vectorizer.fit_transform(self._tokens(texts))
        except ValueError as error:  # nothing is left to count
            raise TrainingFailed(
                f"model.min_documents: no n-gram is in {self.min_documents} of the {len(texts)} "
                "training documents; lower it"
            ) from error

    def features(self, texts: Sequence[str]) -> Any:
        """Weighted counts, sparse `[texts, n-grams]`; rows have length 1."""
        return self.vectorizer.transform(self._tokens(texts))

    def feature_state(self) -> tuple[Any, Tensors]:
        """The n-grams, their tokens joined by blanks, and their weights."""
        ngrams = self.vectorizer.get_feature_names_out().tolist()
        return {"ngrams": ngrams}, {"inverse_document_frequencies": self.vectorizer.idf_}

    def set_feature_state(self, description: Any, tensors: Tensors) -> None:
        """Takes what `feature_state` gave."""
        self.vectorizer = self._make_vectorizer(list(description["ngrams"]))
        self.vectorizer.idf_ = tensors["inverse_document_frequencies"]

    def _make_vectorizer(self, vocabulary: list[str] | None) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(
            tokenizer=list,
            token_pattern=None,
            lowercase=False,
            ngram_range=(1, self.max_ngram),
            min_df=1 if vocabulary is not None else self.min_documents,
            max_features=None if vocabulary is not None else self.max_features,
            sublinear_tf=self.sublinear,
            vocabulary=vocabulary,
            dtype=np.float64,
        )

    def _tokens(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Tokens as n-grams have them: without blanks, by which an n-gram's tokens are joined."""
        for some in in_batches(texts):
            for tokens in bounded(lambda some: [*map(self.tokenizer.tokenize, some)], some):
                yield [token.replace(" ", "_") for token in tokens]
