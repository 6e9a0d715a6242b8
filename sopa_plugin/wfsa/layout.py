"""The operator's tensors: what they hold and where each arc and state of the patterns lies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

SELF_LOOP = 1
"""Bit of a step: the state was reached by its self-loop; else by the main path (START: afresh)."""

EPSILON = 2
"""Bit of a step: before the token, the state was reached by the epsilon from the state before."""


class Block(NamedTuple):
    """The columns of one arc (or state) of every pattern that is long enough to have it.

    Column `origin + p` belongs to pattern `p`, for `first_pattern <= p < K`.
    """

    start: int
    first_pattern: int
    size: int

    @property
    def origin(self) -> int:
        """The column that pattern 0 has, or would have."""
        return self.start - self.first_pattern

    @property
    def columns(self) -> slice:
        """The block's columns."""
        return slice(self.start, self.start + self.size)


def _blocks(first_patterns: Iterable[int], num_patterns: int) -> tuple[Block, ...]:
    blocks, start = [], 0
    for first in first_patterns:
        blocks.append(Block(start, first, num_patterns - first))
        start += num_patterns - first
    return tuple(blocks)


@dataclass(frozen=True)
class Layout:
    """The shape of K patterns (paper, section 3.1): ragged, never padded to the longest.

    Patterns are sorted by length, so the patterns that have arc `i` are always the last ones, and
    the scores of one arc lie side by side. Along `R` come the main-path arcs 0, 1, ..., then the
    self-loops by state; along `Q` the epsilon arcs 0, 1, ...; along `S` the states 0, 1, ....

    Arguments:
        lengths: number of states of each pattern, ascending, each at least 2.
        self_loops: whether states have self-loops.
        epsilons: whether there are epsilon arcs.
        boundary_loops: whether START and END have self-loops too.
        final_epsilon: whether an epsilon may be taken after the last token of a match.
        empty_matches: whether a match may consume no token (Eq. 7-8 read literally).
    """

    lengths: tuple[int, ...]
    self_loops: bool = True
    epsilons: bool = True
    boundary_loops: bool = False
    final_epsilon: bool = True
    empty_matches: bool = False

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 2:
            raise ValueError(f"a pattern needs at least 2 states (START and END): {self.lengths}")
        if list(self.lengths) != sorted(self.lengths):
            raise ValueError(f"pattern lengths must ascend: {self.lengths}")

    @property
    def num_patterns(self) -> int:
        """K."""
        return len(self.lengths)

    @cached_property
    def options(self) -> tuple[bool, ...]:
        """The arguments after `lengths`."""
        return tuple(getattr(self, each.name) for each in fields(self)[1:])

    @property
    def max_length(self) -> int:
        """States of the longest pattern."""
        return self.lengths[-1]

    def first_pattern(self, length: int) -> int:
        """The first pattern with at least `length` states (K where there is none)."""
        return bisect_left(self.lengths, length)

    @cached_property
    def main_path(self) -> tuple[Block, ...]:
        """Columns of R: block `i` is the main-path arc from state i to i + 1."""
        arcs = range(self.max_length - 1)
        return _blocks((self.first_pattern(i + 2) for i in arcs), self.num_patterns)

    @cached_property
    def loops(self) -> tuple[Block | None, ...]:
        """Columns of R: block `i` is the self-loop of state i, None where no pattern has one."""
        if not self.self_loops:
            return (None,) * self.max_length
        if self.boundary_loops:
            firsts = [self.first_pattern(i + 1) for i in range(self.max_length)]
        else:
            firsts = [self.first_pattern(i + 2) for i in range(1, self.max_length - 1)]
        begin = sum(block.size for block in self.main_path)
        blocks = [b._replace(start=begin + b.start) for b in _blocks(firsts, self.num_patterns)]
        return tuple(blocks) if self.boundary_loops else (None, *blocks, None)

    @cached_property
    def epsilon_arcs(self) -> tuple[Block, ...]:
        """Columns of Q: block `i` is the epsilon arc from state i to i + 1; empty without."""
        return self.main_path if self.epsilons else ()

    @cached_property
    def states(self) -> tuple[Block, ...]:
        """Columns of S: block `i` is state i."""
        indices = range(self.max_length)
        return _blocks((self.first_pattern(i + 1) for i in indices), self.num_patterns)

    @cached_property
    def num_scores(self) -> int:
        """R: arcs that consume a token."""
        return sum(block.size for block in (*self.main_path, *self.loops) if block)

    @cached_property
    def patterns_of_scores(self) -> list[int]:
        """Which pattern each of the R scores belongs to."""
        blocks = [block for block in (*self.main_path, *self.loops) if block]
        return [each for b in blocks for each in range(b.first_pattern, self.num_patterns)]

    @cached_property
    def num_epsilons(self) -> int:
        """Q: epsilon arcs."""
        return sum(block.size for block in self.epsilon_arcs)

    @cached_property
    def num_states(self) -> int:
        """S: states of all patterns."""
        return sum(self.lengths)


