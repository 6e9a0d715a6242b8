"""A trained classifier as the subject of reading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from sopa_plugin.compiled import Matcher, load_matcher
from sopa_plugin.compiled.compiler import obstacle
from sopa_plugin.compiled.words import Words
from sopa_plugin.data.batches import Batch, Documents
from sopa_plugin.data.tokenizers.whitespace import BLANKS
from sopa_plugin.encoders import CnnEncoder, SopaEncoder
from sopa_plugin.encoders.conversion import from_cnn
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.render.markup import CONTINUES
from sopa_plugin.interpret.subject import VOCABULARY_CHUNK, Encoded, Subject
from sopa_plugin.models import TextClassifier, load_model


class ModelSubject(Subject):
    """A `TextClassifier` whose encoder is `sopa` or `cnn`. Documents are texts.

    Arguments:
        model: the classifier; it is put into evaluation mode.
        tokenizer: its tokenizer, where it has none itself (`from_pretrained` gives it none).

    Raises:
        UserError: The encoder has no patterns, or there is no tokenizer.
    """

    def __init__(
        self, model: TextClassifier, tokenizer: PreTrainedTokenizerBase | None = None
    ) -> None:
        self.model = model.eval()
        if tokenizer is not None:
            model.tokenizer = tokenizer
        elif getattr(model, "tokenizer", None) is None:
            raise UserError(
                "this model has no tokenizer: give it one, from_model(model, tokenizer=...)"
            )
        self._matcher: Matcher | None = None
        self._compiled_at: tuple[int, ...] = ()
        self.labels = tuple(model.labels)
        encoder = model.encoder
        if isinstance(encoder, CnnEncoder):
            self.encoder, self.columns = from_cnn(encoder)
        elif isinstance(encoder, SopaEncoder):
            self.encoder, self.columns = encoder, range(encoder.get_output_dim())
        else:
            raise UserError(
                f"this model's encoder is a {type(encoder).__name__}, which has no patterns to "
                "read; expected an encoder of type sopa or cnn"
            )

    @classmethod
    def load(cls, folder: str | Path) -> ModelSubject:
        """The model in a run folder.

        Raises:
            UserError: There is none, or it has no patterns.
        """
        model = load_model(folder)
        if not isinstance(model, TextClassifier):
            raise UserError(
                f"{folder}: a {type(model).__name__} has no patterns to read; expected a "
                "text_classifier with an encoder of type sopa or cnn"
            )
        subject = cls(model)
        if subject._compiles:
            subject._use(load_matcher(folder))
        return subject

    def prepare(self) -> None:
        """Compiles the model, if it can be and is not yet: words are then only looked up."""
        if self.matcher is None and self._compiles:
            self._use(self.model.to_matcher())

    @property
    def matcher(self) -> Matcher | None:
        """The model compiled; None where it is not, or has been changed since."""
        return self._matcher if self._versions() == self._compiled_at else None

    @property
    def _compiles(self) -> bool:
        return self.encoder.options.algebra.selects and obstacle(self.model) is None

    def _use(self, matcher: Matcher | None) -> None:
        self._matcher, self._compiled_at = matcher, self._versions()

    def _versions(self) -> tuple[int, ...]:
        """Numbers that change with the weights and their device."""
        parameters = [*self.model.embedder.parameters(), *self.model.encoder.parameters()]
        return tuple(number for each in parameters for number in (each._version, each.data_ptr()))

    def read(self, documents: Sequence[str]) -> Encoded:
        if self.matcher is None or self.model.device.type != "cpu":
            return self._embed(self.model.encode_texts(documents))
        index, offsets = self.matcher.words.encode(documents)
        arcs = self.matcher.table, self.matcher.epsilon
        rows = arcs[0].new_empty(0, self.encoder.get_input_dim())
        return Encoded(rows, index, offsets, index.numpy(), arcs)

    def embed(self, documents: Sequence[NDArray[np.int64]]) -> Encoded:
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *documents])
        offsets = np.cumsum([0, *(len(document) for document in documents)])
        return self._embed(Documents(ids, offsets))

    def _embed(self, documents: Documents) -> Encoded:
        every = np.arange(len(documents))
        if not self.model.embedder.contextual:
            batch = self._placed(documents.packed(every))
            rows = self._rows(batch["token_ids"])
            return Encoded(rows, batch["index"], batch["offsets"], documents.ids)
        batch = self._placed(documents.padded(every, self.model.config.pad_token_id or 0))
        mask = batch["attention_mask"].bool()
        with torch.no_grad():
            rows = self.model.embedder(batch["input_ids"], mask)[mask]
        index = torch.arange(len(rows), device=rows.device)
        return Encoded(
            rows, index, torch.from_numpy(documents.offsets).to(rows.device), documents.ids
        )

    def _placed(self, batch: Batch) -> Batch:
        return {name: each.to(self.model.device) for name, each in batch.items()}

    def _rows(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return cast(Tensor, self.model.embedder(ids, torch.ones_like(ids)))

    def words(self, documents: Sequence[str]) -> list[tuple[str, ...]]:
        if self.matcher is not None and isinstance(self.matcher.words, Words):
            return [tuple(word for word in re.split(BLANKS, text) if word) for text in documents]
        tokenizer = self.model.tokenizer
        encoded = self.model.encode_texts(documents)
        ids = np.split(encoded.ids, encoded.offsets[1:-1])
        if not tokenizer.is_fast or not len(documents):
            return [tuple(tokenizer.convert_ids_to_tokens(each.tolist())) for each in ids]
        found = tokenizer(list(documents), return_offsets_mapping=True)
        return [
            tuple(self._spelt(text, each, found["offset_mapping"][number], found.word_ids(number)))
            for number, (text, each) in enumerate(zip(documents, ids, strict=True))
        ]

    def _spelt(
        self,
        text: str,
        ids: NDArray[np.int64],
        places: Sequence[tuple[int, int]],
        words: Sequence[int | None],
    ) -> Iterator[str]:
        """Tokens as the text has them, pieces of one of its words marked; special ones by name."""
        reached, within = -1, None
        for number, (start, stop), word in zip(ids.tolist(), places, words, strict=False):
            if stop == start:
                yield str(self.model.tokenizer.convert_ids_to_tokens(number))
                continue
            piece = text[start:stop]
            goes_on = start == reached and word == within and not piece[0].isspace()
            yield CONTINUES * goes_on + piece.strip()
            reached, within = stop, word

    @property
    def contextual(self) -> bool:
        contextual: bool = self.model.embedder.contextual
        return contextual

    def vocabulary(self) -> Iterator[tuple[list[str], Tensor]]:
        if self.model.embedder.contextual:
            return
        special = set(self.model.tokenizer.all_special_tokens)
        known = [
            (word, row)
            for word, row in self.model.tokenizer.get_vocab().items()
            if word not in special
        ]
        known.sort(key=lambda pair: pair[1])
        for start in range(0, len(known), VOCABULARY_CHUNK):
            chunk = known[start : start + VOCABULARY_CHUNK]
            ids = torch.tensor([row for _, row in chunk], device=self.model.device)
            yield [word for word, _ in chunk], self._rows(ids)

    def is_special(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        tokenizer = self.model.tokenizer
        around = (
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
        )
        return np.isin(ids, [number for number in around if number is not None])

    def document_vectors(self, scores: Tensor) -> Tensor:
        vectors = super().document_vectors(scores)
        # A CNN's filters stand in the order of its windows.
        return vectors[:, np.argsort(self.columns)]

    @property
    def prior(self) -> Tensor | None:
        prior: Tensor = self.model.class_log_prior
        return prior

    def logits(self, vectors: Tensor) -> Tensor:
        return self.model.head(vectors)  # type: ignore[no-any-return]
