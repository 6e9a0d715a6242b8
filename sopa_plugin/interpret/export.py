"""Patterns written back as hard rules, which fire as nearly as they can where the patterns do.

Each arc becomes the set of words that it scores above a threshold, over those that the pattern's
matches consumed where it fires; thresholds are chosen by the F1 of the rule's firing against the
pattern's. Rules vote: their labels and weights are fitted to the model's own decisions.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sopa_plugin.data.tokenizers import folds_case
from sopa_plugin.encoders.sopa_layers import add_boundary_tokens
from sopa_plugin.errors import UserError, counted, shortened
from sopa_plugin.interpret.leave_one_out import DocumentScores, LeaveOneOut
from sopa_plugin.interpret.markup import CONTINUES
from sopa_plugin.interpret.matching import ArcScores
from sopa_plugin.interpret.runs import RunReader
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.rules import Rule, Rules
from sopa_plugin.rules.automaton import DoesNotFit, HardPattern, Item, fit
from sopa_plugin.rules.dialects import SYMBOLS, is_plain
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.rules.start import patterns_of
from sopa_plugin.rules.tokens import ANY, END, START, Condition, TokenTest, one_of
from sopa_plugin.wfsa import Arcs, document_scores
from sopa_plugin.wfsa.layout import Block

SIZES = (1, 2, 3, 4, 6, 8, 11, 15, 20, 30, 50)
"""Sizes of word sets that are tried: the words that an arc scores highest."""

LOWEST, MOST_REFUSED = (0.1, 0.3, 0.5, 0.7), 15
"""Shares of all words, those that an arc scores lowest, of whose most frequent ones complements
are tried, and how many words these name."""

WORD_COST = 0.001
"""What each word that a rule names must add to its F1."""

AGAINST = 0.1
"""From which share of a rule's usual vote on, spoken against it, a label loses one."""

MOST_TEXTS = 5000
"""Texts that are read; of more, so many at even distances."""

NOTHING = TokenTest(negated=True)
"""No word at all: there is no such arc."""

_SIGNS = {(1, 1): "", (0, 1): "?", (0, None): "*"}


class _Place(NamedTuple):
    """The arcs of all patterns that leave one state and are of one kind."""

    looped: bool
    state: int
    block: Block


class _Texts:
    """Texts as patterns read them: which arcs consumed their words, and who fires."""

    def __init__(self, subject: ModelSubject, texts: Sequence[str]) -> None:
        scored = ArcScores.of(subject, subject.read(texts))
        seen = DocumentScores(subject, scored.scores)
        means = LeaveOneOut(subject, "mean", seen.document_vector_means())
        self.effects = torch.from_numpy(seen.effects(means))
        self.alike = seen.best - seen.mean <= 1e-5 * np.abs(seen.best)  # but for rounding
        self.fires, self.layout = torch.from_numpy(seen.fires), scored.layout
        self.texts = subject.normal_words(texts)
        tokens = [word for text in self.texts for word in text]
        distinct, first, numbers, self.counts = np.unique(
            np.array(tokens, dtype=object), True, True, True
        )
        self.words: list[str] = distinct.tolist()
        rows = scored.arcs.index[torch.from_numpy(np.flatnonzero(scored.ids >= 0)[first])]
        self.scores = scored.arcs.scores[rows].numpy()
        offsets = torch.from_numpy(scored.documents.offsets)
        self._packed = torch.from_numpy(numbers.astype(np.int64)), offsets
        self.consumed: dict[tuple[int, bool, int], Counter[int]] = defaultdict(Counter)
        self.skipped: Counter[tuple[int, int]] = Counter()
        documents, patterns = np.nonzero(seen.fires)
        index, _ = self.wrapped(scored.width)
        taken = scored.taken(documents, patterns)
        for path, state, token, looped in zip(*(each.tolist() for each in taken), strict=True):
            pattern = int(patterns[path])
            if token < 0:
                self.skipped[pattern, state] += 1
            else:
                self.consumed[pattern, looped, state][int(index[token])] += 1

    def wrapped(self, width: int) -> tuple[Tensor, Tensor]:
        """Words' numbers `[M]`, boundaries' behind them, and where each text starts in these."""
        boundaries = len(self.words), len(self.words) + 1
        return add_boundary_tokens(*self._packed, boundaries, width) if width else self._packed


