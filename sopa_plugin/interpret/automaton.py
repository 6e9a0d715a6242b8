"""The arcs of a pattern: read as words and wildcards, drawn as the automaton that they make."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from sopa_plugin.errors import visible
from sopa_plugin.files import plain
from sopa_plugin.interpret.explanation import Told
from sopa_plugin.interpret.markup import (
    Picture,
    aligned,
    fold,
    number,
    percent,
    render,
    shorten,
    state_name,
    text_width,
)
from sopa_plugin.interpret.subject import Subject
from sopa_plugin.wfsa import ArcEncoding, Layout

WORDS, LETTERS = 3, 15
"""Words that stand on an arc, and letters of each."""

WILDCARD_SHARE = 0.6
"""An arc that is a wildcard to this degree or more is drawn as one."""

RADIUS, END, SIZE, LINE, LOOP_HEIGHT, MARGIN = 19.0, 26.0, 12.0, 15.0, 44.0, 14.0
"""Of a picture: a state's, half the width of START and END, text, its lines, loops, the margin."""


@dataclass(frozen=True)
class ArcReading(Told):
    """One arc read as a word or a wildcard (paper, section 3.1, "Words vs. wildcards").

    Arguments:
        arc: "main_path", "self_loop" or "epsilon".
        state: the state that the arc leaves.
        bias: what the arc scores for a word whose vector is zero; an epsilon's own score.
        wildcard: how much of it is a wildcard, from 0 (one word) to 1 (any word): where scores lie
            between 0 and 1, the mean score of a word; else how little scores differ from word to
            word, against the arc of the same pattern where they differ most.
        words: the words that score highest, with their scores: of the vocabulary or, where vectors
            depend on context, of the documents read first.
        consumed: the words that it consumed where the pattern fires, and how often, the most
            frequent first; None where that is not known.
    """

    arc: str
    state: int
    bias: float
    wildcard: float = 0.0
    words: tuple[tuple[str, float], ...] = ()
    consumed: tuple[tuple[str, int], ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"arc": self.arc, "state": self.state}
        if self.arc == "epsilon":
            values["score"] = self.bias
        else:
            words = [{"word": word, "score": score} for word, score in self.words]
            values |= {"bias": self.bias, "wildcard": self.wildcard, "words": words}
        found: dict[str, Any] = plain(values)
        return found

    def cells(self, num_states: int) -> tuple[str, str, str, str, str]:
        """In words: where it leads, bias, wildcard, what it consumed, the vocabulary's nearest."""
        to = self.state if self.arc == "self_loop" else self.state + 1
        way = f"{state_name(self.state, num_states)} → {state_name(to, num_states)}"
        if self.arc == "epsilon":
            return way, f"ε {number(self.bias)}", "", "", ""
        words = ", ".join(f"{word} {number(score)}" for word, score in self.words)
        consumed = ", ".join(f"{word} ×{count}" for word, count in self.consumed or ())
        wildcard = f"∗ {percent(self.wildcard)}"
        return way, f"bias {number(self.bias)}", wildcard, consumed, words

    @property
    def label(self) -> list[str]:
        """What stands on the arc: how much of a wildcard it is where it is one, and its words.

        Those that it consumed most; where that is not known, the vocabulary's nearest.
        """
        known = self.words if self.consumed is None else self.consumed
        words = [shorten(word, LETTERS) for word, _ in known[:WORDS]]
        if self.arc != "epsilon" and self.wildcard >= WILDCARD_SHARE:
            return [f"∗ {percent(self.wildcard)}", *words[: WORDS - 1]]
        return words


def arcs_text(arcs: Sequence[ArcReading], num_states: int) -> list[str]:
    """The arcs for a terminal: a line each, and below it its words."""
    cells = [[visible(cell) for cell in arc.cells(num_states)] for arc in arcs]
    lines = []
    for line, (*_, consumed, words) in zip(aligned([row[:3] for row in cells]), cells, strict=True):
        lines.append(line)
        lines += [fold(f"    consumed: {consumed}", 6)] * bool(consumed)
        lines += [fold(f"    nearest: {words}", 6)] * bool(words)
    return lines


def automaton(arcs: Sequence[ArcReading], num_states: int) -> Picture:
    """START, states, END, self-loops above, epsilons dashed below, words on the arcs.

    The paper's first figure.
    """
    widths = {
        (arc.arc, arc.state): max((text_width(word, SIZE) for word in arc.label), default=0.0)
        for arc in arcs
    }
    # Between two states, room for the words on the arc and half of those on both loops.
    gaps = [
        max(
            104.0,
            widths.get(("main_path", state), 0.0) + 2 * END + 14,
            sum(widths.get(("self_loop", each), 0.0) for each in (state, state + 1)) / 2 + 14,
        )
        for state in range(num_states - 1)
    ]
    x = list(accumulate(gaps, initial=MARGIN + END))
    above = {"self_loop": LOOP_HEIGHT + RADIUS, "main_path": 8.0, "epsilon": 8.0}
    heights = [LINE * len(arc.label) + above[arc.arc] for arc in arcs]
    y = MARGIN + 4 + max([RADIUS, *heights])
    look = {"radius": RADIUS, "end": END, "size": SIZE, "line": LINE, "loop_height": LOOP_HEIGHT}
    elements = render("automaton.svg", arcs=arcs, x=x, y=y, **look)
    below = RADIUS + (46 if any(arc.arc == "epsilon" for arc in arcs) else 4) + MARGIN
    return Picture(x[-1] + END + MARGIN, y + below, elements)


