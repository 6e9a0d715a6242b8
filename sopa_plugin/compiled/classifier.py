"""A trained text classifier as a table: prediction without an embedder or matrix products."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from sopa_plugin import __version__
from sopa_plugin.compiled.words import Pieces, WithUnknown, Words
from sopa_plugin.data.sources import check_encodable
from sopa_plugin.errors import failing, require
from sopa_plugin.files import (
    check_digests,
    check_folder,
    check_labels,
    check_sizes,
    write_digests,
)
from sopa_plugin.registry import (
    Bound,
    NonNegativeInt,
    check,
    check_imported,
    imported_only,
    imported_plugins,
)
from sopa_plugin.rules.unknown import UnknownWords
from sopa_plugin.wfsa.cpu import document_scores
from sopa_plugin.wfsa.kernels.elementwise import log_sigmoid
from sopa_plugin.wfsa.layout import Arcs, Layout, patterns_of_rules

FILE = "compiled.safetensors"
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
"""The files of a model that decide what it predicts."""
SEMIRINGS = ("max_product", "max_sum", "sum_product", "log", "boolean")
"""Those that can be compiled."""

HEADS: Mapping[str, Sequence[str]] = {"linear": ["output"], "mlp": ["hidden", "output"]}
"""Layers of the heads that need no torch, with ReLU between."""

NORM_EPSILON = np.float32(1e-5)
"""What torch's normalizations add to a variance."""

_TEXTS_AT_ONCE = 4096
_RECORD = "sopa_plugin"  # key of the file's metadata: everything but words and numbers, as JSON
_WORDS = "words"  # in UTF-8: the vocabulary, a word a line (none holds a line's end), ...
_TOKENIZER = "tokenizer"  # ... or else the whole tokenizer, as JSON

logger = logging.getLogger(__name__)

Numbers = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """What a compiled classifier is, apart from its words and numbers.

    Attributes:
        labels: names of the classes.
        head: the head's `type` and constructor arguments.
        semiring: its name.
        lengths, options: arguments of the layout.
        boundary_width: how many tokens stand before a document, and behind it.
        boundary_places: the rows of those before and of those behind.
        exponential: whether document scores are logarithms, whose exponentials are taken.
        relu: whether what is below 0 in the document vector becomes 0.
        rules: number of the rule that each pattern is of (`RulePattern`); None: it is free.
    """

    labels: Sequence[str]
    head: Mapping[str, Any] | str
    semiring: str
    lengths: Sequence[Annotated[int, Bound(at_least=2)]]
    options: Sequence[bool]
    boundary_width: NonNegativeInt
    boundary_places: tuple[NonNegativeInt, NonNegativeInt]
    exponential: bool
    relu: bool
    rules: Sequence[Annotated[int, Bound(at_least=-1)] | None]

    @property
    def head_type(self) -> str:
        """The name of the head."""
        return str(self.head["type"] if isinstance(self.head, Mapping) else self.head)


_SETTINGS = tuple(field.name for field in fields(Settings))


