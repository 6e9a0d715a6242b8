"""Where rules fire: the automata of all of them over texts, in the boolean semiring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from sopa_plugin.rules.automaton import HardPattern
from sopa_plugin.rules.rule import Rule
from sopa_plugin.rules.tokens import END, START, TokenTest
from sopa_plugin.rules.unknown import Questions
from sopa_plugin.wfsa import Arcs, Layout, document_scores


class RuleMatcher:
    """Rules as the automata of `sopa_plugin.wfsa`, every text between a START and an END token.

    A rule fires where one of its patterns matches; `batch_size` texts are matched at once.
    """

    def __init__(self, rules: Sequence[Rule], batch_size: int = 256) -> None:
        owned = [
            (pattern, number) for number, rule in enumerate(rules) for pattern in rule.patterns
        ]
        owned.sort(key=lambda each: len(each[0].loops))
        self.num_rules, self.batch_size = len(rules), batch_size
        self.patterns = [pattern for pattern, _ in owned]
        self.owners = torch.tensor([number for _, number in owned])
        self.layout = Layout(tuple(len(pattern.loops) for pattern in self.patterns))
        tests, self.columns, self.epsilon = _arcs(self.layout, self.patterns)
        self.questions = Questions(tests)

    def fires(self, texts: Sequence[Sequence[str]]) -> Tensor:
        """Whether each rule fires on each text of words, bool `[texts, rules]`."""
        found = [torch.zeros(0, self.num_rules, dtype=torch.bool)]
        for arcs in self.batches(texts):
            matched = document_scores(self.layout, "boolean", arcs) > 0
            fired = torch.zeros(len(matched), self.num_rules, dtype=torch.int)
            fired.index_add_(1, self.owners, matched.int())
            found.append(fired > 0)
        return torch.cat(found)

    def batches(self, texts: Sequence[Sequence[str]]) -> Iterator[Arcs]:
        """What the arcs of all patterns score, 0 or 1, on the tokens of some texts at a time."""
        remaining = iter(texts)
        while batch := list(islice(remaining, self.batch_size)):
            words: dict[str, int] = {}
            # Rows 0 and 1 are the boundaries of a text.
            rows = [[0, *(words.setdefault(w, len(words) + 2) for w in text), 1] for text in batch]
            tests = self.questions.tests
            boundaries = torch.tensor([[test == each for test in tests] for each in (START, END)])
            answers = self.questions.table(map(self.questions.answers, words))
            truths = torch.cat([boundaries, torch.from_numpy(answers)])
            # shape: [N, distinct tests], behind them one that is never true
            table = torch.nn.functional.pad(truths.float(), (0, 1))
            offsets = np.cumsum([0, *map(len, rows)])
            yield Arcs(
                table[:, self.columns],
                torch.tensor([row for each in rows for row in each]),
                torch.from_numpy(offsets),
                self.epsilon,
            )


def _arcs(
    layout: Layout, patterns: Sequence[HardPattern]
) -> tuple[list[TokenTest], Tensor, Tensor]:
    """The distinct tests, which of them each arc has `[R]` (-1: none), and the epsilons `[Q]`."""
    columns = torch.full((layout.num_scores,), -1)
    epsilon = torch.zeros(layout.num_epsilons)
    tests: dict[TokenTest, int] = {}
    for number, pattern in enumerate(patterns):
        for column, test, _ in pattern.arcs_in(layout, number):
            if test is not None:
                columns[column] = tests.setdefault(test, len(tests))
        for block, skips in zip(layout.epsilon_arcs, pattern.epsilons, strict=False):
            epsilon[block.origin + number] = float(skips)
    return list(tests), columns, epsilon
