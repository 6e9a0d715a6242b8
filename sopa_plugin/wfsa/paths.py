"""Best paths spelt out: which arc consumed which token, and where an epsilon was taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sopa_plugin.wfsa import reference
from sopa_plugin.wfsa.dispatch import MAX_SEMIRINGS, choose_kernel
from sopa_plugin.wfsa.layout import (
    EPSILON,
    SELF_LOOP,
    Arcs,
    BestMatches,
    EndScores,
    Layout,
    Spans,
)
from sopa_plugin.wfsa.operator import checked, end_scores, require_best
from sopa_plugin.wfsa.semirings import Semiring

ArcKind = Literal["main_path", "self_loop", "epsilon"]
Integers = NDArray[np.int64]


class Arc(NamedTuple):
    """An arc that a path takes, and the token of the document that it consumes."""

    kind: ArcKind
    state: int  # where it starts; it ends there (self-loop) or at the next state
    token: int | None  # position in the document, from 0; None for an epsilon
    score: float


@dataclass(frozen=True)
class Path:
    """The best path of a pattern to one end: it consumes tokens `start` to `end - 1`.

    Scores are the semiring's values, logarithms in max-product.
    """

    pattern: int
    score: float
    start: int
    end: int
    arcs: tuple[Arc, ...]


class Ends(NamedTuple):
    """Where n paths end; tokens are counted over all documents."""

    patterns: Integers  # [n]
    firsts: Integers  # [n]; the first token of the document
    ends: Integers  # [n]; the token after the path's last
    final: NDArray[np.bool_]  # [n]; whether the last arc is an epsilon
    scores: NDArray[Any]  # [n]

    @classmethod
    def at(cls, found: EndScores, offsets: Tensor, tokens: Integers, patterns: Integers) -> Ends:
        """The paths of `patterns [n]` whose last tokens are `tokens [n]`."""
        bounds = offsets.cpu().numpy()
        firsts = bounds[np.searchsorted(bounds, tokens, side="right") - 1]
        final, scores = (
            each.cpu().numpy()[tokens, patterns] for each in (found.final, found.scores)
        )
        return cls(patterns, firsts, tokens + 1, final > 0, scores)

    @classmethod
    def of_best(
        cls, found: BestMatches, offsets: Tensor, documents: Integers, patterns: Integers
    ) -> Ends:
        """The best paths of `patterns [n]` in `documents [n]`, where these match."""
        scores, ends, final = (each.cpu().numpy()[documents, patterns] for each in found[:3])
        firsts = offsets.cpu().numpy()[documents]
        return cls(patterns, firsts, firsts + ends, final > 0, scores)


class Taken(NamedTuple):
    """Arcs that n paths take; of the same path, the later before the earlier."""

    paths: Integers  # [some]; which paths
    states: Integers  # [some]; where the arcs start
    tokens: Integers  # [some]; what they consume, counted over all documents; -1 of an epsilon
    looped: NDArray[np.bool_]  # [some]; whether they are self-loops


def _walk_back(layout: Layout, steps: NDArray[np.uint8], ends: Ends) -> Iterator[Taken]:
    """Follows all paths back at the same time: from each what it took last, then what before it."""
    patterns, firsts, tokens, final, _ = ends
    origins = np.array([block.origin for block in layout.states])
    states = np.array(layout.lengths)[patterns] - 1 - final
    paths, tokens = np.arange(len(patterns)), tokens - 1

    def epsilons(taken: NDArray[np.bool_]) -> Taken:
        none = np.full(taken.sum(), -1)
        return Taken(paths[taken], states[taken], none, none >= 0)

    yield epsilons(final)
    # A path that has consumed nothing when it reaches START has begun there, unless an epsilon
    # leads from START to END at its end: then it must have looped at START, if it may not be empty.
    must_loop = final & (states == 0) & (not layout.empty_matches)
    while len(paths) and len(steps):
        looped = must_loop | (steps[tokens, origins[states] + patterns] & SELF_LOOP > 0)
        goes_on = (tokens >= firsts) & (looped | (states > 0))
        paths, patterns, firsts, tokens, states, looped = (
            each[goes_on] for each in (paths, patterns, firsts, tokens, states, looped)
        )
        states = states - ~looped
        yield Taken(paths, states, tokens, looped)
        by_epsilon = steps[tokens, origins[states] + patterns] & EPSILON > 0
        states, tokens, must_loop = states - by_epsilon, tokens - 1, np.zeros_like(by_epsilon)
        yield epsilons(by_epsilon)


def first_tokens(layout: Layout, steps: NDArray[np.uint8], ends: Ends) -> Integers:
    """The first token of each path, counted over all documents, `[n]`; its end, where it is empty.

    Arguments:
        layout: the patterns.
        steps: how each state was reached at each token, `[M, S]`: `EndScores.steps`.
        ends: the paths' ends.
    """
    found = ends.ends.copy()
    for taken in _walk_back(layout, steps, ends):
        consumed = taken.tokens >= 0
        found[taken.paths[consumed]] = taken.tokens[consumed]
    return found


def arcs_taken(layout: Layout, steps: NDArray[np.uint8], ends: Ends) -> Taken:
    """All arcs that the paths take; arguments as for `first_tokens`."""
    found = _walk_back(layout, steps, ends)
    return Taken(*(np.concatenate(each) for each in zip(*found, strict=True)))


def scores_of_arcs(layout: Layout, arcs: Arcs, taken: Taken, patterns: Integers) -> Tensor:
    """What `arcs` score the arcs that paths of `patterns [n]` take, as the semiring holds it."""
    main, loops = (
        np.array([block.origin if block else 0 for block in (*blocks, None)])
        for blocks in (layout.main_path, layout.loops)
    )
    by_loop = np.where(taken.looped, loops[taken.states], main[taken.states])
    columns, tokens = (
        torch.from_numpy(each).to(arcs.index.device)
        for each in (by_loop + patterns[taken.paths], taken.tokens)
    )
    by_token = tokens >= 0
    values = arcs.scores.new_empty(len(tokens))
    values[by_token] = arcs.scores[arcs.index[tokens[by_token]], columns[by_token]].detach()
    values[~by_token] = arcs.epsilon[columns[~by_token]].detach()
    return values


def trace(layout: Layout, arcs: Arcs, steps: NDArray[np.uint8], ends: Ends) -> list[Path]:
    """The paths that end there; `arcs` as for `document_scores`, the rest as for `first_tokens`."""
    taken = arcs_taken(layout, steps, ends)
    values = scores_of_arcs(layout, arcs, taken, ends.patterns)
    spelt: list[list[Arc]] = [[] for _ in ends.patterns]
    for path, state, token, looped, value in zip(
        *(each.tolist() for each in taken), values.tolist(), strict=True
    ):
        kind: ArcKind = "self_loop" if looped else "main_path" if token >= 0 else "epsilon"
        position = None if token < 0 else token - int(ends.firsts[path])
        spelt[path].append(Arc(kind, state, position, value))
    given = ends.patterns, ends.scores, ends.ends - ends.firsts
    found = []
    for pattern, score, end, path in zip(*(each.tolist() for each in given), spelt, strict=True):
        consumed = sum(arc.token is not None for arc in path)
        found.append(Path(pattern, score, end - consumed, end, tuple(reversed(path))))
    return found


def next_scores(
    layout: Layout, semiring: str, arcs: Arcs, documents: Integers, patterns: Integers
) -> Tensor | None:
    """Scores `[n]` of the next best matches of `patterns [n]` in `documents [n]`.

    A next best match is the best of those that consume no token of the best one; its score is the
    semiring's zero where there is none. None instead of all these where no kernel finds them: on
    the CPU one does, in max semirings. Other arguments as for `document_scores`; no gradient.

    Raises:
        ValueError: as `document_scores`.
    """
    arcs = checked(layout, arcs)
    kernel = _by_pairs(semiring, arcs)
    return None if kernel is None else kernel.next_scores(layout, arcs, documents, patterns)


def spans_above(
    layout: Layout,
    semiring: str,
    arcs: Arcs,
    documents: Integers,
    patterns: Integers,
    floors: NDArray[np.float64],
) -> Spans:
    """The matches of `patterns [n]` in `documents [n]` that score `floors [n]` at least.

    A match is the best path that ends at one token; an empty one is left out. Other arguments as
    for `best_matches`. No gradient.

    Raises:
        ValueError: as `best_matches`.
    """
    require_best(semiring)
    arcs = checked(layout, arcs)
    kernel = _by_pairs(semiring, arcs)
    if kernel is not None:
        return Spans(*kernel.spans_above(layout, arcs, documents, patterns, floors))
    chosen, rows = np.unique(documents, return_inverse=True)
    lengths = np.diff(arcs.offsets.cpu().numpy())[chosen]
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    # shape: [tokens]; which token of all each of the chosen documents' is
    places = np.arange(bounds[-1]) + np.repeat(
        arcs.offsets.cpu().numpy()[chosen] - bounds[:-1], lengths
    )
    index = arcs.index[torch.from_numpy(places).to(arcs.index.device)]
    arcs = arcs._replace(index=index, offsets=torch.from_numpy(bounds).to(index.device))
    # shape: [chosen, K]
    least, numbers = np.full((2, len(chosen), layout.num_patterns), np.inf)
    least[rows, patterns], numbers[rows, patterns] = floors, np.arange(len(rows))
    found, owners = end_scores(layout, semiring, arcs), np.repeat(np.arange(len(chosen)), lengths)
    scores = found.scores.cpu().numpy()
    enough = (scores >= least[owners]) & (scores != Semiring.named(semiring).zero)
    tokens, which = np.nonzero(enough)
    pairs = numbers[owners[tokens], which].astype(np.int64)
    order = np.argsort(pairs, kind="stable")
    tokens, which, pairs = tokens[order], which[order], pairs[order]
    ends = Ends.at(found, arcs.offsets, tokens, which)
    firsts, shift = first_tokens(layout, found.steps.cpu().numpy(), ends), places[tokens] - tokens
    return Spans(pairs, ends.scores, firsts + shift, ends.ends + shift)


def _by_pairs(semiring: str, arcs: Arcs) -> Any:
    """The kernel that takes pairs of a document and a pattern one by one, if there is one."""
    kernel = choose_kernel(semiring, arcs.scores.device, arcs.scores.dtype)
    return kernel if semiring in MAX_SEMIRINGS and hasattr(kernel, "spans_above") else None


def spell_out(layout: Layout, arcs: Arcs, matches: BestMatches) -> list[list[Path | None]]:
    """The best match of each pattern in each document, `[B][K]`; None where there is none.

    Arguments as `best_matches` takes and returns them.
    """
    documents, patterns = np.nonzero(matches.ends.cpu().numpy() >= 0)
    found = Ends.of_best(matches, arcs.offsets, documents, patterns)
    paths = trace(layout, arcs, matches.steps.cpu().numpy(), found)
    spelt: list[list[Path | None]] = [[None] * layout.num_patterns for _ in matches.ends]
    for document, path in zip(documents.tolist(), paths, strict=True):
        spelt[document][path.pattern] = path
    return spelt


def k_best_matches(layout: Layout, semiring: str, arcs: Arcs, k: int) -> list[list[list[Path]]]:
    """The `k` best matches of each pattern in each document, best first, `[B][K][at most k]`.

    A match is the best path of one end position, so no two end at the same token; of equal ones the
    earlier comes first. Arguments as for `document_scores`.

    Raises:
        ValueError: as `document_scores`; or the semiring sums over paths, so that none is best.
    """
    require_best(semiring)
    arcs, algebra = checked(layout, arcs), Semiring.named(semiring)
    found = end_scores(layout, semiring, arcs)
    with torch.no_grad():
        recurrence = reference.Recurrence(layout, algebra, arcs.epsilon)
        empty = recurrence.read(recurrence.start(1))[0]
    if not layout.empty_matches:
        empty = torch.full_like(empty, algebra.zero)
    # Row 0 of each document is the match that ends before its first token: an epsilon, if any.
    scores = torch.cat([empty, found.scores]).cpu().numpy()
    final = torch.cat([torch.ones_like(empty, dtype=torch.uint8), found.final]).cpu().numpy()
    steps = found.steps.cpu().numpy()
    matches: list[list[list[Path]]] = []
    for start, stop in pairwise(arcs.offsets.tolist()):
        rows = np.array([0, *range(start + 1, stop + 1)])
        ranked = np.argsort(-scores[rows], axis=0, kind="stable")[:k].T
        best = np.take_along_axis(scores[rows].T, ranked, axis=1)
        patterns, _ = places = np.nonzero(best != algebra.zero)
        ends = ranked[places]
        by_epsilon = final[rows[ends], patterns] > 0
        paths = Ends(patterns, np.full_like(ends, start), start + ends, by_epsilon, best[places])
        matches.append([[] for _ in range(layout.num_patterns)])
        for path in trace(layout, arcs, steps, paths):
            matches[-1][path.pattern].append(path)
    return matches


Asteration = Literal["first_order", "full"]


class ExactRecurrence(reference.Recurrence):
    """The recurrence of one exact match: it starts before the first token and nowhere else.

    Arguments:
        layout, semiring, epsilon: as for `Recurrence`.
        asteration: T(ε)* in Eq. 2: `first_order`, I + T(ε), takes at most one epsilon between two
            tokens; `full` takes any number.
    """

    def __init__(
        self, layout: Layout, semiring: Semiring, epsilon: Tensor, asteration: Asteration
    ) -> None:
        if asteration not in get_args(Asteration):
            expected = ", ".join(get_args(Asteration))
            raise ValueError(f"asteration: expected one of {expected}; found {asteration!r}")
        super().__init__(layout, semiring, epsilon)
        self.asteration = asteration

    def restart(self, moved: Tensor) -> Tensor:
        """`moved`: no match starts later."""
        return moved

    def take_epsilons(self, state: Tensor) -> Tensor:
        """state·T(ε)*."""
        if self.asteration == "first_order":
            return super().take_epsilons(state)
        states = self.layout.states
        reached = [state[:, states[0].columns]]
        for arc, after in zip(self.layout.epsilon_arcs, states[1:], strict=False):
            before = reached[-1][:, -arc.size :]
            by_epsilon = self.semiring.times(before, self.epsilon[arc.columns])
            reached.append(self.semiring.plus(state[:, after.columns], by_epsilon))
        return torch.cat(reached, dim=1) if self.layout.epsilons else state


def span_scores(
    layout: Layout, semiring: str, arcs: Arcs, asteration: Asteration = "first_order"
) -> Tensor:
    """How well each pattern matches each span, all of it: `[B, K]`, differentiable.

    p_span of the paper's Eq. 2, or of Eq. 1 where the layout has no epsilons; in max semirings the
    best path's score, s_span. Spans are packed like documents; a span of no tokens scores
    π·T(ε)*·η. With a layout whose `final_epsilon` is false, no epsilon follows the last token.

    Arguments:
        layout, semiring, arcs: as for `document_scores`.
        asteration: `first_order` (the paper's experiments and every document score: at most one
            epsilon between two tokens) or `full` (any number).

    Raises:
        ValueError: there is no such `asteration`, or columns are not the layout's.
    """
    arcs = checked(layout, arcs)
    recurrence = ExactRecurrence(layout, Semiring.named(semiring), arcs.epsilon, asteration)
    found = reference.end_scores(recurrence, arcs).scores
    # A span's score is that of the match which ends at its last token.
    empty = recurrence.read(recurrence.start(1))[0]
    places = torch.where(arcs.offsets.diff() > 0, arcs.offsets[1:] - 1, len(found))
    return torch.cat([found, empty])[places]
