"""What is read: soft patterns, where their token vectors come from, and what uses their scores."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from string import whitespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from sopa_plugin.data.batches import Documents, Text, are_split
from sopa_plugin.data.ngrams import NewWords
from sopa_plugin.data.tokenizers import bounded, folds_case
from sopa_plugin.encoders import CnnEncoder, Packed, SopaEncoder
from sopa_plugin.encoders.conversion import from_cnn
from sopa_plugin.encoders.sopa_layers import add_boundary_tokens, boundary_places
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.markup import CONTINUES
from sopa_plugin.interpret.match import pattern_names, unknown_pattern
from sopa_plugin.rules import Rules
from sopa_plugin.wfsa import Arcs
from sopa_plugin.wfsa.dispatch import MAX_SEMIRINGS

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

    from sopa_plugin.compiled import CompiledClassifier
    from sopa_plugin.models import Model, TextClassifier

VOCABULARY_CHUNK = 4096
"""Words of a vocabulary that are embedded at once."""


class Subject(ABC):
    """An encoder with what stands before and behind it.

    Attributes:
        encoder: the soft patterns; of a CNN, those that it is equal to.
        columns: which number of the document vector each pattern's score becomes.
        labels: the classes; empty where no head is read.
    """

    encoder: SopaEncoder
    columns: Sequence[int]
    labels: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The patterns' names, in the encoder's order; those of rules are named after them."""
        pairs = list(zip(self.encoder.layout.lengths, self.encoder.rules, strict=True))
        free = iter(pattern_names([length for length, rule in pairs if rule is None]))
        return tuple(next(free) if rule is None else rule.name for _, rule in pairs)

    def number(self, name: str) -> int:
        """Which pattern `name` is; raises `UserError` if there is none."""
        if name not in self.names:
            raise unknown_pattern(name, self.names)
        return self.names.index(name)

    def prepare(self) -> None:  # noqa: B027  (there may be nothing to do)
        """Makes ready to read many documents."""

    @abstractmethod
    def read(self, documents: Sequence[Any], new_words: NewWords | None = None) -> Documents:
        """Documents split into tokens.

        Words are equal in several readings that share `new_words`, to which new ones are added.
        """

    @abstractmethod
    def embed(self, documents: Documents) -> Packed:
        """Documents as the encoder takes them."""

    def arcs(self, documents: Documents) -> Arcs:
        """What the encoder's arcs score on the tokens of documents, boundary tokens included."""
        *_, arcs = self.encoder.operands(*self.embed(documents))
        return arcs  # type: ignore[no-any-return]

    def vectors(self, documents: Documents) -> Tensor:
        """The vector of each token of documents, `[tokens, dim]`."""
        rows, index, _ = self.embed(documents)
        return rows[index]

    @abstractmethod
    def words(self, documents: Sequence[Any]) -> list[tuple[str, ...]]:
        """The tokens of documents as people read them."""

    @abstractmethod
    def spell(self, ids: Sequence[int], new_words: NewWords | None) -> list[str]:
        """What tokens are called that have these `ids` in `Documents`."""

    @property
    def contextual(self) -> bool:
        """Whether a token's vector depends on its document, so that there is no vocabulary."""
        return False

    def vocabulary(self) -> Iterator[tuple[list[str], Tensor]]:
        """All known words with their vectors, in chunks; none where vectors depend on context."""
        return iter(())

    def is_special(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which tokens the tokenizer put around the document, to be kept whatever is dropped."""
        return np.zeros(len(ids), dtype=bool)

    def document_vectors(self, scores: Tensor) -> Tensor:
        """What the head sees, `[B, dim]`, from the operator's document scores `[B, K]`."""
        weight = self.encoder.arcs.weight
        return self.encoder.document_vector(scores, weight.dtype)  # type: ignore[no-any-return]

    def logits(self, vectors: Tensor) -> Tensor:
        """Class scores `[B, labels]` of document vectors `[B, dim]`."""
        raise UserError("this encoder has no head, so nothing contributes to a class")

    @property
    def prior(self) -> Tensor | None:
        """Class scores of a document without a token, `[labels]`, where no part is asked."""
        return None

    @property
    def means(self) -> Tensor | None:
        """Means of the document vector over the train set, `[dim]`, where they are known."""
        return None


class EncoderSubject(Subject):
    """A bare encoder, with word vectors and, if wanted, a head of any kind.

    Documents are sequences of tokens. Encoder and head are put into evaluation mode.

    Arguments:
        encoder: the patterns.
        vectors: each word's vector (other words have the zero vector), or a function from the
            tokens of a document to their vectors `[tokens, dim]`.
        head: a function from document vectors to class scores.
        labels: the classes, in the head's order.

    Raises:
        UserError: There is a head without labels, or labels without a head.
    """

    def __init__(
        self,
        encoder: SopaEncoder,
        vectors: Mapping[str, ArrayLike] | Callable[[Sequence[str]], ArrayLike],
        head: Callable[[Tensor], Tensor] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        if (head is None) != (not labels):
            raise UserError("a head and its labels come together; found one of them")
        self.encoder = encoder.eval()
        self.columns = range(encoder.get_output_dim())
        self.labels = tuple(labels)
        self._vectors = vectors
        self._head = head.eval() if isinstance(head, nn.Module) else head

    def read(
        self, documents: Sequence[Sequence[str]], new_words: NewWords | None = None
    ) -> Documents:
        new = NewWords(0) if new_words is None else new_words
        ids = [new.number(word, ()) for words in documents for word in words]
        offsets = np.cumsum([0, *map(len, documents)])
        return Documents(np.array(ids, dtype=np.int64), offsets, new_words=new)

    def embed(self, documents: Documents) -> Packed:
        ids, index = documents.ids, np.arange(len(documents.ids))
        groups = np.split(ids, documents.offsets)
        if not self.contextual:
            distinct, index = np.unique(ids, return_inverse=True)
            groups = [distinct]
        spelt = (self.spell(group.tolist(), documents.new_words) for group in groups)
        rows = torch.cat([self._embed(words) for words in spelt])
        return Packed(rows, torch.from_numpy(index), torch.from_numpy(documents.offsets))

    def words(self, documents: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        return [tuple(document) for document in documents]

    def spell(self, ids: Sequence[int], new_words: NewWords | None) -> list[str]:
        words = list(new_words.words) if new_words else []
        return [words[number] for number in ids]

    @property
    def contextual(self) -> bool:
        return not isinstance(self._vectors, Mapping)

    def vocabulary(self) -> Iterator[tuple[list[str], Tensor]]:
        words = list(self._vectors) if isinstance(self._vectors, Mapping) else []
        for start in range(0, len(words), VOCABULARY_CHUNK):
            chunk = words[start : start + VOCABULARY_CHUNK]
            yield chunk, self._embed(chunk)

    def logits(self, vectors: Tensor) -> Tensor:
        return self._head(vectors) if self._head else super().logits(vectors)

    def _embed(self, words: Sequence[str]) -> Tensor:
        """Vectors `[words, dim]` of the tokens of one document, or of any words."""
        rows = torch.zeros(len(words), self.encoder.get_input_dim())
        if isinstance(self._vectors, Mapping):
            for place, word in enumerate(words):
                if word in self._vectors:
                    rows[place] = torch.as_tensor(np.asarray(self._vectors[word]))
        elif words:
            found = np.asarray(self._vectors(words))
            if found.shape != rows.shape:
                expected = f"vectors {list(rows.shape)} of {len(words)} tokens"
                raise ValueError(f"expected {expected}, found {list(found.shape)}")
            rows[:] = torch.as_tensor(found)
        return rows


class ModelSubject(Subject):
    """A `TextClassifier` whose encoder is `sopa` or `cnn`. Documents are texts, or their words.

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
        elif model.tokenizer is None:
            raise UserError(
                "this model has no tokenizer: give it one, from_model(model, tokenizer=...)"
            )
        self._compiled: tuple[tuple[int, ...], CompiledClassifier | None] = (), None
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
    def load(
        cls, folder: str | Path, device: str = "cpu", accept_changed: bool = False
    ) -> ModelSubject:
        """The model in a run folder (see `sopa_plugin.models.load_model`), on a device."""
        from sopa_plugin.models import load_model

        model = load_model(folder, accept_changed)
        model.to_device(device)
        subject = cls.of(model, str(folder))
        subject.prepare(folder)
        return subject

    @classmethod
    def of(cls, model: Model, name: str = "the model") -> ModelSubject:
        """A model of any kind; raises `UserError`, with its `name`, where it has no patterns."""
        from sopa_plugin.models import TextClassifier

        if not isinstance(model, TextClassifier):
            raise UserError(
                f"{name}: a {type(model).__name__} has no patterns to read; expected a "
                "text_classifier with an encoder of type sopa or cnn"
            )
        return cls(model)

    def copied(self) -> ModelSubject:
        """A copy to edit: its encoder and head are its own, embedder and tokenizer are shared."""
        shared = self.model.embedder, self.model.tokenizer
        return ModelSubject(copy.deepcopy(self.model, {id(each): each for each in shared}))

    def prepare(self, folder: str | Path | None = None) -> None:
        """Compiles the model, if it can be and is not yet: words are then only looked up.

        Where a `folder` has it compiled, that is taken.
        """
        wanted = self.model.device.type == "cpu" and self.encoder.options.semiring in MAX_SEMIRINGS
        if wanted and self.compiled is None and self.model.reason_not_compiled() is None:
            from sopa_plugin.compiled import load_compiled

            found = load_compiled(folder, accept_changed=True) if folder else None
            self._compiled = self._versions(), found or self.model.to_compiled()

    @property
    def compiled(self) -> CompiledClassifier | None:
        """The model compiled; None where it is not, or has been changed since."""
        versions, compiled = self._compiled
        return compiled if self._versions() == versions else None

    def _versions(self) -> tuple[int, ...]:
        """Numbers that change with the weights and their device."""
        parameters = [*self.model.embedder.parameters(), *self.model.encoder.parameters()]
        return tuple(number for each in parameters for number in (each._version, each.data_ptr()))

    @property
    def rules(self) -> Rules:
        """Those that patterns of the model began as; there may be none."""
        given = self.model.config.rules
        return Rules((), (), "rules added by hand") if given is None else Rules.from_json(given)

    def read(self, documents: Sequence[Any], new_words: NewWords | None = None) -> Documents:
        from sopa_plugin.compiled.words import WithUnknown

        compiled = self.compiled
        new = NewWords(len(self.model.tokenizer)) if new_words is None else new_words
        if compiled is None or are_split(documents):
            return self.model.encode_texts(documents, new_words=new)  # type: ignore[no-any-return]
        given = (documents, new) if isinstance(compiled.words, WithUnknown) else (documents,)
        ids, offsets, *_ = compiled.words.encode(*given)
        return Documents(ids, offsets, new_words=new)

    def arcs(self, documents: Documents) -> Arcs:
        compiled, encoder = self.compiled, self.encoder
        if compiled is None:
            return super().arcs(documents)
        # arc scores of words are known, or made of those of their n-grams
        assert documents.new_words is not None
        table, rows = compiled.rows_of(documents.ids, documents.new_words.entries())
        index, offsets = torch.from_numpy(rows), torch.from_numpy(documents.offsets)
        if width := encoder.boundary_width:
            places = boundary_places(len(table), encoder.num_boundary_rows)
            index, offsets = add_boundary_tokens(index, offsets, places, width)
        return Arcs(torch.from_numpy(table), index, offsets, torch.from_numpy(compiled.epsilon))

    @torch.no_grad()
    def embed(self, documents: Documents) -> Packed:
        every, device = np.arange(len(documents)), self.model.device
        if self.contextual:
            batch = documents.padded(every, self.model.config.pad_token_id or 0)
            mask = batch["attention_mask"].bool().to(device)
            rows = self.model.embedder(batch["input_ids"].to(device), mask)[mask]
            index, bounds = torch.arange(len(rows)), torch.from_numpy(documents.offsets)
        else:
            batch = {name: each.to(device) for name, each in documents.packed(every).items()}
            rows = self.model.word_vectors(batch["token_ids"], batch.get("ngrams"))
            index, bounds = batch["index"], batch["offsets"]
        return Packed(rows, index.to(rows.device), bounds.to(rows.device))

    def words(self, documents: Sequence[Text]) -> list[tuple[str, ...]]:
        from sopa_plugin.compiled.words import WithUnknown, Words

        tokenizer, texts = self.model.tokenizer, list(documents)
        if not texts:
            return []
        words: Any = getattr(self.compiled, "words", None)
        words = words.words if isinstance(words, WithUnknown) else words
        if isinstance(words, Words) and not are_split(texts):
            return [tuple(words.spelt(str(text))) for text in texts]
        split = partial(tokenizer, is_split_into_words=are_split(texts), verbose=False)
        found = bounded(split, texts)
        if not tokenizer.is_fast:
            return [tuple(tokenizer.convert_ids_to_tokens(ids)) for ids in found["input_ids"]]
        return [tuple(_spelt(text, found[number])) for number, text in enumerate(texts)]

    def normal_words(self, documents: Sequence[str]) -> list[tuple[str, ...]]:
        """The same, lower-cased where the model does so: what rules are tried on."""
        spell = str.lower if folds_case(self.model.tokenizer) else str
        return [tuple(map(spell, text)) for text in self.words(documents)]

    def spell(self, ids: Sequence[int], new_words: NewWords | None) -> list[str]:
        assert new_words is not None
        first, new = new_words.first, list(new_words.words)
        known = self.model.tokenizer.convert_ids_to_tokens([min(each, first - 1) for each in ids])
        return [
            new[each - first] if each >= first else word
            for each, word in zip(ids, known, strict=True)
        ]

    @property
    def contextual(self) -> bool:
        return bool(self.model.embedder.contextual)

    @torch.no_grad()
    def vocabulary(self) -> Iterator[tuple[list[str], Tensor]]:
        if self.contextual:
            return
        rows, special = self.model.tokenizer.get_vocab(), self.model.tokenizer.all_special_tokens
        words = sorted(rows.keys() - set(special), key=rows.__getitem__)
        for start in range(0, len(words), VOCABULARY_CHUNK):
            chunk = words[start : start + VOCABULARY_CHUNK]
            ids = torch.tensor([rows[word] for word in chunk], device=self.model.device)
            yield chunk, self.model.word_vectors(ids)

    def is_special(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.isin(ids, self._around)

    @cached_property
    def _around(self) -> list[int]:
        """The tokens that the tokenizer puts around documents."""
        names = (f"{name}_token_id" for name in ("cls", "sep", "bos", "eos"))
        around = (getattr(self.model.tokenizer, name) for name in names)
        return [number for number in around if number is not None]

    def document_vectors(self, scores: Tensor) -> Tensor:
        vectors = super().document_vectors(scores)
        if self.encoder is self.model.encoder:
            return vectors
        return vectors[:, np.argsort(self.columns)]  # filters stand in the order of their windows

    def logits(self, vectors: Tensor) -> Tensor:
        return self.model.head(vectors)  # type: ignore[no-any-return]

    @property
    def prior(self) -> Tensor | None:
        return self.model.class_log_prior  # type: ignore[no-any-return]

    @property
    def means(self) -> Tensor | None:
        return self.model.document_vector_means  # type: ignore[no-any-return]


def _spelt(text: Text, encoding: Encoding) -> Iterator[str]:
    """Tokens as the text has them, pieces of one of its words marked; special ones by name."""
    reached, within = -1, None
    for token, (start, stop), word in zip(
        encoding.tokens, encoding.offsets, encoding.word_ids, strict=True
    ):
        if stop == start:
            yield token
            continue
        whole: Any = text if isinstance(text, str) or word is None else text[word]
        piece = whole[start:stop]
        goes_on = start == reached and word == within and not piece[0].isspace()
        # A piece may begin with the blank before it; a no-break space is part of a word.
        yield CONTINUES * goes_on + piece.strip(whitespace)
        reached, within = stop, word
