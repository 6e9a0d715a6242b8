"""Rules that people write: what a text must hold to have a label."""

from __future__ import annotations

import importlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.errors import UserError, listed, shortened
from sopa_plugin.files import parse_json, plain
from sopa_plugin.registry.problems import did_you_mean
from sopa_plugin.rules.automaton import MOST_PATTERNS, DoesNotFit, HardPattern, fit
from sopa_plugin.rules.dialects import (
    Fault,
    Written,
    read_expression,
    read_label,
    read_token_pattern,
    read_weight,
    read_written,
)
from sopa_plugin.rules.tokens import TokenTest

MOST_LONG = 500
"""Patterns of several words in a file; more are refused."""


@dataclass(frozen=True)
class Rule:
    """What a text must hold to have a label.

    Arguments:
        label: that it votes for.
        name: of the rule, `label/number` or its `id`.
        line: of the file, from 1.
        text: as it was written.
        patterns: that match what it matches; its score is the best of theirs.
        weight: of its vote.
        over: labels that lose a vote where it fires.
    """

    label: str
    name: str
    line: int
    text: str
    patterns: tuple[HardPattern, ...]
    weight: float = 1.0
    over: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Rule:
        """What `plain` made of one; raises `ValueError` for what it would not have made."""
        return cls(
            read_label(given["label"]),
            str(given["name"]),
            int(given["line"]),
            str(given["text"]),
            tuple(map(HardPattern.from_json, given["patterns"])),
            read_weight(given["weight"]),
            tuple(map(read_label, given["over"])),
        )


