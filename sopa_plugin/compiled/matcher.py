"""A trained text classifier as a table: prediction without an embedder or matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sopa_plugin.compiled.pieces import Pieces
from sopa_plugin.compiled.words import Words
from sopa_plugin.encoders import SopaEncoder, boundary_tokens
from sopa_plugin.heads import ClassifierHead
from sopa_plugin.wfsa import Arcs, document_scores

_TEXTS_AT_ONCE = 4096


@dataclass(frozen=True)
class Settings:
    """What a matcher is, apart from its words and numbers.

    Attributes:
        encoder, head: the parts' `type` and constructor arguments.
        labels: names of the classes.
    """

    encoder: Mapping[str, Any]
    head: Mapping[str, Any]
    labels: Sequence[str]


class Matcher(nn.Module):
    """Classifies text by looking up the arc scores of its words.

    Where a word's vector does not depend on the words around it, a trained model gives each word of
    its vocabulary fixed arc scores: `table [V, R]`. Splitting the text, the recurrence and the head
    are all that is left. `compile_model` makes one from a model, `load_matcher` from its file.

    Arguments:
        settings: what it is.
        words: turns text into rows of the table.
        num_rows: how many rows that has.

    Attributes:
        table: arc scores as the semiring holds them, `[V, R]`, with one row more for the zero
            vector where documents are wrapped in boundary tokens.
        epsilon: epsilon scores, `[Q]`.
        class_log_prior: logits of a document without a word, `[labels]`.
    """

    table: Tensor
    epsilon: Tensor
    class_log_prior: Tensor

    def __init__(self, settings: Settings, words: Words | Pieces, num_rows: int) -> None:
        super().__init__()
        self.settings = settings
        self.labels = list(settings.labels)
        self.words = words
        # The arcs are not used: they are in the table.
        encoder = SopaEncoder.from_params(settings.encoder, input_dim=1)
        self.layout = encoder.layout
        self.semiring = encoder.options.semiring
        self.boundary_width = encoder.boundary_width
        self.document_vector = encoder.document_vector
        self.head: ClassifierHead = ClassifierHead.from_params(
            settings.head, input_dim=encoder.get_output_dim(), num_labels=len(self.labels)
        )
        # Whoever builds a matcher assigns them.
        shape = num_rows, self.layout.num_scores
        self.register_buffer("table", torch.empty(shape, device="meta"))
        self.register_buffer("epsilon", torch.empty(self.layout.num_epsilons, device="meta"))
        self.register_buffer("class_log_prior", torch.empty(len(self.labels), device="meta"))
        self.eval()

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Logits `[B, labels]` of documents of word `ids [M]` that start at `offsets [B + 1]`."""
        empty = offsets.diff() == 0
        if self.boundary_width:
            ids, offsets = boundary_tokens.wrap(
                ids, offsets, len(self.table) - 1, self.boundary_width
            )
        arcs = Arcs(self.table, ids, offsets, self.epsilon)
        scores = document_scores(self.layout, self.semiring, arcs)
        logits = self.head(self.document_vector(scores, self.table.dtype))
        return torch.where(empty[:, None], self.class_log_prior, logits)

    @torch.inference_mode()
    def log_probabilities(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`, as the model itself gives them."""
        logits = torch.empty(len(texts), len(self.labels))
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = slice(start, start + _TEXTS_AT_ONCE)
            logits[some] = self(*self.words.encode(texts[some]))
        return logits.double().log_softmax(dim=1).numpy()  # type: ignore[no-any-return]

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The most probable label of each text."""
        return [self.labels[best] for best in self.log_probabilities(texts).argmax(axis=1)]