class Arcs(NamedTuple):
    """Packed documents with the scores of their arcs, as the semiring holds them.

    There is no padding, and equal tokens may share a row. A semiring that holds logarithms gets
    logarithms; half precision is computed in float32.
    """

    scores: Tensor
    """Arc scores of N token rows, `[N, R]`."""
    index: Tensor  # type: ignore[assignment]  # tuple has a method of that name
    """Which row each of the M tokens of the batch is, `[M]`."""
    offsets: Tensor
    """Where each of the B documents starts in `index`, and where the last one ends, `[B + 1]`."""
    epsilon: Tensor
    """Epsilon scores, `[Q]`."""


class BestMatches(NamedTuple):
    """Where and how the best match of each pattern in each document runs: see `spell_out`."""

    scores: Tensor
    """Document scores `[B, K]`; the semiring's zero where there is no match."""
    ends: Tensor
    """Tokens up to the match's end, int32 `[B, K]`; 0: it is empty; -1: there is no match."""
    final: Tensor
    """Whether the match ends with an epsilon, uint8 `[B, K]`."""
    steps: Tensor
    """How each state was reached at each token, uint8 `[M, S]`: `SELF_LOOP`, `EPSILON`."""

    @classmethod
    def unfilled(cls, layout: Layout, arcs: Arcs, keep_paths: bool) -> BestMatches:
        """Tensors of these shapes; those of paths hold nothing unless `keep_paths`."""
        import torch

        best = (arcs.offsets.shape[0] - 1, layout.num_patterns)
        steps = (arcs.index.shape[0], layout.num_states)
        shapes = (best, best, steps) if keep_paths else ((0,),) * 3
        types = (torch.int32, torch.uint8, torch.uint8)
        paths = (
            arcs.index.new_empty(shape, dtype=dtype)
            for shape, dtype in zip(shapes, types, strict=True)
        )
        return cls(arcs.scores.new_empty(best), *paths)


class EndScores(NamedTuple):
    """What the matches that end at each token score, and how the best of them runs."""

    scores: Tensor
    """`[M, K]`; the semiring's zero where none ends."""
    final: Tensor
    """Whether the best of them ends with an epsilon, uint8 `[M, K]`."""
    steps: Tensor
    """How each state was reached at each token, uint8 `[M, S]`: `SELF_LOOP`, `EPSILON`."""

    @classmethod
    def unfilled(cls, layout: Layout, arcs: Arcs) -> EndScores:
        """Tensors of these shapes."""
        import torch

        ends, steps = ((arcs.index.shape[0], n) for n in (layout.num_patterns, layout.num_states))
        new = arcs.index.new_empty
        return cls(
            arcs.scores.new_empty(ends), new(ends, dtype=torch.uint8), new(steps, dtype=torch.uint8)
        )


def patterns_of_rules(rules: Sequence[int | None]) -> dict[int, list[int]]:
    """The patterns of each rule, by the number of the rule that each is of; None: it is free."""
    found: dict[int, list[int]] = {}
    for pattern, rule in enumerate(rules):
        if rule is not None:
            found.setdefault(rule, []).append(pattern)
    return found


class Spans(NamedTuple):
    """What matches of patterns in documents score, and which tokens they consume.

    Tokens are counted over all documents; of pairs of a document and a pattern, one has its matches
    behind those of the pair before, by their ends.
    """

    pairs: NDArray[np.int64]
    """Whose match each is, `[n]`."""
    scores: NDArray[np.floating]
    """As the semiring holds them, `[n]`."""
    firsts: NDArray[np.int64]
    """The first token, `[n]`; of an empty match its end."""
    ends: NDArray[np.int64]
    """The token after the last, `[n]`."""
