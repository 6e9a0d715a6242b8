"""What becomes of each rule, and what it does on texts, before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, combinations

import torch
from torch import Tensor

from sopa_plugin.errors import counted, shortened
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.rules.rule import Rule, Rules

MOST_SHOWN = 10
"""Conflicts and texts that are listed."""


def report(
    rules: Rules,
    texts: Sequence[Sequence[str]] | None = None,
    labels: Sequence[str] | None = None,
) -> Iterator[str]:
    """Lines that say what becomes of each rule and, if there are texts, what it does on them.

    Arguments:
        rules: with their faults.
        texts: of words.
        labels: those of the texts, where they have any.
    """
    fires = torch.zeros(len(texts or ()), len(rules.rules), dtype=torch.bool)
    if rules.rules and texts is not None:
        fires = RuleMatcher(rules.rules).fires(texts)
    lines = {line: f"refused: {reason}" for line, reason in rules.faults}
    for number, rule in enumerate(rules.rules):
        count = len(rule.patterns)
        kind = "exact" if count == 1 else f"union of {count}"
        figures = "" if texts is None else f"; {_figures(rule, fires[:, number], labels)}"
        lines[rule.line] = f"{rule.name}: {kind}{figures}; {shortened(rule.text)}"
    for line in sorted(lines):
        yield f"{rules.source}:{line}: {lines[line]}"
    patterns = sum(len(rule.patterns) for rule in rules.rules)
    yield (
        f"{counted(len(rules.rules), 'rule')} of {counted(len(rules.labels), 'label')} "
        f"{'is' if len(rules.rules) == 1 else 'are'} {counted(patterns, 'pattern')}; "
        f"{len(rules.faults)} refused"
    )
    if texts is None:
        return
    for label in rules.labels:
        if labels is not None and label not in labels:
            yield f"no text has the label {shortened(label)}"
    together = (combinations(row.nonzero().flatten().tolist(), 2) for row in fires)
    conflicts = [
        f"conflict: {first.name} and {second.name} both fire on {counted(count, 'text')}"
        for pair, count in Counter(chain.from_iterable(together)).most_common()
        for first, second in [[rules.rules[number] for number in pair]]
        if first.label != second.label
        and second.label not in first.over
        and first.label not in second.over
    ]
    yield from conflicts[:MOST_SHOWN]
    if len(conflicts) > MOST_SHOWN:
        yield f"and {counted(len(conflicts) - MOST_SHOWN, 'more pair')} of rules"
    uncovered = (~fires.any(dim=1)).nonzero().flatten().tolist()
    yield f"no rule fires on {len(uncovered)} of {len(texts)} texts"
    for number in uncovered[:MOST_SHOWN]:
        yield f"  {number + 1}: {shortened(' '.join(texts[number]), 100)}"


def _figures(rule: Rule, fired: Tensor, labels: Sequence[str] | None) -> str:
    """How often a rule fires; where texts have labels, how often rightly."""
    count = int(fired.sum())
    if labels is None:
        return f"fires on {count}"
    meant = torch.tensor([label == rule.label for label in labels])
    right = int((fired & meant).sum())
    shares = right / max(count, 1), right / max(int(meant.sum()), 1)
    precision, recall = (f"{share:.1%}" for share in shares)
    return f"fires on {count}, precision {precision}, recall {recall}"
