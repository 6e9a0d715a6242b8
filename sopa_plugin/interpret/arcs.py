"""Every arc's nearest words and how much of it is a wildcard, found in one pass over words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sopa_plugin.interpret.automaton import ArcReading
from sopa_plugin.interpret.subject import Subject
from sopa_plugin.wfsa import ArcEncoding, Semiring


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
