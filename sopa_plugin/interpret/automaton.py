"""The arcs of a pattern: read as words and wildcards, drawn as the automaton that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from sopa_plugin.interpret.markup import (
    Drawing,
    number,
    padded,
    percent,
    shorten,
    state_name,
    tag,
    text_at,
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


def automaton(arcs: Sequence[ArcReading], num_states: int) -> Drawing:
    """START, states, END, self-loops above, epsilons dashed below, best words on the arcs.

    The paper's first figure.
    """
    labels = {(arc.arc, arc.state): arc.label for arc in arcs}

    def widest(arc: str, state: int) -> float:
        return max((text_width(word, SIZE) for word in labels.get((arc, state), [])), default=0.0)

    # Between two states, room for the words on the arc and half of those on both loops.
    gaps = [
        max(
            104.0,
            widest("main_path", state) + 2 * RADIUS + 14,
            (widest("self_loop", state) + widest("self_loop", state + 1)) / 2 + 14,
        )
        for state in range(num_states - 1)
    ]
    x = list(accumulate(gaps, initial=MARGIN + 26))
    heights = [
        LINE * len(words) + (LOOP_HEIGHT + RADIUS if arc == "self_loop" else 8.0)
        for (arc, _), words in labels.items()
    ]
    y = MARGIN + max([RADIUS, *heights]) + 4
    elements: list[Markup] = []
    for arc in arcs:
        left = x[arc.state]
        if arc.arc == "self_loop":
            elements += _loop(left, y, arc.label)
        elif arc.arc == "main_path":
            elements += _main(left, x[arc.state + 1], y, arc.label)
        else:
            elements += _epsilon(left, x[arc.state + 1], y, arc.bias)
    for state, center in enumerate(x):
        half, high, size = (RADIUS, RADIUS, SIZE) if 0 < state < num_states - 1 else (26, 16, 11)
        box = {"x": center - half, "y": y - high, "width": 2 * half, "height": 2 * high}
        elements.append(tag("rect", **box, rx=high, class_="state"))
        name = state_name(state, num_states)
        elements.append(text_at(center, y + 4, name, "strong", size, "middle"))
    has_epsilons = any(arc.arc == "epsilon" for arc in arcs)
    below = RADIUS + (46 if has_epsilons else 4) + MARGIN
    return Drawing(x[-1] + 26 + MARGIN, y + below, elements)


def _stack(x: float, bottom: float, words: list[str], class_: str) -> list[Markup]:
    """Words above one another, the best on top, the last on `bottom`."""
    top = bottom - LINE * (len(words) - 1)
    return [
        text_at(x, top + LINE * i, word, f"{class_} strong" if i == 0 else class_, SIZE, "middle")
        for i, word in enumerate(words)
    ]


def _arrow(x: float, y: float, class_: str, dx: float = 1.0, dy: float = 0.0) -> Markup:
    """An arrow head with its tip at (x, y), pointing along (dx, dy)."""
    back_x, back_y = x - 8 * dx, y - 8 * dy
    corners = ((x, y), (back_x - 4 * dy, back_y + 4 * dx), (back_x + 4 * dy, back_y - 4 * dx))
    return tag("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in corners), class_=class_)


def _main(left: float, right: float, y: float, words: list[str]) -> list[Markup]:
    line = tag("line", x1=left + RADIUS, y1=y, x2=right - RADIUS - 6, y2=y, class_="arc")
    words_above = _stack((left + right) / 2, y - 8, words, "")
    return [line, _arrow(right - RADIUS, y, "arrow"), *words_above]


def _loop(x: float, y: float, words: list[str]) -> list[Markup]:
    foot, top = y - RADIUS + 2, y - RADIUS - LOOP_HEIGHT + 8
    path = (
        f"M{x - 9:.1f},{foot:.1f} C{x - 26:.1f},{top:.1f} {x + 26:.1f},{top:.1f} "
        f"{x + 9:.1f},{foot - 2:.1f}"
    )
    arrow = _arrow(x + 8.5, foot, "looped", -0.45, 0.89)
    return [tag("path", d=path, class_="loop"), arrow, *_stack(x, top + 2, words, "looped")]


def _epsilon(left: float, right: float, y: float, score: float) -> list[Markup]:
    foot = y + RADIUS - 4
    deep = foot + 30
    path = (
        f"M{left + 12:.1f},{foot:.1f} C{left + 30:.1f},{deep:.1f} {right - 30:.1f},{deep:.1f} "
        f"{right - 13:.1f},{foot + 4:.1f}"
    )
    return [
        tag("path", d=path, class_="epsilon"),
        _arrow(right - 12, foot + 1, "arrow", 0.62, -0.78),
        text_at((left + right) / 2, deep + 10, f"ε {number(score, 2)}", "muted", 11, "middle"),
    ]


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
