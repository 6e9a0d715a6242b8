"""TF-IDF: logistic regression over weighted counts of words and word sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sopa_plugin.data.tokenizers import bounded, in_batches
from sopa_plugin.errors import TrainingFailed
from sopa_plugin.models.linear_model import LinearModel, Tensors
from sopa_plugin.models.model import Model
from sopa_plugin.registry import PositiveInt


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
