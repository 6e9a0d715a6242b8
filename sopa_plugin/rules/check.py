"""What becomes of each rule, and what it does on texts, before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from sopa_plugin.errors import shortened
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.rules.rule import Rule, Rules

MOST_SHOWN = 10
"""Conflicts and texts that are listed."""


@dataclass(frozen=True)
class Firing:
    """Where rules fire on `texts` of words, which may have `labels`: `fires [texts, rules]`."""

    rules: Sequence[Rule]
    fires: Tensor
    texts: Sequence[Sequence[str]]
    labels: Sequence[str] | None

    @classmethod
    def of(
        cls, rules: Rules, texts: Sequence[Sequence[str]], labels: Sequence[str] | None = None
    ) -> Firing:
        """Tries all rules on all texts."""
        if not rules.rules:
            return cls((), torch.zeros(len(texts), 0, dtype=torch.bool), texts, labels)
        return cls(rules.rules, RuleMatcher(rules.rules).fires(texts), texts, labels)

    def figures(self, number: int) -> str:
        """How often a rule fires; where texts have labels, how often rightly."""
        fired = self.fires[:, number]
        count = int(fired.sum())
        if self.labels is None:
            return f"fires on {count}"
        meant = torch.tensor([label == self.rules[number].label for label in self.labels])
        right = int((fired & meant).sum())
        shares = (right / max(count, 1), right / max(int(meant.sum()), 1))
        precision, recall = (f"{share:.1%}" for share in shares)
        return f"fires on {count}, precision {precision}, recall {recall}"

    def conflicts(self) -> list[tuple[Rule, Rule, int]]:
        """Rules of different labels that fire on the same texts, and on how many; most first."""
        counts: Counter[tuple[int, int]] = Counter()
        for row in self.fires:
            together = row.nonzero().flatten().tolist()
            counts.update(combinations(together, 2))
        pairs = ((self.rules[a], self.rules[b], count) for (a, b), count in counts.most_common())
        return [
            (first, second, count)
            for first, second, count in pairs
            if first.label != second.label
            and second.label not in first.over
            and first.label not in second.over
        ]


def report(rules: Rules, firing: Firing | None = None) -> Iterator[str]:
    """Lines that say what becomes of each rule, and what it does on the texts."""
    lines = {line: f"refused: {reason}" for line, reason in rules.faults}
    for number, rule in enumerate(rules.rules):
        count = len(rule.patterns)
        kind = "exact" if count == 1 else f"union of {count}"
        figures = f"; {firing.figures(number)}" if firing else ""
        lines[rule.line] = f"{rule.name}: {kind}{figures}; {shortened(rule.text)}"
    for line in sorted(lines):
        yield f"{rules.source}:{line}: {lines[line]}"
    patterns = sum(len(rule.patterns) for rule in rules.rules)
    yield (
        f"{len(rules.rules)} rules of {len(rules.labels)} labels are {patterns} patterns; "
        f"{len(rules.faults)} refused"
    )
    if firing is None:
        return
    if firing.labels is not None:
        for label in rules.labels:
            if label not in firing.labels:
                yield f"no text has the label {shortened(label)}"
    conflicts = firing.conflicts()
    for first, second, count in conflicts[:MOST_SHOWN]:
        yield f"conflict: {first.name} and {second.name} both fire on {count} texts"
    if len(conflicts) > MOST_SHOWN:
        yield f"and {len(conflicts) - MOST_SHOWN} more pairs of rules"
    uncovered = (~firing.fires.any(dim=1)).nonzero().flatten().tolist()
    yield f"no rule fires on {len(uncovered)} of {len(firing.texts)} texts"
    for number in uncovered[:MOST_SHOWN]:
        yield f"  {number + 1}: {shortened(' '.join(firing.texts[number]), 100)}"
