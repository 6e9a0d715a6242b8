"""Reads a model or an encoder: its patterns over a data set, and single documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sopa_plugin.data.batches import Documents
from sopa_plugin.data.ngrams import NewWords
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.activations import StateActivations
from sopa_plugin.interpret.automaton import read_arcs
from sopa_plugin.interpret.documents import Contribution, DocumentExplanation
from sopa_plugin.interpret.leave_one_out import (
    LEAST,
    DocumentScores,
    LeaveOneOut,
    Replacement,
    faithfulness,
    fires_in,
    log_odds,
    measure_use,
)
from sopa_plugin.interpret.match import Concordance, Match, Place
from sopa_plugin.interpret.matching import (
    ArcScores,
    MatchesAsked,
    TopMatches,
    spell,
    with_boundaries,
)
from sopa_plugin.interpret.patterns import ALIKE, PatternReading, PatternsReading
from sopa_plugin.interpret.subject import EncoderSubject, ModelSubject, Subject
from sopa_plugin.wfsa import Semiring
from sopa_plugin.wfsa.reference import Recurrence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from sopa_plugin.models import TextClassifier

CHUNK, EXPLAINED = 1024, 64
"""Documents that are read at once, and that are explained at once."""

SAMPLE = 4096
"""Tokens, of whole documents, that stand for a vocabulary where vectors depend on context."""


class Explainer:
    """Explains what a subject's patterns match and what they contribute (paper, section 7).

    ```python
    explainer = Explainer.from_run("runs/sopa_sst")
    explainer.patterns(train_texts, k=5)
    explainer.document("a gripping , moving film")
    ```

    Arguments:
        subject: what is read.
        replacement: what a contribution compares with: `next`, `no_match`, `zero` or `mean` (see
            `LeaveOneOut`).
        means: means of the document vector for `mean` and `next`; by default those of the train
            set, where training saved them with the model. `use_means_of` finds others.
    """

    def __init__(
        self, subject: Subject, replacement: Replacement = "next", means: Tensor | None = None
    ) -> None:
        self.subject = subject
        self.replacement = replacement
        self.means = subject.means if means is None else means

    @classmethod
    def from_run(cls, folder: str | Path, replacement: Replacement = "next") -> Explainer:
        """Reads the model of a run (see `ModelSubject.load`). Documents are texts."""
        return cls(ModelSubject.load(folder), replacement)

    @classmethod
    def from_model(
        cls,
        model: TextClassifier,
        replacement: Replacement = "next",
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> Explainer:
        """Reads a classifier (see `ModelSubject`). Documents are texts."""
        return cls(ModelSubject(model, tokenizer), replacement)

    @classmethod
    def from_encoder(
        cls,
        encoder: SopaEncoder,
        vectors: Mapping[str, ArrayLike] | Callable[[Sequence[str]], ArrayLike],
        head: Callable[[Tensor], Tensor] | None = None,
        labels: Sequence[str] = (),
        replacement: Replacement = "next",
    ) -> Explainer:
        """Reads a bare encoder (see `EncoderSubject`). Documents are sequences of tokens."""
        return cls(EncoderSubject(encoder, vectors, head, labels), replacement)

    def use_means_of(self, documents: Iterable[Any]) -> None:
        """Takes the mean of each pattern's score over `documents` for replacement `mean`."""
        self.means = self._scores(
            scored for _, scored in self._read_all(documents)
        ).document_vector_means()

    def patterns(
        self,
        documents: Iterable[Any],
        k: int = 10,
        words: int = 10,
        labelled: tuple[Sequence[Any], Sequence[int]] | None = None,
    ) -> PatternsReading:
        """Every pattern read over `documents`, the most useful first.

        Arguments:
            documents: what to read.
            k: phrases of each pattern.
            words: nearest words of each arc, and of those that it consumed in `labelled`; 0 leaves
                arcs out. Nearest are those of the vocabulary or, where vectors depend on context,
                of the first documents.
            labelled: other documents and the numbers of their labels, on which each pattern's use
                is measured. Without them the strongest effect comes first.

        Replacements `mean` and `next` take the means of these documents if there are none yet, and
        keep them.

        Raises:
            UserError: `k` is less than 1, or the encoder has no best paths.
        """
        if k < 1:
            raise UserError(f"k: expected at least 1 phrase, found {k}")
        top, contextual = TopMatches(self.subject, k), self.subject.contextual
        uses_next = self.replacement == "next" and bool(self.subject.labels)
        # what is read, or the scores of all next best matches, where it is much to read it again
        held: list[Documents | Tensor] = []
        # words with their vectors, where these depend on context
        sampled: list[str] = []
        rows: list[Tensor] = []

        def read() -> Iterator[ArcScores]:
            for chunk, scored in self._read_all(documents):
                top.add(chunk, scored)
                if uses_next:
                    held.append(scored.every_next_best if contextual else scored.documents)
                if contextual and words > 0 and len(sampled) < SAMPLE:
                    special = self.subject.is_special(scored.documents.ids)
                    places = np.flatnonzero(~special).tolist()
                    spelt = [word for some in self.subject.words(chunk) for word in some]
                    sampled.extend(spelt[place] for place in places)
                    rows.append(self.subject.vectors(scored.documents)[places])
                yield scored

        scores = self._scores(read())
        if self.replacement in ("mean", "next") and self.means is None:
            self.means = scores.document_vector_means()
        effects = None
        if self.subject.labels:
            instead = self._next_best(held, scores.fires) if uses_next else None
            effects = scores.effects(self._leave_one_out(), instead)
        names = self.subject.names
        alike = [
            tuple((names[n], float(row[n])) for n in np.argsort(-row) if row[n] >= ALIKE)
            for row in scores.correlations()
        ]
        arcs, uses, measured = None, None, 0
        if labelled is not None:
            assert effects is not None
            means = scores.document_vector_means() if self.means is None else self.means
            gold, measured = iter(labelled[1]), len(labelled[0])
            chunks = (
                (scored, list(islice(gold, len(chunk))))
                for chunk, scored in self._read_all(labelled[0])
            )
            given = scores.thresholds, effects, means, self._leave_one_out()
            uses = measure_use(chunks, *given)
        if words > 0:
            consumed = [use.consumed if use.fired else {} for use in uses] if uses else None
            known = [(sampled, torch.cat(rows))] if sampled else self.subject.vocabulary()
            arcs = read_arcs(self.subject, known, words, consumed)
        count, labels = max(len(scores.scores), 1), self.subject.labels
        columns = (
            names,
            self.subject.encoder.layout.lengths,
            top.matches(),
            scores.best.tolist(),
            scores.mean.tolist(),
            (scores.matched.sum(axis=0) / count).tolist(),
            scores.thresholds.tolist(),
            (scores.fires.sum(axis=0) / count).tolist(),
            [{} for _ in names]
            if effects is None
            else [dict(zip(labels, row, strict=True)) for row in effects.tolist()],
            arcs or [()] * len(names),
            [None] * len(names) if uses is None else uses,
            alike,
        )
        patterns = tuple(PatternReading(*row) for row in zip(*columns, strict=True))
        reading = PatternsReading(patterns, len(scores.scores), self.replacement, measured)
        return reading.sorted("dev" if uses else "influence")

    def thresholds(self, documents: Iterable[Any]) -> dict[str, float]:
        """The document score from which on each pattern fires, by what it scores on `documents`."""
        found = self._scores(scored for _, scored in self._read_all(documents)).thresholds
        return dict(zip(self.subject.names, found.tolist(), strict=True))

    def where(
        self, documents: Sequence[Any], gold: Sequence[int], thresholds: Mapping[str, float]
    ) -> dict[str, Concordance]:
        """Every place where patterns fire, by their names.

        Arguments:
            documents: what to read.
            gold: the numbers of their labels, -1 of one that has none.
            thresholds: from which score on each pattern fires; of those that are wanted.

        Raises:
            UserError: There is no such pattern, or no head.
        """
        subject, labels = self.subject, self.subject.labels
        found: dict[int, list[Place]] = {subject.number(name): [] for name in thresholds}
        floors = np.full(len(subject.names), np.inf)
        floors[list(found)] = list(thresholds.values())
        read = 0
        for chunk, scored in self._read_all(documents):
            places, patterns = np.nonzero(fires_in(subject, scored.scores, floors))
            distinct, which = np.unique(places, return_inverse=True)
            words = subject.words([chunk[place] for place in distinct.tolist()])
            predicted = scored.logits.argmax(dim=-1).tolist()
            paths = scored.paths(places, patterns)
            spelt = [words[each] for each in which.tolist()]
            matches = spell(subject, paths, spelt, (read + places).tolist())
            for path, match, tokens in zip(paths, matches, spelt, strict=True):
                own, given = gold[match.document], predicted[match.document - read]
                label = labels[own] if own >= 0 else None
                found[path.pattern].append(Place(match, tokens, label, labels[given]))
            read += len(chunk)
        for ranked in found.values():
            ranked.sort(key=lambda place: -place.match.score)
        places_of = {subject.names[pattern]: tuple(ranked) for pattern, ranked in found.items()}
        return {
            name: Concordance(name, ranked, len(ranked), read, tuple(labels))
            for name, ranked in places_of.items()
        }

    def matches(self, document: Any) -> Mapping[str, Match | None]:
        """The best match of each pattern in one document."""
        found = MatchesAsked(self._read([document]), self.subject.words([document])[0])
        return {name: found[name] for name in self.subject.names}

    def document(
        self,
        document: Any,
        target: str | None = None,
        gold: str | None = None,
        shown: int = 10,
        against: str | None = None,
    ) -> DocumentExplanation:
        """Why a document gets its label; arguments and what is raised as for `documents`."""
        return next(self.documents([document], target, [gold], shown, against=against))

    def documents(
        self,
        documents: Iterable[Any],
        target: str | None = None,
        gold: Iterable[str | None] = (),
        shown: int = 10,
        numbers: Iterable[int] = (),
        against: str | None = None,
    ) -> Iterator[DocumentExplanation]:
        """Why documents get their labels.

        Arguments:
            documents: texts or their words, tokens for a bare encoder.
            target: the label to explain; the predicted one by default.
            gold: the documents' own labels, if known.
            shown: how many of the largest contributions to draw.
            numbers: the documents' numbers in their data set; by default from 0 on.
            against: another label, to explain why a document is the target's rather than this
                one's; by default rather than of all others.

        Raises:
            UserError: There is no such label, or no head.
        """
        labels = self.subject.labels
        for each in (target, against):
            if labels and each is not None and each not in labels:
                raise UserError(f"no label {each!r}; expected one of {', '.join(labels)}")
        self._leave_one_out()  # which refuses what has no head
        told = zip(documents, chain(gold, repeat(None)), chain(numbers, count()), strict=False)
        size = EXPLAINED if against is None else 1  # of the predicted label, which may differ
        while some := list(islice(told, size)):
            yield from self._explained(some, target, shown, against)

    def _explained(
        self,
        told: Sequence[tuple[Any, str | None, int]],
        target: str | None,
        shown: int,
        against: str | None,
    ) -> Iterator[DocumentExplanation]:
        """Documents, each with its own label and its number, explained at once."""
        subject, labels = self.subject, self.subject.labels
        texts = [text for text, _, _ in told]
        scored, words, every = self._read(texts), subject.words(texts), np.arange(len(texts))
        found = scored.best_matches  # first: they tell scores, too
        scores, logits = scored.scores, scored.logits
        probabilities = logits.double().softmax(dim=-1).cpu().numpy()
        targets = probabilities.argmax(axis=1)
        if target is not None:
            targets[:] = labels.index(target)
        competing = np.arange(len(labels))
        if against is not None:
            competing = np.array([targets[0], labels.index(against)])
            if competing[0] == competing[1]:
                raise UserError(f"{against} is explained against itself; name another label")
        names, told_of = subject.names, [labels[n] for n in competing]
        prior = torch.zeros(len(labels)) if subject.prior is None else subject.prior
        odds = log_odds(torch.cat([prior.to(logits)[None], logits])[:, competing].double()).cpu()
        leave_one_out = LeaveOneOut(subject, self.replacement, self.means, competing.tolist())
        effects = leave_one_out(scored)
        place = targets if against is None else np.zeros_like(targets)
        # shape: [B, K]; patterns, the largest effect on the target first
        of_target, evidence = effects[every, :, place], leave_one_out.evidence(scores)
        order = np.argsort(-np.abs(of_target), axis=1, kind="stable")
        seen = np.take_along_axis(evidence & (of_target != 0), order, axis=1)
        kept = seen & (seen.cumsum(axis=1) <= shown)
        drawn = [row[first] for row, first in zip(order, kept, strict=True)]
        speaking = np.zeros_like(evidence)
        np.put_along_axis(speaking, order, kept, axis=1)
        speaking &= (of_target > 0) & (found.ends >= 0).cpu().numpy()
        starts, ends = scored.spans(*np.nonzero(speaking))
        edges = np.zeros(len(scored.ids) + 1, dtype=int)
        np.add.at(edges, starts, 1)
        np.add.at(edges, ends, -1)
        named = (edges.cumsum()[:-1] > 0)[scored.ids >= 0]
        faithful = faithfulness(subject, scored.documents, named, targets).tolist()
        shown_scores = subject.encoder.options.algebra.to_score(scores.double()).cpu().numpy()
        for n, (_, own, number) in enumerate(told):
            first = {names[k] for k in drawn[n].tolist()}
            matches, others = (
                MatchesAsked(scored, words[n], n, first, instead) for instead in (False, True)
            )
            columns = (each[n, order[n]].tolist() for each in (shown_scores, effects, evidence))
            rows = zip(order[n].tolist(), *columns, strict=True)
            contributions = tuple(
                Contribution(
                    names[k],
                    score,
                    matches,
                    dict(zip(told_of, effect, strict=True)),
                    others if self.replacement == "next" else None,
                    usual,
                )
                for k, score, effect, usual in rows
            )
            yield DocumentExplanation(
                words[n],
                dict(zip(labels, probabilities[n].tolist(), strict=True)),
                labels[targets[n]],
                own,
                contributions,
                shown,
                self.replacement,
                faithful[n][0],
                faithful[n][1],
                number,
                against,
                *odds[[0, n + 1], place[n]].tolist(),
            )

    def contributions(
        self, documents: Documents, words: Sequence[Sequence[str]], shown: int = 10
    ) -> Iterator[tuple[dict[str, float], list[Contribution]]]:
        """Of each of many documents the labels' probabilities, and what `document` would draw.

        Arguments:
            documents: as `Subject.read` gives them.
            words: those of each document.
            shown: how many phrases of each, those that contribute most to its label.
        """
        leave_one_out, labels = self._leave_one_out(), self.subject.labels
        scored = ArcScores.of(self.subject, documents)
        probabilities = scored.logits.double().softmax(-1).cpu()
        effects, best, every = leave_one_out(scored), scored.best_matches, np.arange(len(words))
        seen = leave_one_out.evidence(scored.scores) & (best.ends >= 0).cpu().numpy()
        # shape: [B, K]
        sizes = abs(effects[every, :, probabilities.argmax(-1).numpy()]) * seen
        ranked = np.argsort(-sizes, axis=1, kind="stable")[:, :shown]
        numbers, places = np.nonzero(np.take_along_axis(sizes, ranked, axis=1) > LEAST)
        patterns = ranked[numbers, places]
        paths = scored.paths(numbers, patterns)
        spelt = [words[number] for number in numbers.tolist()]
        found: list[list[Contribution]] = [[] for _ in words]
        for match, effect in zip(
            spell(self.subject, paths, spelt, numbers.tolist()),
            effects[numbers, patterns].tolist(),
            strict=True,
        ):
            by_label = dict(zip(labels, effect, strict=True))
            matches = {match.pattern: match}
            contribution = Contribution(match.pattern, match.score, matches, by_label)
            found[match.document].append(contribution)
        for row, each in zip(probabilities.tolist(), found, strict=True):
            yield dict(zip(labels, row, strict=True)), each

    @torch.no_grad()
    def activations(self, document: Any, pattern: str) -> StateActivations:
        """The states of the pattern named `pattern` while it reads a document."""
        number = self.subject.number(pattern)
        scored, words = self._read([document]), self.subject.words([document])[0]
        layout, algebra = scored.layout, Semiring.named(scored.path_semiring)
        columns = [block.origin + number for block in layout.states[: layout.lengths[number]]]
        recurrence = Recurrence(layout, algebra, scored.path_arcs.epsilon)
        state, values = recurrence.start(1), []
        for row in scored.path_arcs.index:
            step = recurrence.step(state, scored.path_arcs.scores[row][None])
            state = step.state
            after = recurrence.take_epsilons(state)[0, columns]
            after[-1] = step.scores[0, number]
            values.append(tuple(algebra.to_score(after.double()).tolist()))
        match = MatchesAsked(scored, words, 0, [pattern], count_boundaries=True)[pattern]
        tokens = with_boundaries(self.subject, words)
        return StateActivations(pattern, tokens, tuple(values), match)

    def _read(self, documents: Sequence[Any], new_words: NewWords | None = None) -> ArcScores:
        return ArcScores.of(self.subject, self.subject.read(documents, new_words))

    def _read_all(self, documents: Iterable[Any]) -> Iterator[tuple[list[Any], ArcScores]]:
        """Documents in chunks, each with its arc scores; words are equal in all chunks."""
        self.subject.prepare()
        stream, new_words = iter(documents), None
        while chunk := list(islice(stream, CHUNK)):
            scored = self._read(chunk, new_words)
            new_words = scored.documents.new_words
            yield chunk, scored

    def _scores(self, chunks: Iterable[ArcScores]) -> DocumentScores:
        weight = self.subject.encoder.arcs.weight
        none = torch.zeros(0, len(self.subject.names), device=weight.device)
        return DocumentScores(self.subject, torch.cat([none, *(each.scores for each in chunks)]))

    def _next_best(self, held: Iterable[Documents | Tensor], wanted: NDArray[np.bool_]) -> Tensor:
        """Scores `[n]` of next best matches, of patterns in documents that are `wanted [B, K]`."""
        parts, read = [torch.zeros(0)], 0
        for each in held:
            some = wanted[read : read + len(each)]
            if isinstance(each, Documents):
                parts.append(ArcScores.of(self.subject, each).next_best(*np.nonzero(some)))
            else:
                parts.append(each[torch.from_numpy(some).to(each.device)])
            read += len(each)
        return torch.cat([each.to(parts[-1]) for each in parts])

    def _leave_one_out(self) -> LeaveOneOut:
        return LeaveOneOut(self.subject, self.replacement, self.means)