class _Search:
    """Chooses what each arc of each pattern's rule accepts, of all patterns at a time.

    A choice is tried by the model's own automata, whose arcs score 0 or minus infinity. None is
    chosen where an end of a pattern asks nothing, not even that there is a word. `began` are the
    rules that patterns began as, `folds` says whether the words are lower-cased.
    """

    def __init__(
        self, texts: _Texts, began: Sequence[HardPattern | None], folds: bool, as_regexes: bool
    ) -> None:
        self.texts, self.began, self.folds, self.as_regexes = texts, began, folds, as_regexes
        self.attribute = "LOWER" if folds and not as_regexes else "TEXT"
        self.layout = layout = replace(texts.layout, empty_matches=False)
        # boundaries so wide that the end of a pattern can lie outside of a text
        self.index, self.offsets = texts.wrapped(layout.max_length - 1)
        self.fired = texts.fires.sum(dim=0)
        self.column = cache(self._column)
        self.table = torch.full((len(texts.words) + 2, layout.num_scores), -torch.inf)
        self.epsilon = torch.full((layout.num_epsilons,), -torch.inf)
        self.chosen: dict[tuple[int, bool, int], TokenTest | None] = {}
        self.places = [
            _Place(looped, state, block)
            for state in range(layout.max_length - 1)
            for looped, blocks in ((True, layout.loops), (False, layout.main_path))
            if (block := blocks[state]) is not None
        ]
        for place in self.places:
            for pattern in self._patterns(place):
                found = texts.consumed[pattern, place.looped, place.state]
                outside = sum(count for n, count in found.items() if n >= len(texts.words))
                free = not place.looped and 2 * outside > found.total()
                self._put(place, pattern, None if free else self._one_of(found))
        for state, block in enumerate(layout.epsilon_arcs):
            for pattern in range(block.first_pattern, layout.num_patterns):
                if texts.skipped[pattern, state]:
                    self.epsilon[block.origin + pattern] = 0.0
        for _ in range(2):  # each arc given the others
            for place in self.places:
                self._choose(place)
            for block in layout.epsilon_arcs:
                arcs = slice(block.start, block.start + block.size)
                before, given = self.f1(), self.epsilon[arcs].clone()
                self.epsilon[arcs] = -torch.inf
                worse = (self.f1() < before)[block.first_pattern :]
                self.epsilon[arcs] = torch.where(worse, given, -torch.inf)

    def items(self, pattern: int) -> tuple[Item, ...]:
        """The rule of a pattern, without what changes nothing at its ends."""
        found: list[Item] = []
        for looped, state, block in self.places:
            test = self.chosen.get((pattern, looped, state), NOTHING)
            if test is None or test == NOTHING:
                continue
            skips = (
                not looped and self.layout.epsilons and self.epsilon[block.origin + pattern] == 0
            )
            found.append(Item(test, 0, None) if looped else Item(test, int(not skips)))
        sure = [place for place, item in enumerate(found) if item.least]
        return tuple(found[sure[0] : sure[-1] + 1]) if sure else ()

    def f1(self) -> Tensor:
        """Of each rule's firing against its pattern's, `[K]`."""
        arcs = Arcs(self.table, self.index, self.offsets, self.epsilon)
        fires = document_scores(self.layout, "max_product", arcs) == 0
        both = (fires & self.texts.fires).sum(dim=0)
        return 2 * both / (fires.sum(dim=0) + self.fired).clamp(min=1)

    def _patterns(self, place: _Place) -> list[int]:
        """Those that have an arc there and fire somewhere."""
        every = range(place.block.first_pattern, self.layout.num_patterns)
        return [k for k in every if self.layout.lengths[k] > place.state + 1 and self.fired[k]]

    def _choose(self, place: _Place) -> None:
        """Chooses by the F1 of each rule, less what its words cost."""
        asked = {k: list(dict.fromkeys(self._tried(place, k))) for k in self._patterns(place)}
        best: dict[int, tuple[float, TokenTest | None]] = {}
        for turn in range(max(map(len, asked.values()), default=0)):
            tried = {k: tests[turn] for k, tests in asked.items() if turn < len(tests)}
            for pattern, test in tried.items():
                self._put(place, pattern, test)
            f1 = self.f1().tolist()
            for pattern, test in tried.items():
                value = f1[pattern] - WORD_COST * (len(test.named) if test else 0)
                if pattern not in best or value > best[pattern][0] + 1e-9:
                    best[pattern] = value, test
        for pattern, (_, test) in best.items():
            self._put(place, pattern, test)

    def _tried(self, place: _Place, pattern: int) -> Iterator[TokenTest | None]:
        """What an arc may accept, of equals the best first."""
        looped, state, block = place
        texts, scores = self.texts, self.texts.scores[:, block.origin + pattern]
        for end, beside, anchor in ((0, -1, START), (self.layout.lengths[pattern] - 2, 1, END)):
            outside = self.chosen.get((pattern, False, state + beside), NOTHING) is None
            if not looped and (state == end or outside):
                yield from (None, anchor) if self.as_regexes else (None,)
        yield NOTHING
        began = self.began[pattern]
        test = began and (began.loops if looped else began.main_path)[state]
        if test and not (test.anchor or test.negated or self.as_regexes):
            yield one_of(test.words, "LOWER") if test.words and self.folds else test
        yield from (each for each in SYMBOLS.values() if self.as_regexes and not each.anchor)
        yield ANY
        ranked = [n for n in texts.consumed[pattern, looped, state] if n < len(texts.words)]
        if self.as_regexes:
            ranked = [number for number in ranked if is_plain(texts.words[number])]
        ranked.sort(key=lambda number: (-scores[number], number))
        yield from (self._one_of(ranked[:size]) for size in SIZES)
        for share in () if self.as_regexes else LOWEST:
            low = np.flatnonzero(scores < np.quantile(scores, share))
            low = low[np.argsort(-texts.counts[low], kind="stable")][:MOST_REFUSED]
            words = frozenset(texts.words[number] for number in low.tolist())
            yield TokenTest((Condition(self.attribute, "NOT_IN", words),))

    def _one_of(self, numbers: Any) -> TokenTest:
        words = frozenset(self.texts.words[n] for n in numbers if n < len(self.texts.words))
        return one_of(words, self.attribute) if words else NOTHING

    def _put(self, place: _Place, pattern: int, test: TokenTest | None) -> None:
        self.chosen[pattern, place.looped, place.state] = test
        self.table[:, place.block.origin + pattern] = self.column(test)

    def _column(self, test: TokenTest | None) -> Tensor:
        """0 for each word, and boundary, that a test accepts, `[words + 2]`."""
        words = self.texts.words
        if test is None or test.anchor:
            accepted = [test is None] * len(words) + [test in (None, START), test in (None, END)]
        elif [each[:2] for each in test.conditions] == [(self.attribute, "IN")]:
            accepted = [word in test.named for word in words] + [False] * 2
        else:
            accepted = [*map(test.accepts, words), False, False]
        return torch.tensor(accepted).double().log().float()


