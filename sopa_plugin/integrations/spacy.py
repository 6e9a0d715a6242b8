"""Soft patterns as a component of spaCy: labels of a document, and the phrases that decided them.

spaCy imports this file, an entry point, for every pipeline: what is heavy comes when it is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.scorer import Scorer
from spacy.tokens import Doc, Span, SpanGroup
from spacy.util import minibatch

from sopa_plugin.errors import UserError

if TYPE_CHECKING:
    from sopa_plugin.interpret import Explainer


def _use_one_thread() -> None:
    """In a forked child (`n_process`), where torch would wait for threads that its parent has."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread)


@Language.factory(
    "sopa",
    assigns=["doc.cats", "doc.spans"],
    default_config={"spans_key": "sopa", "shown": 10},
    default_score_weights={"cats_score": 1.0},
)
class SopaPipe(Pipe):
    """Fills `doc.cats` and `doc.spans` by the model of a run, whose encoder is `sopa` or `cnn`.

    The model reads spaCy's tokens. Of the patterns that contribute most to a document's label each
    has a span: its best match, labelled with the class that it speaks for, its id the pattern's
    name. `attrs` of the group hold the matches' `scores` and, in log-odds, `contributions`.

    Arguments of `add_pipe`'s config:
        spans_key: where the spans are in `doc.spans`.
        shown: spans of a document at most.
    """

    def __init__(self, nlp: Language, name: str, spans_key: str, shown: int) -> None:
        self.name, self.spans_key, self.shown = name, spans_key, shown
        self._explainer: Explainer | None = None

    @property
    def explainer(self) -> Explainer:
        """What reads the model, its `subject.model`."""
        if self._explainer is None:
            raise UserError(f"{self.name}: no model yet; take that of a run with from_disk(FOLDER)")
        return self._explainer

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes; none before there is a model."""
        return () if self._explainer is None else self._explainer.subject.labels

    def __call__(self, doc: Doc) -> Doc:
        self._annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Annotates documents, so many at once."""
        for docs in minibatch(stream, size=batch_size):
            try:
                self._annotate(docs)
                yield from docs
            except Exception as error:
                self.get_error_handler()(self.name, self, docs, error)

    def _annotate(self, docs: list[Doc]) -> None:
        from sopa_plugin.data.tokenizers import bounded

        subject: Any = self.explainer.subject
        given = [[token.text for token in doc] for doc in docs]
        split = partial(subject.model.tokenizer, is_split_into_words=True, verbose=False)
        read = bounded(split, given)
        words = [read.tokens(number) for number in range(len(docs))]
        found = self.explainer.contributions(subject.read(given), words, self.shown)
        for number, (doc, (cats, phrases)) in enumerate(zip(docs, found, strict=True)):
            doc.cats |= cats
            places, spans = read.word_ids(number), []
            attrs: dict[str, list[float]] = {"scores": [], "contributions": []}
            for each in phrases:
                assert each.match is not None
                inside = [i for i in places[each.match.start : each.match.end] if i is not None]
                if inside:  # and not only what a tokenizer puts around a text
                    label = max(each.effect, key=each.effect.__getitem__)
                    spans.append(Span(doc, inside[0], inside[-1] + 1, label, span_id=each.pattern))
                    attrs["scores"].append(each.score)
                    attrs["contributions"].append(each.effect[label])
            key = self.spans_key
            doc.spans[key] = SpanGroup(doc, name=key, spans=spans, attrs=attrs)

    def score(self, examples: Iterable[Any], **kwargs: Any) -> dict[str, Any]:
        """How right the labels are, as spaCy's `textcat` has it."""
        options = {"labels": self.labels, "multi_label": False, **kwargs}
        return dict(Scorer.score_cats(examples, "cats", **options))

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Saves the model in a folder, which `load_model` reads too."""
        subject: Any = self.explainer.subject
        Path(path).mkdir(parents=True, exist_ok=True)
        subject.model.save(Path(path))

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Takes the model of a folder, a run's or one that `to_disk` wrote; the folder is data.

        Raises `UserError` where there is none, or one without patterns.
        """
        from sopa_plugin.interpret import Explainer

        self._explainer = Explainer.from_run(path)
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """What `to_disk` writes."""
        from sopa_plugin.models import model_to_bytes

        subject: Any = self.explainer.subject
        return model_to_bytes(subject.model)

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        """Takes the model of `to_bytes`."""
        from sopa_plugin.interpret import Explainer
        from sopa_plugin.models import model_from_bytes

        self._explainer = Explainer.from_model(model_from_bytes(data))  # type: ignore[arg-type]
        return self