class CompiledClassifier:
    """Classifies text by looking up the arc scores of its words; needs no torch.

    Where a word's vector does not depend on the words around it, a trained model gives each word of
    its vocabulary fixed arc scores: `table [V, R]`. Splitting the text, the recurrence and the head
    are all that is left. A model's `to_compiled` makes one, `load_compiled` reads one's file.

    Arguments:
        settings: what it is.
        words: turns text into rows of the table.
        weights: the arrays below, those of the document vector and of the head, and, where unknown
            words have n-grams, of their scores (`_new_scores`).

    Attributes:
        table: arc scores as the semiring holds them, `[V, R]`, with a row more for each boundary
            token.
        epsilon: epsilon scores, `[Q]`.
        class_log_prior: logits of a document without a word, `[labels]`.

    Raises:
        ValueError: the arrays are not of these sizes.
        UserError: the head has no form without torch, and there is none.
    """

    def __init__(
        self,
        settings: Settings,
        words: Words | Pieces | WithUnknown,
        weights: Mapping[str, NDArray[Any]],
    ) -> None:
        self.settings, self.words, self.weights = settings, words, weights
        self.labels = list(settings.labels)
        self.layout = Layout(tuple(settings.lengths), *settings.options)
        self.table, self.epsilon = weights["table"], weights["epsilon"]
        self.class_log_prior = weights["class_log_prior"]
        found = self.table.shape[1:], self.epsilon.shape, self.class_log_prior.shape
        expected = (self.layout.num_scores,), (self.layout.num_epsilons,), (len(self.labels),)
        if found != expected or self.table.dtype != np.float32:
            raise ValueError(f"arrays {found} of {self.table.dtype}, expected {expected}")
        if settings.semiring not in SEMIRINGS or len(settings.options) != len(self.layout.options):
            raise ValueError(f"{settings.semiring}, options {settings.options}")
        if settings.boundary_width >= self.layout.max_length:
            raise ValueError(f"{settings.boundary_width} boundary tokens")
        if len(settings.rules) != self.layout.num_patterns:
            raise ValueError(f"rules of {len(settings.rules)} patterns")
        places = settings.boundary_places if settings.boundary_width else ()
        behind = range(words.num_ids, len(self.table))
        if words.num_ids > len(self.table) or not all(each in behind for each in places):
            raise ValueError(
                f"{words.num_ids} words, boundary tokens at {places}, {len(self.table)} rows"
            )
        self._head = self._make_head()

    def weights_of(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The weights whose names begin so, by what comes after that."""
        return {
            name.removeprefix(prefix): each
            for name, each in self.weights.items()
            if name.startswith(prefix)
        }

    def _make_head(self) -> Callable[[Numbers], Numbers]:
        """What gives logits `[B, labels]` of document vectors `[B, K]`."""
        settings, own = self.settings, self.weights_of("head.")
        name = settings.head_type
        if name in HEADS:
            layers = [(own[f"{layer}.weight"].T, own[f"{layer}.bias"]) for layer in HEADS[name]]

            def logits(document: Numbers) -> Numbers:
                for number, (weight, bias) in enumerate(layers):
                    document = (np.maximum(document, 0) if number else document) @ weight + bias
                return document

            return logits
        torch: Any = require("torch", f"the head {name!r}", extra=None)
        from sopa_plugin.heads import ClassifierHead

        head = ClassifierHead.from_params(
            settings.head, input_dim=len(settings.lengths), num_labels=len(settings.labels)
        )
        head.load_state_dict({key: torch.from_numpy(each) for key, each in own.items()})
        head.eval().requires_grad_(False)
        return lambda document: head(torch.from_numpy(document)).numpy()

    @np.errstate(over="ignore", invalid="ignore")
    def logits(
        self, ids: Integers, offsets: Integers, new_words: Integers | None = None
    ) -> Numbers:
        """Logits `[B, labels]` of documents of word `ids [M]` that start at `offsets [B + 1]`.

        `new_words` are those of `WithUnknown`.
        """
        empty = np.diff(offsets) == 0
        table, ids = self.rows_of(ids, new_words)
        if self.settings.boundary_width:
            ids, offsets = self._wrapped(ids, offsets, len(table) - len(self.table))
        scores = np.empty((len(empty), self.layout.num_patterns), np.float32)
        arcs: Any = Arcs(table, ids, offsets, self.epsilon)  # type: ignore[arg-type]
        document_scores(self.layout, self.settings.semiring, arcs, scores)
        logits = self._head(self._document_vectors(scores))
        logits[empty] = self.class_log_prior
        return logits

    def rows_of(self, ids: Integers, new_words: Integers | None) -> tuple[Numbers, Integers]:
        """Arc scores `[some words, R]`, boundary tokens' last, and which of them ids have, `[M]`.

        Arguments as for `logits`.
        """
        first = self.words.num_ids
        if new_words is None or ids.max(initial=0) < first:
            return self.table, ids
        used, rows = np.unique(ids, return_inverse=True)
        known, new = np.split(used, [np.searchsorted(used, first)])
        scores = self._new_scores(new_words[new - first])
        return np.concatenate([self.table[known], scores, self.table[first:]]), rows

    def _new_scores(self, new_words: Integers) -> Numbers:
        """Arc scores `[words, R]` of words with such entries (`NewWords`), as the table's are."""
        of = self.weights_of("unknown.")
        vectors = of["vectors"][np.searchsorted(of["rows"], new_words[:, 0])]
        numbers = new_words[:, 1:]
        counts = (numbers > 0).sum(axis=1)
        sums = np.add.reduceat(of["ngrams"][numbers[numbers > 0]], np.cumsum(counts) - counts)
        vectors[:, : sums.shape[1]] += sums / counts[:, None].astype(np.float32)
        scores = vectors @ of["weight"].T + of["bias"]
        log_sigmoid(scores.reshape(-1))
        return scores  # type: ignore[no-any-return]

    def _wrapped(self, ids: Integers, offsets: Integers, shift: int) -> tuple[Integers, Integers]:
        """The documents between boundary tokens; as `add_boundary_tokens` of the encoder.

        Their rows lie by `shift` behind where they are in the table.
        """
        width, batch = self.settings.boundary_width, np.arange(len(offsets))
        before, behind = (place + shift for place in self.settings.boundary_places)
        document = np.repeat(batch[:-1], np.diff(offsets))
        wrapped = np.full(len(ids) + 2 * width * (len(offsets) - 1), before)
        wrapped[np.arange(len(ids)) + width * (2 * document + 1)] = ids
        bounds = offsets + 2 * width * batch
        for back in range(1, width + 1):
            wrapped[bounds[1:] - back] = behind
        return wrapped, bounds

    def _document_vectors(self, scores: Numbers) -> Numbers:
        """Those of the encoder (its `DocumentVector`), `[B, K]`, from document scores `[B, K]`."""
        of = self.weights_of("document_vector.")
        values: Numbers = np.exp(scores) if self.settings.exponential else scores
        if rules := patterns_of_rules(self.settings.rules):
            values, otherwise = values / of["sure"], rules.pop(-1, [])
            for patterns in rules.values():
                some = values[:, patterns]
                values[:, patterns] = some * (some.argmax(1)[:, None] == np.arange(len(patterns)))
            best = np.max([values[:, patterns].max(1) for patterns in rules.values()], axis=0)
            values[:, otherwise] = 1 - np.minimum(best, 1)[:, None]
        values = values - of["halves"]
        if "no_match" in of:
            values = np.where(np.isneginf(scores), of["no_match"], values)
        values = values * of["scales"]
        if norm := self.weights_of("document_vector.norm."):
            mean = norm.get("running_mean", values.mean(1, keepdims=True))
            variance = norm.get("running_var", values.var(1, keepdims=True))
            values = (values - mean) / np.sqrt(variance + NORM_EPSILON)
            values = values * norm["weight"] + norm["bias"]
        return np.maximum(values, 0) if self.settings.relu else values

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
        logits = np.empty((len(texts), len(self.labels)))
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = slice(start, start + _TEXTS_AT_ONCE)
            try:
                logits[some] = self.logits(*self.words.encode(texts[some]))
            except (UnicodeEncodeError, TypeError):
                for number, text in enumerate(texts, start=1):
                    check_encodable(text, f"text {number}")
                raise
        logits -= logits.max(axis=1, keepdims=True)
        shifted: NDArray[np.floating] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return shifted

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
    encoded = np.frombuffer(text.encode(), np.uint8)
    metadata = {_RECORD: json.dumps(record)}
    file = Path(folder) / FILE
    save_file({**compiled.weights, key: encoded}, file, metadata)
    write_digests(file.parent, [file])


def load_compiled(folder: str | Path, accept_changed: bool = False) -> CompiledClassifier | None:
    """The compiled classifier in a folder; None if it has none, or one that its model has outlived.

    Arguments:
        folder: of the model, or where there is the compiled classifier alone.
        accept_changed: take files that were changed after they were saved.

    Raises:
        UserError: there is no such folder, or a file is damaged; or it needs torch, which is not
            installed.
    """
    folder = Path(folder)
    check_folder(folder, "give the folder of a finished run")
    if not accept_changed:
        check_digests(folder)
    file = folder / FILE
    if not file.is_file():
        return None
    then = "; delete it: the model itself predicts the same"
    with failing(file, "not a compiled classifier, or a damaged one", then):
        with safe_open(file, framework="numpy") as opened:
            record: dict[str, Any] = json.loads(opened.metadata()[_RECORD])
            if not _belongs(record, folder):
                logger.warning("%s: not used: of another model than is here, or version", file)
                return None
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        check_imported(record["plugins"], str(file))
        check_labels(record["labels"], str(file))
        words = _words(arrays, record["words"])
        given = {key: record[key] for key in _SETTINGS}
        if problems := check(Settings, given):
            raise ValueError(problems[0])
        settings = Settings(**given)
        for name, config in vars(settings).items():
            check_sizes(config, (each.shape for each in arrays.values()), f"{file}: {name}")
        with imported_only():
            compiled = CompiledClassifier(settings, words, arrays)
        # what does not fit together is found by using it
        compiled.log_probabilities(["a 1 \ufffc", ""])
        if isinstance(words, WithUnknown):
            compiled.logits(*words.every_kind())
    return compiled


def _words(
    arrays: dict[str, NDArray[Any]], options: dict[str, Any]
) -> Words | Pieces | WithUnknown:
    """What splits text, taken out of the file's arrays."""
    unknown = options.pop("unknown_words", None)
    words: Words | Pieces
    if _TOKENIZER in arrays:
        words = Pieces(arrays.pop(_TOKENIZER).tobytes().decode(), **options)
    else:
        words = Words(arrays.pop(_WORDS).tobytes().decode().split("\n"), **options)
    return words if unknown is None else WithUnknown(words, UnknownWords.from_json(unknown))


def _belongs(record: dict[str, Any], folder: Path) -> bool:
    """Whether a classifier was compiled from the model in its folder, where there is one."""
    checksums = _checksums(folder)
    same = checksums == record["model_files"] and record["version"] == __version__
    return (same and set(_SETTINGS) <= set(record)) or not checksums


def _checksums(folder: Path) -> dict[str, int]:
    """CRC-32 of each of a model's files that the folder has."""
    files = (folder / name for name in MODEL_FILES)
    return {file.name: zlib.crc32(file.read_bytes()) for file in files if file.is_file()}