@dataclass(frozen=True)
class Rules:
    """Rules, and what is wrong with those that are none.

    Arguments:
        rules: in the order of the file.
        faults: of lines that are refused, each with what to write instead.
        source: the file, for messages.
        fallback: the label where no rule fires.
        asked: what a model asks of tokens beside what they ask: whether they are words that were
            put on or taken from arcs.
    """

    rules: tuple[Rule, ...]
    faults: tuple[Fault, ...]
    source: str
    fallback: str | None = None
    asked: tuple[TokenTest, ...] = ()

    @classmethod
    def read(cls, path: str | Path) -> Rules:
        """The rules of a file.

        Raises:
            UserError: the file cannot be read, or rules are refused: every one, with its line.
        """
        found = cls.examine(path)
        found.require_sound()
        return found

    def require_sound(self) -> None:
        """Raises `UserError` with every fault, or if there is no rule."""
        if self.faults:
            raise UserError("\n".join(f"{self.source}:{line}: {why}" for line, why in self.faults))
        if not self.rules:
            raise UserError(f"{self.source}: there is no rule in it")

    @classmethod
    def examine(cls, path: str | Path) -> Rules:
        """As `read`, with the faults beside the rules; raises where the file cannot be read."""
        written, faults = read_written(Path(path))
        if not faults:  # where lines cannot be read, labels may be theirs
            written, faults = _over_known(written)
        rules: list[Rule] = []
        numbers: Counter[str] = Counter()
        # the lines of each rule: several where they have an id in common
        groups: dict[Any, list[Written]] = {}
        for number, each in enumerate(written):
            groups.setdefault(number if each.id is None else (each.label, each.id), []).append(each)
        for lines in groups.values():
            rule = _rule(lines, numbers[lines[0].label] + 1)
            if isinstance(rule, Fault):
                faults.append(rule)
            else:
                rules.append(rule)
                numbers[rule.label] += 1
        rules, too_many = _within_memory(rules)
        return cls(tuple(rules), tuple(sorted([*faults, *too_many])), str(Path(path)))

    def without_case(self) -> Rules:
        """The rules for text whose case is folded: those that ask for capitals are refused."""
        kept, faults = [], list(self.faults)
        for rule in self.rules:
            asked = [str(t) for each in rule.patterns for t in each.tests if t.sees_case]
            if asked:
                reason = (
                    f"{asked[0]} asks for capitals, and the case of texts is folded; take LOWER"
                )
                faults.append(Fault(rule.line, reason))
            else:
                kept.append(rule)
        return replace(self, rules=tuple(kept), faults=tuple(sorted(faults)))

    def adding(self, text: str, label: str) -> Rules:
        """The rules and one more, which may match anywhere in a text.

        Arguments:
            text: a token pattern if it begins with `[` or `{`, else a word regex, in which a `*`
                that stands alone is any words.
            label: of the rule.

        Raises:
            UserError: it is refused, with the reason.
        """
        names = {rule.name for rule in self.rules}
        number = next(n for n in itertools.count(1) if f"{label}/{n}" not in names)
        line = len(self.rules) + 1
        try:
            if text.lstrip().startswith(("[", "{")):
                given = parse_json(text)
                if isinstance(given, dict) and "pattern" not in given:
                    given = [given]
                row = given if isinstance(given, dict) else {"pattern": given}
                written = read_token_pattern(line, {**row, "label": label})
            else:
                expression = re.sub(r"(?<!\S)(?:\$\s+)?\*(?!\S)", "$*", text)
                written = Written(line, text, label, read_expression(expression))
            rule = _rule([written], number)
        except ValueError as error:
            raise UserError(f"the rule {shortened(text)}: {error}") from error
        if isinstance(rule, Fault):
            raise UserError(f"the rule {rule.reason}")
        if rule.name in names:
            raise UserError(f"there is a rule called {shortened(rule.name)}: take another id")
        return replace(self, rules=(*self.rules, rule))

    def deciding(self, fallback: str | None, precedence: Mapping[str, Sequence[str]]) -> Rules:
        """The rules with a label where none fires, and labels that go before others.

        Arguments:
            fallback: the label where no rule fires.
            precedence: of a label, those that lose a vote where one of its rules fires.

        Raises:
            UserError: `precedence` names a label that no rule votes for.
        """
        known = dict.fromkeys(rule.label for rule in self.rules)
        for label in itertools.chain(precedence, *precedence.values()):
            if label not in known:
                raise UserError(f"model.precedence: {_unknown(label, known)}")
        rules = (
            replace(rule, over=(*rule.over, *precedence.get(rule.label, ()))) for rule in self.rules
        )
        return replace(self, rules=tuple(rules), fallback=fallback)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that rules vote for, in the order of the file, and the fallback."""
        labels = [rule.label for rule in self.rules]
        return tuple(dict.fromkeys([*labels, *([self.fallback] if self.fallback else [])]))

    def votes(self, labels: Sequence[str]) -> NDArray[np.float64]:
        """What each rule that fires adds to the votes of `labels`, `[rules, labels]`."""
        found = np.zeros((len(self.rules), len(labels)))
        numbers = {label: number for number, label in enumerate(labels)}
        for votes, rule in zip(found, self.rules, strict=True):
            for label in {rule.label, *rule.over} & numbers.keys():
                votes[numbers[label]] = rule.weight * (label == rule.label) - (label in rule.over)
        return found

    @property
    def words(self) -> list[str]:
        """The words that rules name, each once."""
        patterns = (pattern for rule in self.rules for pattern in rule.patterns)
        tests = (*(test for pattern in patterns for test in pattern.tests), *self.asked)
        return list(dict.fromkeys(word for test in tests for word in sorted(test.named)))

    def to_model(
        self,
        texts: Sequence[str] = (),
        vectors: str | None = None,
        tokenizer: str = "words",
        lowercase: bool = False,
    ) -> Any:
        """A `TextClassifier` that classifies as the rules vote, without a label.

        It can be saved, compiled, explained and trained like any other.

        Arguments:
            texts: unlabelled ones, whose words it is to know; on them it is measured what rules
                give where they do not fire, so that ties are decided rightly.
            vectors: a file of word vectors, of use once it is trained.
            tokenizer: `words`, or `whitespace` for text that is tokenised already.
            lowercase: whether text is lower-cased first.

        Raises `UserError` for rules that ask for capitals where text is lower-cased.
        """
        # models are above rules, which may not import them
        models = importlib.import_module("sopa_plugin.models")
        return models.TextClassifier.from_rules(self, texts, vectors, tokenizer, lowercase)

    def to_json(self) -> dict[str, Any]:
        """As plain values, for a saved model; of the file, the name without its folder."""
        kept = {"rules": self.rules, "source": Path(self.source).name}
        found: dict[str, Any] = plain(kept | {"fallback": self.fallback, "asked": self.asked})
        return found

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Rules:
        """What `to_json` wrote; raises `UserError` for what it would not have written."""
        try:
            rules = tuple(map(Rule.from_json, given["rules"]))
            asked = tuple(map(TokenTest.from_json, given.get("asked", ())))
            return cls(rules, (), str(given["source"]), given["fallback"], asked)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"the rules of a saved model cannot be read ({error})") from error


def _unknown(label: str, known: Iterable[str]) -> str:
    """That no rule has a label, and what may have been meant."""
    told = f"no rule has the label {shortened(label)}; expected one of {listed(known)}"
    return "; ".join(filter(None, [told, did_you_mean(label, known)]))


def _over_known(written: Sequence[Written]) -> tuple[list[Written], list[Fault]]:
    """The rules that go before labels of rules alone, and what is wrong with the others."""
    known = dict.fromkeys(each.label for each in written)
    kept: list[Written] = []
    faults: dict[Fault, None] = {}  # those of a section once
    for each in written:
        unknown = next((label for label in each.over if label not in known), None)
        if unknown is None:
            kept.append(each)
        else:
            faults[Fault(each.section or each.line, f"over: {_unknown(unknown, known)}")] = None
    return kept, list(faults)


def _rule(lines: Sequence[Written], number: int) -> Rule | Fault:
    first = lines[0]
    for each in lines[1:]:
        if (each.weight, each.over) != (first.weight, first.over):
            return Fault(
                each.line, f"weight and over: expected those of line {first.line}, as the id"
            )
    patterns: dict[HardPattern, None] = {}
    for each in lines:
        try:
            for items in each.alternatives:
                patterns |= dict.fromkeys(fit(items))
        except DoesNotFit as error:
            return Fault(each.line, f"{shortened(each.text)}: {error}")
    if len(patterns) > MOST_PATTERNS:
        return Fault(
            first.line, f"a union of {len(patterns)} patterns; at most {MOST_PATTERNS} fit"
        )
    name = first.id or f"{first.label}/{number}"
    text = " | ".join(each.text for each in lines)
    return Rule(first.label, name, first.line, text, tuple(patterns), first.weight, first.over)


def _within_memory(rules: Sequence[Rule]) -> tuple[list[Rule], list[Fault]]:
    """The rules before there are more than `MOST_LONG` patterns of several words."""
    kept: list[Rule] = []
    refused: list[Rule] = []
    count = 0
    for rule in rules:
        long = sum(len(pattern.loops) > 2 for pattern in rule.patterns)
        count += long
        (refused if long and count > MOST_LONG else kept).append(rule)
    if not refused:
        return kept, []
    patterns = [pattern for rule in rules for pattern in rule.patterns]
    arcs = sum(2 * len(pattern.loops) - 3 for pattern in patterns)
    tests = {test for pattern in patterns for test in pattern.tests}
    reason = (
        f"here the file has more than {MOST_LONG} patterns of several words, and {count} in all, "
        f"which would take {4 * arcs * len(tests) / 1e9:.2g} GB for weights of what they ask; "
        "leave some out, or write words that stand alike as a set"
    )
    return kept, [Fault(refused[0].line, reason)]
