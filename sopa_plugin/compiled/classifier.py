"""A trained text classifier as a table: prediction without an embedder or matrix products."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import index
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sopa_plugin import __version__
from sopa_plugin.compiled.words import Pieces, WithUnknown, Words
from sopa_plugin.data.readers.sources import check_encodable
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.encoders.sopa_layers import RulePattern, add_boundary_tokens, boundary_places
from sopa_plugin.errors import UserError
from sopa_plugin.files import (
    check_digests,
    check_folder,
    check_labels,
    check_sizes,
    write_digests,
)
from sopa_plugin.heads import ClassifierHead
from sopa_plugin.registry import check_imported, imported_only, imported_plugins
from sopa_plugin.rules.unknown import UnknownWords
from sopa_plugin.wfsa import Arcs, document_scores

FILE = "compiled.safetensors"
FORMER_FILE = "matcher.safetensors"  # is still read, for a release
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
"""The files of a model that decide what it predicts."""

_TEXTS_AT_ONCE = 4096
_RECORD = "sopa_plugin"  # key of the file's metadata: everything but words and numbers, as JSON
_WORDS = "words"  # in UTF-8: the vocabulary, a word a line (none holds a line's end), ...
_TOKENIZER = "tokenizer"  # ... or else the whole tokenizer, as JSON

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """What a compiled classifier is, apart from its words and numbers.

    Attributes:
        encoder, head: the parts' `type` and constructor arguments.
        labels: names of the classes.
        rules: the patterns that rules became.
    """

    encoder: Mapping[str, Any]
    head: Mapping[str, Any]
    labels: Sequence[str]
    rules: Sequence[Sequence[Any]] = ()


_SETTINGS = tuple(field.name for field in fields(Settings))


class CompiledClassifier(nn.Module):
    """Classifies text by looking up the arc scores of its words.

    Where a word's vector does not depend on the words around it, a trained model gives each word of
    its vocabulary fixed arc scores: `table [V, R]`. Splitting the text, the recurrence and the head
    are all that is left. A model's `to_compiled` makes one, `load_compiled` reads one's file.

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

    def __init__(
        self, settings: Settings, words: Words | Pieces | WithUnknown, num_rows: int
    ) -> None:
        super().__init__()
        self.settings = settings
        self.labels = list(settings.labels)
        self.words = words
        # The arcs are not used: they are in the table.
        rules = [
            RulePattern(name, index(states), index(rule), sure)
            for name, states, rule, sure in settings.rules
        ]
        encoder = SopaEncoder.from_params(settings.encoder, input_dim=2, rules=rules)
        self.layout = encoder.layout
        self.semiring = encoder.options.semiring
        self.boundary_width = encoder.boundary_width
        self.num_boundary_rows = encoder.num_boundary_rows
        self.document_vector = encoder.document_vector
        self.head: ClassifierHead = ClassifierHead.from_params(
            settings.head, input_dim=encoder.get_output_dim(), num_labels=len(self.labels)
        )
        # Whoever builds one assigns them.
        shape = num_rows, self.layout.num_scores
        self.register_buffer("table", torch.empty(shape, device="meta"))
        self.register_buffer("epsilon", torch.empty(self.layout.num_epsilons, device="meta"))
        self.register_buffer("class_log_prior", torch.empty(len(self.labels), device="meta"))
        self.eval()

    @classmethod
    @torch.no_grad()
    def from_parts(
        cls,
        settings: Settings,
        words: Words | Pieces | WithUnknown,
        vectors: Iterable[Tensor],
        encoder: SopaEncoder,
        head: ClassifierHead,
        class_log_prior: Tensor,
    ) -> Self:
        """Compiles the parts of a trained model, which are in evaluation mode.

        Arguments:
            settings: what it is.
            words: turns text into rows of the table.
            vectors: those of the words, in parts `[some words, dim]`.
            encoder, head, class_log_prior: of the model.
        """
        parts = [encoder.arc_scores(some)[0] for some in vectors]
        # shape: [boundary rows, R]
        boundaries, epsilon = encoder.arc_scores(encoder.boundary_rows().to(parts[0]))
        parts.append(boundaries)
        state = {
            "table": torch.cat(parts),
            "epsilon": epsilon,
            "class_log_prior": class_log_prior,
            **encoder.document_vector.state_dict(prefix="document_vector."),
            **head.state_dict(prefix="head."),
        }
        compiled = cls(settings, words, len(state["table"]))
        compiled.load_state_dict(
            {name: each.cpu().clone() for name, each in state.items()}, assign=True
        )
        return compiled.requires_grad_(False)

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Logits `[B, labels]` of documents of word `ids [M]` that start at `offsets [B + 1]`."""
        empty = offsets.diff() == 0
        if self.boundary_width:
            places = boundary_places(len(self.table), self.num_boundary_rows)
            ids, offsets = add_boundary_tokens(ids, offsets, places, self.boundary_width)
        arcs = Arcs(self.table, ids, offsets, self.epsilon)
        scores = document_scores(self.layout, self.semiring, arcs)
        logits = self.head(self.document_vector(scores, self.table.dtype))
        return torch.where(empty[:, None], self.class_log_prior, logits)

    @torch.inference_mode()
    def log_probabilities(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`, as the model itself gives them.

        Raises:
            TypeError: one text instead of several, or something that is no text.
            UserError: a text has half of a surrogate pair in it.
        """
        if isinstance(texts, str):
            raise TypeError(f"texts: expected a list of texts, found one; give [{texts[:40]!r}]")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("texts: expected a list of texts, found something else in it")
        logits = torch.empty(len(texts), len(self.labels))
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = slice(start, start + _TEXTS_AT_ONCE)
            try:
                logits[some] = self(*self.words.encode(texts[some]))
            except (UnicodeEncodeError, TypeError):
                for number, text in enumerate(texts, start=1):
                    check_encodable(text, f"text {number}")
                raise
        return logits.double().log_softmax(dim=1).numpy()  # type: ignore[no-any-return]

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The most probable label of each text."""
        return [self.labels[best] for best in self.log_probabilities(texts).argmax(axis=1)]


def save_compiled(compiled: CompiledClassifier, folder: str | Path) -> None:
    """Writes `compiled.safetensors` into a folder: its model's, or one that is to do without it."""
    words, options = compiled.words, dict[str, Any]()
    if isinstance(words, WithUnknown):
        options["unknown_words"] = words.unknown_words.to_json()
        words = words.words
    if isinstance(words, Pieces):
        key, text = _TOKENIZER, words.tokenizer
        options["split_special_tokens"] = words.split_special_tokens
    else:
        key, text = _WORDS, "\n".join(words.words)
        options |= {"unknown": words.unknown, "lowercase": words.lowercase}
        if words.max_tokens is not None:
            options["max_tokens"] = words.max_tokens
    record = {
        **asdict(compiled.settings),
        "version": __version__,
        "plugins": imported_plugins(),
        "model_files": _checksums(Path(folder)),
        "words": options,
    }
    encoded = torch.frombuffer(bytearray(text, encoding="utf-8"), dtype=torch.uint8)
    metadata = {_RECORD: json.dumps(record)}
    file = Path(folder) / FILE
    save_file({**compiled.state_dict(), key: encoded}, file, metadata)
    write_digests(file.parent, [file])