class Written(NamedTuple):
    """A rule that a pattern became, and how its firing compares with the pattern's."""

    rule: Rule
    items: tuple[Item, ...]
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2 * self.precision * self.recall / ((self.precision + self.recall) or 1.0)

    @property
    def lists(self) -> list[int]:
        """Sizes of its word sets."""
        return [len(item.test.named) for item in self.items if item.test.named]

    @property
    def figures(self) -> str:
        """How faithful it is."""
        return f"precision {self.precision:.1%}, recall {self.recall:.1%}, F1 {self.f1:.1%}"

    def to_json(self) -> str:
        """As a line of token patterns."""
        rule, signs = self.rule, [_SIGNS[item.least, item.most] for item in self.items]
        row: dict[str, Any] = {"label": rule.label, "id": rule.name}
        row["pattern"] = [
            item.test.to_token() | ({"OP": sign} if sign else {})
            for item, sign in zip(self.items, signs, strict=True)
        ]
        row |= {"weight": rule.weight} | ({"over": rule.over} if rule.over else {})
        return json.dumps(row, ensure_ascii=False)


@dataclass(frozen=True)
class Exported:
    """The patterns of a model as rules.

    Arguments:
        path: the file that they are for.
        written: rules, by labels in the order that decides ties.
        unwritten: patterns that are no rule, with the reason.
        agreement: by set of texts, the share on which the rules' vote is the model's label.
        otherwise: the model's most frequent label where no rule fires.
    """

    path: Path
    written: tuple[Written, ...]
    unwritten: dict[str, str]
    agreement: dict[str, float]
    otherwise: str

    def file(self) -> str:
        """What is to be written."""
        if self.path.suffix == ".jsonl":
            return "".join(each.to_json() + "\n" for each in self.written)
        lines = []
        for (label, over), each in groupby(self.written, lambda w: (w.rule.label, w.rule.over)):
            lines.append(f"[{label}]" + f" > {', '.join(over)}" * bool(over))
            for written in each:
                lines += [f"// {written.rule.name}: {written.figures}", written.rule.text]
        return "\n".join(lines) + "\n"

    def report(self) -> Iterator[str]:
        """Lines that say how faithful each rule is, and all together."""
        for each in self.written:
            rule, lists = each.rule, ", ".join(map(str, each.lists)) or "no"
            over = f" over {', '.join(rule.over)}" * bool(rule.over)
            yield (
                f"{rule.name}: {rule.label}, weight {rule.weight:g}{over}; {each.figures}; "
                f"lists of {lists} words; {shortened(rule.text)}"
            )
        for name, reason in self.unwritten.items():
            yield f"{name}: not written: {reason}"
        sizes = [size for each in self.written for size in each.lists] or [0]
        f1 = np.median([each.f1 for each in self.written])
        yield (
            f"{counted(len(self.written), 'rule')} of "
            f"{counted(len(self.written) + len(self.unwritten), 'pattern')}; "
            f"F1 against their firing: median {f1:.1%}; lists of words: median "
            f"{np.median(sizes):g}, longest {max(sizes)}"
        )
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.agreement.items())
        yield f"the rules' vote is the model's label on {shares}"
        yield f"where no rule fires: {self.otherwise} (a config's `model.fallback`)"


