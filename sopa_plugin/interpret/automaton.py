"""The arcs of a pattern: read as words and wildcards, drawn as the automaton that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from sopa_plugin.interpret.markup import (
    Picture,
    number,
    padded,
    percent,
    render,
    shorten,
    state_name,
    text_width,
    visible,
)
from sopa_plugin.interpret.match import finite
from sopa_plugin.interpret.subject import Subject
from sopa_plugin.wfsa import ArcEncoding, Semiring

WORDS, LETTERS = 3, 15
"""Words that stand on an arc, and letters of each."""

WILDCARD_SHARE = 0.6
"""An arc that is a wildcard to this degree or more is drawn as one."""

RADIUS, SIZE, LINE, LOOP_HEIGHT, MARGIN = 19.0, 12.0, 15.0, 44.0, 14.0


@dataclass(frozen=True)
class ArcReading:
    """One arc read as a word or a wildcard (paper, section 3.1, "Words vs. wildcards").

    Arguments:
        arc: "main_path", "self_loop" or "epsilon".
        state: the state that the arc leaves.
        bias: what the arc scores for a word whose vector is zero; an epsilon's own score.
        wildcard: how much of it is a wildcard, from 0 (one word) to 1 (any word): where scores lie
            between 0 and 1, the mean score of a word; else how little scores differ from word to
            word, against the arc of the same pattern where they differ most.
        words: the words that score highest, with their scores.

    Words are those of the vocabulary or, where vectors depend on context, of the documents read
    first.
    """

    arc: str
    state: int
    bias: float
    wildcard: float = 0.0
    words: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The arc as plain values."""
        values: dict[str, Any] = {"arc": self.arc, "state": self.state}
        if self.arc == "epsilon":
            return values | {"score": finite(self.bias)}
        words = [{"word": word, "score": finite(score)} for word, score in self.words]
        return values | {"bias": finite(self.bias), "wildcard": self.wildcard, "words": words}

    def cells(self, num_states: int) -> tuple[str, str, str, str]:
        """In words: where the arc leads, its bias, how much of a wildcard it is, its best words."""
        to = self.state if self.arc == "self_loop" else self.state + 1
        way = f"{state_name(self.state, num_states)} → {state_name(to, num_states)}"
        if self.arc == "epsilon":
            return way, f"ε {number(self.bias)}", "", ""
        words = ", ".join(f"{word} {number(score)}" for word, score in self.words)
        return way, f"bias {number(self.bias)}", f"∗ {percent(self.wildcard)}", words

    @property
    def label(self) -> list[str]:
        """What stands on the arc: how much of a wildcard it is where it is one, its best words."""
        words = [shorten(word, LETTERS) for word, _ in self.words[:WORDS]]
        if self.arc != "epsilon" and self.wildcard >= WILDCARD_SHARE:
            return [f"∗ {percent(self.wildcard)}", *words[: WORDS - 1]]
        return words


def arcs_text(arcs: Sequence[ArcReading], num_states: int) -> list[str]:
    """The arcs for a terminal, one a line."""
    rows = [[visible(cell) for cell in arc.cells(num_states)] for arc in arcs]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    widths[-1:] = [0]
    return ["  " + "  ".join(map(padded, row, widths)).rstrip() for row in rows]