def arcs_of(layout: Layout, pattern: int) -> Iterator[tuple[str, int, int]]:
    """Every arc of a pattern, state by state: its kind, the state that it leaves, its column.

    A column is one of the layout's scores or, for an epsilon, of its epsilons. Left out is an
    epsilon into END that no match can take: with it one would consume nothing, or end too early.
    """
    before_end = layout.lengths[pattern] - 2
    can_end = layout.loops[0] or layout.empty_matches or (layout.final_epsilon and before_end > 0)
    for state in range(layout.lengths[pattern]):
        for kind, blocks in (
            ("main_path", layout.main_path),
            ("self_loop", layout.loops),
            ("epsilon", layout.epsilon_arcs),
        ):
            for block in blocks[state : state + 1]:
                if kind == "epsilon" and state == before_end and not can_end:
                    continue
                if block and pattern >= block.first_pattern:
                    yield kind, state, block.origin + pattern


@torch.no_grad()
def read_arcs(
    subject: Subject,
    vocabulary: Iterable[tuple[Sequence[str], Tensor]],
    count: int,
    consumed: Sequence[Mapping[tuple[str, int], Sequence[tuple[str, int]]]] | None = None,
) -> list[tuple[ArcReading, ...]]:
    """Every arc of each pattern: main path, self-loops and epsilons, state by state.

    Arguments:
        subject: whose patterns are read.
        vocabulary: words with their vectors `[words, dim]`, some at a time. Of a word that is met
            several times among some, each arc keeps the best score.
        count: words to keep of each arc.
        consumed: of each pattern, by arc, the words that it consumed; none where it fires nowhere.
    """
    encoder, options = subject.encoder, subject.encoder.options
    layout, algebra = encoder.layout, options.algebra
    names: list[str] = []
    best = torch.full((0, layout.num_scores), -math.inf, dtype=torch.float64)
    which = torch.zeros((0, layout.num_scores), dtype=torch.long)
    moments, scored = torch.zeros((2, layout.num_scores), dtype=torch.float64), 0
    for words, rows in vocabulary:
        scores = encoder.arc_scores(rows)[0].double().cpu()
        shown = algebra.to_score(scores)
        moments += torch.stack([shown.sum(0), shown.square().sum(0)])
        scored += len(words)
        numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
        # shape: [words, R], of each word the number of the distinct one
        places = torch.tensor([numbers[word] for word in words])[:, None].expand_as(scores)
        found = torch.full((len(numbers), layout.num_scores), -math.inf, dtype=scores.dtype)
        found.scatter_reduce_(0, places, scores, "amax")
        rank = torch.arange(len(names), len(names) + len(numbers))[:, None].expand_as(found)
        names += numbers
        best, which = torch.cat([best, found]), torch.cat([which, rank])
        best, places = best.topk(min(count, len(best)), dim=0)
        which = which.gather(0, places)
    mean, square = moments / max(scored, 1)
    spread = (square - mean.square()).clamp(min=0).sqrt().tolist()
    encoding = ArcEncoding.named(options.encoding)
    bounded = encoding.at_most_one and encoding.kind != "log_weight"  # scores lie in [0, 1]
    zero = torch.zeros(1, encoder.get_input_dim(), device=encoder.arcs.weight.device)
    of_zero, epsilons, *_ = (
        algebra.to_score(each.double().cpu()) for each in encoder.arc_scores(zero)
    )
    shown = algebra.to_score(best)

    def read(pattern: int) -> Iterator[ArcReading]:
        arcs = list(arcs_of(layout, pattern))
        widest = max((spread[column] for kind, _, column in arcs if kind != "epsilon"), default=0.0)
        for kind, state, column in arcs:
            if kind == "epsilon":
                yield ArcReading(kind, state, float(epsilons[column]))
                continue
            wildcard = float(mean[column]) if bounded else 1.0
            if not bounded and widest:
                wildcard -= spread[column] / widest
            words = [names[number] for number in which[:, column].tolist()]
            ranked = tuple(zip(words, shown[:, column].tolist(), strict=True))
            bias, took = float(of_zero[0, column]), None
            if consumed is not None and consumed[pattern]:
                took = tuple(consumed[pattern][kind, state][:count])
            yield ArcReading(kind, state, bias, wildcard if scored else 0.0, ranked, took)

    return [tuple(read(pattern)) for pattern in range(layout.num_patterns)]