def load_compiled(folder: str | Path, accept_changed: bool = False) -> CompiledClassifier | None:
    """The compiled classifier in a folder; None if it has none, or one that its model has outlived.

    Arguments:
        folder: of the model, or where there is the compiled classifier alone.
        accept_changed: take files that were changed after they were saved.

    Raises:
        UserError: there is no such folder, or a file is damaged.
    """
    folder = Path(folder)
    check_folder(folder, "give the folder of a finished run")
    if not accept_changed:
        check_digests(folder)
    files = (folder / name for name in (FILE, FORMER_FILE))
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            record: dict[str, Any] = json.loads(opened.metadata()[_RECORD])
            if not _belongs(record, folder):
                logger.warning("%s: not used: of another model than is here, or version", file)
                return None
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        check_imported(record["plugins"], str(file))
        check_labels(record["labels"], str(file))
        words = _words(tensors, record["words"])
        settings = Settings(**{key: record[key] for key in _SETTINGS if key in record})
        for name, config in vars(settings).items():
            check_sizes(config, (each.shape for each in tensors.values()), f"{file}: {name}")
        with imported_only():
            compiled = CompiledClassifier(settings, words, len(tensors["table"]))
        if words.num_ids + compiled.num_boundary_rows > len(tensors["table"]):
            raise ValueError(f"{words.num_ids} words, but {len(tensors['table'])} rows")
        expected = {name: each.dtype for name, each in compiled.state_dict().items()}
        compiled.load_state_dict(tensors, assign=True)
        if {name: each.dtype for name, each in tensors.items()} != expected:
            raise ValueError("numbers of another type")
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file makes go wrong
        raise UserError(
            f"{file}: not a compiled classifier, or a damaged one ({type(error).__name__}: "
            f"{error}); delete it: the model itself predicts the same"
        ) from error
    return compiled.requires_grad_(False)


def _words(tensors: dict[str, Tensor], options: dict[str, Any]) -> Words | Pieces | WithUnknown:
    """What splits text, taken out of the file's tensors."""
    unknown = options.pop("unknown_words", None)
    words: Words | Pieces
    if _TOKENIZER in tensors:
        words = Pieces(tensors.pop(_TOKENIZER).numpy().tobytes().decode(), **options)
    else:
        words = Words(tensors.pop(_WORDS).numpy().tobytes().decode().split("\n"), **options)
    return words if unknown is None else WithUnknown(words, UnknownWords.from_json(unknown))


def _belongs(record: dict[str, Any], folder: Path) -> bool:
    """Whether a classifier was compiled from the model in its folder, where there is one."""
    checksums = _checksums(folder)
    same = checksums == record["model_files"] and record["version"] == __version__
    return same or not checksums


def _checksums(folder: Path) -> dict[str, int]:
    """CRC-32 of each of a model's files that the folder has."""
    files = (folder / name for name in MODEL_FILES)
    return {file.name: zlib.crc32(file.read_bytes()) for file in files if file.is_file()}
