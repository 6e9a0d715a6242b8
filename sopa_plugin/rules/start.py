"""What rules give a model before it is trained: token features, sure patterns, votes for labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from sopa_plugin.embedders import TokenEmbedder
from sopa_plugin.embedders.token_embedder import Found, embed
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.encoders.sopa_layers import FIRES, RulePattern
from sopa_plugin.rules.automaton import HardPattern
from sopa_plugin.rules.rule import Rules
from sopa_plugin.rules.tokens import ANY, END, START, TokenTest
from sopa_plugin.rules.unknown import UnknownWords

WORD = 4.0
"""What the arc of a word scores where its test holds, and less than nothing where it does not,
before the sigmoid: at 20 it would not learn."""

LOOP = 12.0
"""The same for self-loops and epsilons: at 4 each token of a gap would cost 2 %."""

VOTE = 4.0
"""What a rule that fires adds to the logit of its label."""

_NEVER = -1000.0
"""What patterns that were trained without rules' tokens before and after a text make of them."""

_ORDER = 0.5  # of a vote, from the label that wins all ties to the one that loses them
_NO_RULE = HardPattern((ANY,), (False,), (None, None))


class RuleEmbedder(TokenEmbedder):
    """Word vectors with one number more for each thing that rules ask of a token: 1 where it is so.

    Arguments:
        vectors: embeds words.
        num_embeddings: number of words, special tokens included.
        num_tests: what rules ask, the tokens before and after a text last.
    """

    features: Tensor  # [words, tests], 0 or 1

    def __init__(self, vectors: TokenEmbedder, num_embeddings: int, num_tests: int) -> None:
        super().__init__()
        self.vectors = vectors
        self.trainable = vectors.trainable
        table = torch.zeros(num_embeddings, num_tests, dtype=torch.uint8)
        self.register_buffer("features", table)

    @property
    def found(self) -> Found | None:  # type: ignore[override]
        """What the file of word vectors brought."""
        return self.vectors.found

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, ngrams: Tensor | None = None
    ) -> Tensor:
        """Vectors `[..., dim + tests]` of `input_ids [...]`."""
        vectors = embed(self.vectors, input_ids, attention_mask, ngrams)
        return torch.cat([vectors, self.features[input_ids].to(vectors)], dim=-1)

    def get_output_dim(self) -> int:
        """Dimension of the vectors, features included."""
        return self.vectors.get_output_dim() + self.features.shape[1]

    def set_features(self, unknown: UnknownWords, tokenizer: PreTrainedTokenizerBase) -> None:
        """Fills in what holds for each word of a tokenizer, and for those that it does not know."""
        words, questions = tokenizer.get_vocab(), unknown.questions
        found = dict(zip(words.values(), map(questions.answers, words), strict=True))
        found |= {row: answers for answers, row in unknown.rows.items()}
        self.features[[*found]] = torch.from_numpy(questions.table(found.values()))
        if tokenizer.pad_token_id is not None:
            self.features[tokenizer.pad_token_id] = 0


def tests_of(rules: Rules) -> list[TokenTest]:
    """What rules ask of tokens, each once; of the tokens before and after a text last."""
    of_patterns = (test for _, pattern in patterns_of(rules) for test in pattern.tests)
    tests = dict.fromkeys([*of_patterns, *rules.asked])
    return [*(test for test in tests if not test.anchor), START, END]


def patterns_of(rules: Rules) -> list[tuple[RulePattern, HardPattern]]:
    """The patterns of all rules, the shortest first, each with its name in the model."""
    found = []
    for number, rule in enumerate(rules.rules):
        for place, pattern in enumerate(rule.patterns, 1):
            name = rule.name if len(rule.patterns) == 1 else f"{rule.name}.{place}"
            words = sum(
                arc is not None and not skips
                for arc, skips in zip(pattern.main_path, pattern.epsilons, strict=True)
            )
            sure = (1 + math.exp(-WORD)) ** -words
            found.append((RulePattern(name, len(pattern.loops), number, sure), pattern))
    if rules.fallback is not None:
        found.append((RulePattern("no rule", 2, -1, 1.0), _NO_RULE))
    return sorted(found, key=lambda each: each[0].states)


@torch.no_grad()
def start_patterns(encoder: SopaEncoder, rules: Rules) -> None:
    """Gives the patterns of rules arcs that fire where the rules do; free ones see no features."""
    tests = {test: column for column, test in enumerate(reversed(tests_of(rules)), 1)}
    layout, arcs = encoder.layout, encoder.arcs
    arcs.weight[:, -len(tests) :] = 0
    places = [place for place, rule in enumerate(encoder.rules) if rule]
    for place, (_, pattern) in zip(places, patterns_of(rules), strict=True):
        for arc, test, loops in pattern.arcs_in(layout, place):
            strength = LOOP if loops or test is None else WORD
            arcs.weight[arc] = 0
            arcs.bias[arc] = -strength
            if test is not None:
                arcs.weight[arc, -tests[test]] = 2 * strength
        for block, skips in zip(layout.epsilon_arcs, pattern.epsilons, strict=False):
            arcs.epsilon[block.origin + place] = LOOP if skips else -LOOP


