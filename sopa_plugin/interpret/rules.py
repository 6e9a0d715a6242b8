"""What training made of rules: words on arcs, firing and label, as they began and as they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sopa_plugin.errors import UserError, shortened, visible
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.leave_one_out import DocumentScores, fires_in
from sopa_plugin.interpret.markup import fold, paint, signed, state_name
from sopa_plugin.interpret.matching import ArcScores, with_boundaries
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.rules.start import VOTE, start_patterns, start_votes
from sopa_plugin.wfsa import scores_of_arcs

CHUNK = 1024
"""Texts that are read at once."""

EPSILON = "[ε]"
"""Stands among the words of a main-path arc for the epsilon beside it."""

LISTED = 15
"""Words of an arc that are shown; JSON has all."""


@dataclass(frozen=True)
class ArcChange:
    """How the words that an arc takes have changed: those with which its pattern can fire.

    `joined`: what matches that fire consume there and it did not take as it began, and how often;
    `left`: what matches that fired as it began consumed there and it takes no more.
    """

    pattern: str
    arc: str
    joined: dict[str, int]
    left: dict[str, int]

    def __str__(self) -> str:
        told = [f"{self.pattern}, {self.arc}"]
        for sign, words in (("+", self.joined), ("−", self.left)):
            shown = [f"{word} {count:,}" for word, count in [*words.items()][:LISTED]]
            shown += [f"and {len(words) - LISTED} more"] * (len(words) > LISTED)
            told += [f"{sign} {' · '.join(shown)}"] * bool(words)
        return "  ".join(told)


@dataclass(frozen=True)
class Doing:
    """What a rule does: in how many texts it fires, and for which label.

    `label` is the one that it adds most to, None where it adds to all alike; `votes`, how many more
    than to any other, on the average of the texts in which it fires.
    """

    label: str | None
    votes: float
    fires: int

    def __str__(self) -> str:
        verdict = "no label" if self.label is None else f"{self.label} {signed(self.votes)}"
        return f"{verdict}, fires in {self.fires:,}"


@dataclass(frozen=True)
class RuleReading:
    """What training made of one rule: what it did as it began, and does; `both`, in how many texts
    it fired and fires; `arcs`, those that words joined or left."""

    rule: str
    text: str
    before: Doing
    after: Doing
    both: int
    arcs: list[ArcChange]


@dataclass(frozen=True, repr=False)
class RulesReading(Explanation):
    """What training made of a model's rules, in their order, by what they do on `documents`."""

    template = "rules.html"
    told = "rules", "documents", "labels"

    rules: tuple[RuleReading, ...]
    documents: int
    labels: tuple[str, ...]

    @property
    def title(self) -> str:
        return "What training made of the rules"

    @property
    def about(self) -> str:
        """What is compared, in words."""
        return (
            f"Over {self.documents:,} documents, as each rule began → as it is: the label that it "
            "adds most to, with how many votes more than to any other; how many documents it fires "
            "in; words that joined its arcs (+) or left them (−), and how often matches consume, "
            "or consumed, them there."
        )

    def painted(self) -> str:
        """For each rule what it does, its text, and the arcs that have other words."""
        lines = [self.title, fold(self.about)]
        for each in self.rules:
            told = visible(f"  {each.before} → {each.after} ({each.both:,} in both)")
            lines += ["", fold(paint(visible(each.rule), "strong") + told, 4)]
            lines += [fold(f"  {visible(shortened(each.text))}", 4)]
            lines += [fold(f"  {visible(str(arc))}", 4) for arc in each.arcs]
        return "\n".join(lines)