def export(reader: RunReader, output: str | Path, data: str | None = None) -> Exported:
    """The patterns of a run's model as rules.

    Arguments:
        reader: of the run.
        output: the file that they are for: `.jsonl`, or `.txt`, where each rule has one vote.
        data: a file in the format of the run's own data on which the rules are to fire where the
            patterns do, instead of the run's train set.

    Raises:
        UserError: the model's patterns read no words, or none of them can be written.
    """
    subject, path = reader.subject, Path(output)
    if path.suffix not in (".jsonl", ".txt"):
        raise UserError(f"{path}: expected rules in a file named .jsonl or .txt")
    as_regexes = path.suffix == ".txt"
    bad = [label for label in subject.labels if re.search(r"[\],]|^\s|\s$|\s//", label)]
    if as_regexes and bad:
        raise UserError(f"{path}: the label {bad[0]!r} cannot stand in a .txt; write a .jsonl")
    every, _ = reader.examples(data, "train", unlabelled=True)
    every = every[:: -(-len(every) // MOST_TEXTS) or 1]
    texts = None if subject.contextual else _Texts(subject, every)
    if texts is None or any(word.startswith(CONTINUES) for word in texts.words):
        raise UserError("this model reads pieces of words or their context; rules, single words")
    hard = iter([pattern for _, pattern in patterns_of(subject.rules)])
    began = [rule and next(hard) for rule in subject.encoder.rules]
    search = _Search(texts, began, folds_case(subject.model.tokenizer), as_regexes)
    unwritten: dict[str, str] = {}
    found = list(_rules(search, subject, unwritten))
    if not found:
        raise UserError("no pattern of this model can be written as a rule")
    fired = RuleMatcher([rule for _, rule, _ in found]).fires(texts.texts)
    decided, labels = _decided(subject, every), len(subject.labels)
    # the label that wins where no rule fires comes first
    alone = decided[~fired.any(dim=1)].bincount(minlength=labels)
    frequent = alone * len(every) + decided.bincount(minlength=labels)
    order = frequent.argsort(descending=True, stable=True)
    names = [subject.labels[label] for label in order.tolist()]
    effects = texts.effects[[pattern for pattern, *_ in found]][:, order]
    votes = _votes(fired.double(), order.argsort()[decided], effects, not as_regexes)
    voted = {names[label] for label in votes[0].tolist()}  # others have no vote to lose
    rows = []
    for (pattern, rule, items), fires, label, weight, lost in zip(
        found, fired.T, *(each.tolist() for each in votes), strict=True
    ):
        lose = (name for name, loses in zip(names, lost, strict=True) if loses)
        over = tuple(name for name in lose if name in voted)
        both = float((fires & texts.fires[:, pattern]).sum())
        rule = replace(rule, label=names[label], weight=round(weight, 3), over=over)
        precision, recall = both / max(int(fires.sum()), 1), both / int(search.fired[pattern])
        rows.append(((label, over, pattern), Written(rule, items, precision, recall)))
    written = tuple(each for _, each in sorted(rows, key=lambda row: row[0]))
    sets = {"the data": every} if data else {}
    for name in ("train", "dev", "test"):
        with suppress(UserError):  # the run's data are not there, or have no such set
            sets[name] = reader.examples(None, name, unlabelled=True)[0]
    rules = Rules(tuple(each.rule for each in written), (), str(path))
    matcher, by_label = RuleMatcher(rules.rules), torch.from_numpy(rules.votes(rules.labels))
    said = torch.tensor([subject.labels.index(label) for label in rules.labels])
    agreement = {}
    for name, some in sets.items():
        if some:
            counted = matcher.fires(subject.normal_words(some)).double() @ by_label
            agrees = said[counted.argmax(dim=1)] == _decided(subject, some)
            agreement[name] = float(agrees.double().mean())
    return Exported(path, written, unwritten, agreement, names[0])


def _rules(
    search: _Search, subject: ModelSubject, unwritten: dict[str, str]
) -> Iterator[tuple[int, Rule, tuple[Item, ...]]]:
    """The rule of each pattern, without a label; why there is none goes into `unwritten`."""
    f1 = search.f1().tolist()
    for pattern, name in enumerate(subject.names):
        began = subject.encoder.rules[pattern]
        if began is not None and began.rule < 0:  # it matches where no rule does
            continue
        items = search.items(pattern)
        if not search.fired[pattern] or search.texts.alike[pattern]:
            unwritten[name] = "it fires on no text, or on all alike"
        elif not f1[pattern]:
            unwritten[name] = "no rule fires where it does"
        elif all(item.test.anchor for item in items):
            unwritten[name] = "it asks for no word"
        else:
            unique = name if subject.names.count(name) == 1 else f"{name} ({pattern + 1})"
            shown = " ".join(f"({item.test}){_SIGNS[item.least, item.most]}" for item in items)
            text = _expression(items) if search.as_regexes else shown
            try:
                yield pattern, Rule("", unique, 0, text, tuple(fit(items))), items
            except DoesNotFit as error:
                unwritten[name] = str(error)


def _votes(
    fired: Tensor, decided: Tensor, effects: Tensor, weighted: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Each rule's label, its weight and the labels that lose a vote: `[K]`, `[K]`, `[K, labels]`.

    What the patterns contribute where they fire, `effects [K, labels]`, fitted to the model's
    decisions by firing alone, `fired [texts, K]`, says what a rule speaks for most and what it
    speaks against; then weights are fitted, if they are wanted.
    """
    change = torch.zeros_like(effects, requires_grad=True)
    _fit_votes(lambda: effects + change, [change], fired, decided)
    speaks = effects + change.detach()
    best = speaks.argmax(dim=1)
    own = functional.one_hot(best, effects.shape[1]).to(effects)
    below = speaks.median(dim=1, keepdim=True).values - speaks
    over = (below > AGAINST * below.abs().amax(dim=1).mean()) & (own == 0)
    weights = effects.new_ones(len(effects), requires_grad=True)
    vote = effects.new_zeros((), requires_grad=True)  # one, as a logarithm
    if weighted:
        _fit_votes(
            lambda: own * weights[:, None] - over * vote.exp(), [weights, vote], fired, decided
        )
    return best, (weights / vote.exp()).detach(), over


def _fit_votes(
    votes: Callable[[], Tensor], parameters: list[Tensor], fired: Tensor, decided: Tensor
) -> None:
    """Fits what `votes [K, labels]` are made of, by maximum likelihood with a normal prior."""
    optimizer = torch.optim.LBFGS(parameters, max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        prior = torch.stack([(each**2).sum() for each in parameters]).sum() / (2 * len(fired))
        found = functional.cross_entropy(fired @ votes(), decided) + prior
        found.backward()
        return found

    optimizer.step(loss)  # type: ignore[arg-type]


def _decided(subject: ModelSubject, texts: Sequence[str]) -> Tensor:
    """The numbers of the model's labels, `[texts]`."""
    return torch.from_numpy(subject.model.log_probabilities(list(texts)).argmax(axis=1))


def _expression(items: Sequence[Item]) -> str:
    """A rule as a word regex, which matches the whole text."""
    symbols = {test: symbol for symbol, test in SYMBOLS.items()}
    parts = [] if items[0].test == START else ["$ *"]
    for test, least, most in items:
        if not test.anchor:
            words = " | ".join(sorted(test.named))
            said = symbols.get(test) or (f"( {words} )" if len(test.named) > 1 else words)
            parts.append(f"{said} {_SIGNS[least, most]}".strip())
    return " ".join(parts if items[-1].test == END else [*parts, "$ *"])