@torch.no_grad()
def start_votes(head: nn.Linear, encoder: SopaEncoder, rules: Rules, labels: Sequence[str]) -> None:
    """Gives a linear layer the votes of rules; free patterns have none.

    A rule that fires adds a vote to its label and takes one from those that it goes before; where
    none fires, the `fallback` has one. Of labels with as many the first in the file wins.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    head.weight.zero_()
    head.bias.fill_(-_ORDER * VOTE)
    known = rules.labels
    places = [numbers[label] for label in known]
    head.bias[places] = -_ORDER * VOTE * torch.arange(len(known)).to(head.bias) / len(known)
    fallback = np.array([[float(label == rules.fallback) for label in labels]])  # of rule -1
    votes = np.concatenate([rules.votes(labels), fallback])
    of = [(place, rule.rule) for place, rule in enumerate(encoder.rules) if rule]
    places, own = map(list, zip(*of, strict=True))
    head.weight[:, places] = VOTE * torch.from_numpy(votes[own].T).to(head.weight)


@torch.no_grad()
def carry_over(
    old: SopaEncoder, old_rules: Rules | None, new: SopaEncoder, rules: Rules
) -> list[int]:
    """Gives an encoder with more `rules`, after `start_patterns`, the patterns of an old one.

    They see nothing of what is new: it weighs 0, and no match of theirs runs over tokens before or
    after a text if there were none. Returns the place in `new` of each.
    """
    asked = [] if old_rules is None else tests_of(old_rules)
    after = {test: column for column, test in enumerate(reversed(tests_of(rules)), 1)}
    columns = [*range(old.input_dim - len(asked)), *(new.input_dim - after[t] for t in asked)]
    places: dict[RulePattern | None, list[int]] = {}
    for place, rule in enumerate(new.rules):
        places.setdefault(rule, []).append(place)
    kept = [places[rule].pop(0) for rule in old.rules]
    source, target = (
        [arc for place in some for arc, of in enumerate(layout.patterns_of_scores) if of == place]
        for layout, some in ((old.layout, range(len(kept))), (new.layout, kept))
    )
    weight = old.arcs.weight.new_zeros(len(target), new.input_dim)
    weight[:, columns] = old.arcs.weight[source]
    if any(new.rules) and not old.marked:
        weight[:, -2:] = _NEVER
    new.arcs.weight[target], new.arcs.bias[target] = weight, old.arcs.bias[source]
    if old.marked:
        set_boundary_products(new, target, boundary_products(old)[source])
    # epsilons are numbered as main-path arcs, the first ones, are
    source, target = (
        [arc for arc in arcs if arc < layout.num_epsilons]
        for arcs, layout in ((source, old.layout), (target, new.layout))
    )
    new.arcs.epsilon[target] = old.arcs.epsilon[source]
    return kept


def boundary_products(encoder: SopaEncoder) -> Tensor:
    """What each arc makes of the tokens before and after a text, without its bias: `[R, 2]`."""
    weight = encoder.arcs.weight
    return weight @ encoder.boundary_rows(weight).T


@torch.no_grad()
def set_boundary_products(encoder: SopaEncoder, arcs: Sequence[int], products: Tensor) -> None:
    """Gives some arcs of an encoder that sees token features other `boundary_products`.

    By the weights of the last two features, which no word has.
    """
    weight = encoder.arcs.weight
    lacking = products - boundary_products(encoder)[arcs]
    weight[arcs, -2:] += torch.linalg.solve(encoder.boundary_rows(weight)[:, -2:], lacking.T).T


@torch.no_grad()
def settle_votes(head: nn.Linear, encoder: SopaEncoder, vectors: Tensor, first: int = 0) -> None:
    """Takes from the biases what rules give on the average where they do not fire.

    After `start_votes` and `start_patterns`, by the `vectors [texts, K]` of some texts, for the
    rules from the number `first` on.
    """
    own = torch.tensor([rule is not None and rule.rule >= first for rule in encoder.rules])
    silent = own & (vectors < FIRES)
    means = (vectors * silent).sum(dim=0) / silent.sum(dim=0).clamp(min=1)
    head.bias.sub_(head.weight @ means.to(head.weight))


def started(head: nn.Linear, encoder: SopaEncoder) -> list[tuple[Tensor, Tensor]]:
    """The weights of which rules began some numbers, each with a mask of these."""
    layout, arcs = encoder.layout, encoder.arcs
    rules = torch.tensor([rule is not None for rule in encoder.rules])
    blocks = (*layout.main_path, *(block for block in layout.loops if block))
    own, skips = (
        torch.cat([rules[block.first_pattern :] for block in each])
        for each in (blocks, layout.epsilon_arcs)
    )
    device = head.weight.device
    return [
        (arcs.weight, own[:, None].expand_as(arcs.weight).to(device)),
        (arcs.bias, own.to(device)),
        (arcs.epsilon, skips.to(device)),
        (head.weight, rules.expand_as(head.weight).to(device)),
        (head.bias, torch.ones_like(head.bias, dtype=torch.bool)),
    ]