def automaton(arcs: Sequence[ArcReading], num_states: int) -> Picture:
    """START, states, END, self-loops above, epsilons dashed below, best words on the arcs.

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
            widths.get(("main_path", state), 0.0) + 2 * RADIUS + 14,
            sum(widths.get(("self_loop", each), 0.0) for each in (state, state + 1)) / 2 + 14,
        )
        for state in range(num_states - 1)
    ]
    x = list(accumulate(gaps, initial=MARGIN + 26))
    y = (
        MARGIN
        + 4
        + max(
            [RADIUS]
            + [
                LINE * len(arc.label) + (LOOP_HEIGHT + RADIUS if arc.arc == "self_loop" else 8.0)
                for arc in arcs
            ]
        )
    )
    look = {"radius": RADIUS, "size": SIZE, "line": LINE, "loop_height": LOOP_HEIGHT}
    elements = render("automaton.svg", arcs=arcs, x=x, y=y, **look)
    below = RADIUS + (46 if any(arc.arc == "epsilon" for arc in arcs) else 4) + MARGIN
    return Picture(x[-1] + 26 + MARGIN, y + below, elements)


class ArcWords:
    """Scores of every arc over words, in one pass: the best words, the mean, the spread.

    Arguments:
        subject: whose patterns are read.
        count: words to keep of each arc.
    """

    def __init__(self, subject: Subject, count: int) -> None:
        self.subject = subject
        self.count = count
        arcs = subject.encoder.layout.num_scores
        self.words: list[str] = []
        self._scored = 0
        self._best = torch.full((0, arcs), float("-inf"), dtype=torch.float64)
        self._which = torch.zeros((0, arcs), dtype=torch.long)
        self._moments = torch.zeros((2, arcs), dtype=torch.float64)

    @torch.no_grad()
    def add(self, words: Sequence[str], rows: Tensor) -> None:
        """Takes some words with their vectors `[words, dim]`.

        Of a word that is met several times among them, each arc keeps the best score.
        """
        scores = self._raw(rows)
        shown = self._shown(scores)
        self._moments += torch.stack([shown.sum(0), shown.square().sum(0)])
        self._scored += len(words)
        start, numbers = len(self.words), {word: n for n, word in enumerate(dict.fromkeys(words))}
        self.words += numbers
        # shape: [words, R], of each word the number of the distinct one
        places = torch.tensor([numbers[word] for word in words], dtype=torch.long)
        places = places[:, None].expand_as(scores)
        best = torch.full((len(numbers), scores.shape[1]), float("-inf"), dtype=scores.dtype)
        best.scatter_reduce_(0, places, scores, "amax")
        which = torch.arange(start, len(self.words))[:, None].expand_as(best)
        best, which = torch.cat([self._best, best]), torch.cat([self._which, which])
        self._best, places = best.topk(min(self.count, len(best)), dim=0)
        self._which = which.gather(0, places)

    @torch.no_grad()
    def readings(self, pattern: int) -> tuple[ArcReading, ...]:
        """Every arc of one pattern: main path, self-loops and epsilons, state by state."""
        encoder = self.subject.encoder
        layout, length = encoder.layout, encoder.layout.lengths[pattern]
        device = encoder.arcs.weight.device
        zero = torch.zeros(1, encoder.get_input_dim(), device=device)
        bias = self._shown(self._raw(zero))[0]
        epsilon = self._shown(encoder.arc_scores(zero)[1].double().cpu())
        columns: list[tuple[str, int, int]] = []
        for state in range(length):
            for kind, blocks in (
                ("main_path", layout.main_path),
                ("self_loop", layout.loops),
                ("epsilon", layout.epsilon_arcs),
            ):
                block = blocks[state] if state < len(blocks) else None
                has_arc = kind == "self_loop" or state < length - 1
                if block is not None and has_arc and pattern >= block.first_pattern:
                    columns.append((kind, state, block.start + pattern - block.first_pattern))
        scored = [column for kind, _, column in columns if kind != "epsilon"]
        widest = float(self._spread()[scored].max()) if scored else 0.0
        return tuple(
            ArcReading(kind, state, float(epsilon[column]))
            if kind == "epsilon"
            else ArcReading(
                kind, state, float(bias[column]), self._wildcard(column, widest), self._top(column)
            )
            for kind, state, column in columns
        )

    def _top(self, column: int) -> tuple[tuple[str, float], ...]:
        scores = self._shown(self._best[:, column]).tolist()
        words = [self.words[number] for number in self._which[:, column].tolist()]
        return tuple(zip(words, scores, strict=True))

    def _wildcard(self, column: int, widest: float) -> float:
        if not self._scored:
            return 0.0
        if self._bounded:
            return float(self._moments[0, column] / self._scored)
        return 1.0 - float(self._spread()[column]) / widest if widest else 1.0

    def _spread(self) -> Tensor:
        mean, square = self._moments / max(self._scored, 1)
        spread: Tensor = (square - mean.square()).clamp(min=0).sqrt()
        return spread

    @property
    def _bounded(self) -> bool:
        """Whether scores, as users see them, lie between 0 and 1."""
        options = self.subject.encoder.options
        encoding = ArcEncoding.named(options.encoding)
        return encoding.at_most_one and encoding.kind != "log_weight"

    def _raw(self, rows: Tensor) -> Tensor:
        return self.subject.encoder.arc_scores(rows)[0].double().cpu()

    def _shown(self, scores: Tensor) -> Tensor:
        algebra: Semiring = self.subject.encoder.options.algebra
        shown: Tensor = algebra.to_score(scores)
        return shown