def read_rules(subject: ModelSubject, texts: Sequence[str]) -> RulesReading:
    """What training, or editing by hand, made of a model's rules, by what they do on texts.

    Raises `UserError` for a model that has none.
    """
    rules = subject.rules
    if not rules.rules:
        raise UserError("this model has no rules; expected one trained with model.rules")
    start = subject.copied()
    start_patterns(start.encoder, rules)
    start_votes(start.model.head.output, start.encoder, rules, subject.labels)
    numbers = torch.tensor([-1 if of is None else of.rule for of in subject.encoder.rules])
    # shape: [rules, K]
    own = (numbers == torch.arange(len(rules.rules))[:, None]).float()
    began, now = _Side(start, own), _Side(subject, own)
    both = torch.zeros(len(own), dtype=torch.long)
    for first in range(0, len(texts), CHUNK):
        some = texts[first : first + CHUNK]
        documents = subject.read(some)
        before, after = (ArcScores.of(each, documents) for each in (start, subject))
        words = [w for text in subject.normal_words(some) for w in with_boundaries(subject, text)]
        both += (began.add(before, after, words) & now.add(after, before, words)).sum(dim=0)
    arcs: dict[int, list[ArcChange]] = defaultdict(list)
    for arc in sorted(began.consumed.keys() | now.consumed.keys()):
        pattern, state, looped = arc
        loop = f"loop at {state_name(state, subject.encoder.layout.lengths[pattern])}"
        joined, left = (dict(each.consumed[arc].most_common()) for each in (now, began))
        change = subject.names[pattern], loop if looped else f"arc {state + 1}", joined, left
        arcs[int(numbers[pattern])].append(ArcChange(*change))
    rows = zip(rules.rules, began.doings(), now.doings(), both.tolist(), strict=True)
    found = [
        RuleReading(rule.name, rule.text, before, after, count, arcs[number])
        for number, (rule, before, after, count) in enumerate(rows)
    ]
    return RulesReading(tuple(found), len(texts), subject.labels)


class _Side:
    """Rules as they began, or as they are: what they do on texts, added up.

    `own [rules, K]` says, by 0 or 1, which patterns are each rule's.
    """

    def __init__(self, subject: ModelSubject, own: Tensor) -> None:
        self.subject, self.own, head = subject, own, subject.model.head
        self.votes: Tensor = head.output.weight.detach().cpu()
        of_rules = DocumentScores(subject, torch.zeros(0, own.shape[1])).thresholds
        self.thresholds = np.where(own.any(dim=0), of_rules, np.inf)
        self.fires = torch.zeros(len(own), dtype=torch.long)
        self.vectors = torch.zeros(own.shape)  # document vectors, where rules fire
        # by pattern, state and whether it is a loop: words that the other side's arc does not take
        self.consumed: dict[tuple[int, ...], Counter[str]] = defaultdict(Counter)

    @torch.no_grad()
    def add(self, scored: ArcScores, other: ArcScores, words: Sequence[str]) -> Tensor:
        """Takes texts, as this side and the `other` score them; where rules fire `[texts, rules]`.

        `words` are those of all texts, what stands around each among them.
        """
        fires = fires_in(self.subject, scored.scores, self.thresholds)
        fired = torch.from_numpy(fires).float() @ self.own.T > 0
        self.fires += fired.sum(dim=0)
        vectors = self.subject.document_vectors(scored.scores).float().cpu()
        self.vectors += fired.T.float() @ vectors * self.own
        documents, patterns = np.nonzero(fires)
        taken = scored.taken(documents, patterns)
        theirs = scores_of_arcs(scored.layout, other.arcs, taken, patterns)
        shown = self.subject.encoder.options.algebra.to_score(theirs.double()).cpu().numpy()
        of = patterns[taken.paths]
        lacking = shown < self.thresholds[of]
        columns = of, taken.states, taken.looped, taken.tokens
        for *arc, token in zip(*(each[lacking].tolist() for each in columns), strict=True):
            self.consumed[tuple(arc)][words[token] if token >= 0 else EPSILON] += 1
        return fired

    def doings(self) -> Iterator[Doing]:
        """What each rule does; one that fires nowhere, as it would."""
        few = 1e-6 * self.own
        means = (self.vectors + few) / (self.fires[:, None] + few.sum(dim=1, keepdim=True))
        for votes, fires in zip((means @ self.votes.T).tolist(), self.fires.tolist(), strict=True):
            best = votes.index(max(votes))
            lead = votes[best] - max(votes[:best] + votes[best + 1 :], default=0.0)
            yield Doing(self.subject.labels[best] if lead > 0 else None, lead / VOTE, fires)
