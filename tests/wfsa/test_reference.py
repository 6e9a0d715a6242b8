"""The recurrence against the enumeration of every path, in every semiring and option."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sopa_plugin.wfsa import (
    Arc,
    Arcs,
    Layout,
    Semiring,
    best_matches,
    document_scores,
    end_scores,
    k_best_matches,
    span_scores,
    spell_out,
)
from sopa_plugin.wfsa.paths import Asteration


@dataclass
class Case:
    """Packed documents with arc scores."""

    layout: Layout
    arcs: Arcs

    @property
    def leaves(self) -> tuple[Tensor, Tensor]:
        """What has gradients."""
        return self.arcs.scores.requires_grad_(), self.arcs.epsilon.requires_grad_()

    def tokens(self, document: int) -> list[Tensor]:
        """Arc scores of each token of a document."""
        start, stop = self.arcs.offsets[document], self.arcs.offsets[document + 1]
        return list(self.arcs.scores[self.arcs.index[start:stop]])


OPTIONS = [
    {
        "self_loops": loops,
        "epsilons": epsilons,
        "boundary_loops": boundary,
        "final_epsilon": final,
        "empty_matches": empty,
    }
    for loops, boundary in ((False, False), (True, False), (True, True))
    for epsilons in (False, True)
    for final in (False, True)
    for empty in ((False, True) if epsilons and final else (False,))
]


every_option = pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda each: "-".join(filter(each.get, each))
)


@st.composite
def layouts(draw: st.DrawFn, options: dict[str, bool] | None = None) -> Layout:
    lengths = draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    return Layout(tuple(sorted(lengths)), **(options or draw(st.sampled_from(OPTIONS))))


@st.composite
def cases(draw: st.DrawFn, values: str, options: dict[str, bool] | None = None) -> Case:
    """Scores are `normal`, `positive`, `truth` (0 or 1) or `small_integers` (which tie often)."""
    layout = draw(layouts(options))
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=2))
    rows = draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def make(*shape: int) -> Tensor:
        if values == "small_integers":
            return torch.randint(-1, 2, shape, generator=generator).double()
        if values == "truth":
            return (torch.rand(shape, generator=generator) < 0.6).double()
        normal = torch.randn(shape, generator=generator, dtype=torch.float64)
        return normal.exp() if values == "positive" else normal

    arcs = Arcs(
        make(rows, layout.num_scores),
        torch.randint(0, rows, (sum(lengths),), generator=generator),
        torch.tensor([0, *itertools.accumulate(lengths)]),
        make(layout.num_epsilons),
    )
    return Case(layout, arcs)


# An arc's kind, state and token.
Place = tuple[str, int, int | None]
Path = list[tuple[Place, Tensor]]


def arc_score(case: Case, tokens: list[Tensor], pattern: int, arc: Place) -> Tensor | None:
    """The score of an arc; None where the pattern has none."""
    layout, (kind, state, token) = case.layout, arc
    if kind == "self_loop":
        block = layout.loops[state]
        boundary = state in (0, layout.lengths[pattern] - 1)
        if block is None or (boundary and not layout.boundary_loops):
            return None
    elif kind == "main_path":
        block = layout.main_path[state]
    elif layout.epsilons:
        block = layout.epsilon_arcs[state]
        return case.arcs.epsilon[block.start + pattern - block.first_pattern]
    else:
        return None
    assert token is not None
    return tokens[token][block.start + pattern - block.first_pattern]


def span_paths(
    case: Case, tokens: list[Tensor], pattern: int, start: int, end: int, full: bool = False
) -> Iterator[Path]:
    """Every path of a pattern through tokens `start` to `end - 1`, with its arcs' scores.

    `full`: any number of epsilons between two tokens, else one.
    """
    goal = case.layout.lengths[pattern] - 1

    def go_on(state: int, token: int, epsilons: int, path: Path) -> Iterator[Path]:
        if state == goal and token == end:
            yield path
        options = []
        may_end = token < end or case.layout.final_epsilon
        if state < goal and may_end and (full or epsilons == 0):
            options.append((("epsilon", state, None), state + 1, token, epsilons + 1))
        if token < end:
            options.append((("self_loop", state, token), state, token + 1, 0))
            if state < goal:
                options.append((("main_path", state, token), state + 1, token + 1, 0))
        for arc, *after in options:
            score = arc_score(case, tokens, pattern, arc)
            if score is not None:
                yield from go_on(*after, [*path, (arc, score)])

    yield from go_on(0, start, 0, [])


def document_paths(case: Case, document: int, pattern: int) -> Iterator[tuple[int, int, Path]]:
    """Every `(start, end, path)` of every span of a document that may match."""
    tokens = case.tokens(document)
    for end in range(len(tokens) + 1):
        for start in range(end + 1):
            if start < end or case.layout.empty_matches:
                for path in span_paths(case, tokens, pattern, start, end):
                    yield start, end, path


def enumerate_scores(case: Case, value: Callable[[list[Path]], Tensor]) -> Tensor:
    """`[B, K]` of `value(all paths)` for each document and pattern."""
    batch, patterns = len(case.arcs.offsets) - 1, case.layout.num_patterns
    rows = [
        torch.stack(
            [value([path for *_, path in document_paths(case, b, p)]) for p in range(patterns)]
        )
        for b in range(batch)
    ]
    return torch.stack(rows) if rows else torch.zeros(0, patterns, dtype=torch.float64)


INFINITY = torch.tensor(float("inf"), dtype=torch.float64)


def path_value(semiring: str, path: Path) -> Tensor:
    """A path's score, by the definition of the semiring."""
    scores = [score for _, score in path]
    if semiring in ("max_product", "max_sum", "log"):
        return torch.stack(scores).sum()
    return torch.stack(scores).prod()


def paths_value(semiring: str, paths: list[Path]) -> Tensor:
    """What all paths score together, by the definition of the semiring."""
    values = [path_value(semiring, path) for path in paths]
    if semiring in ("max_product", "max_sum"):
        return torch.stack(values).max() if values else -INFINITY
    if semiring == "log":
        return torch.stack(values).logsumexp(0) if values else -INFINITY
    if semiring == "boolean":
        return torch.stack(values).max() if values else 0 * INFINITY.sign()
    return torch.stack(values).sum() if values else 0 * INFINITY.sign()


SCORES = {
    "max_product": "normal",
    "max_sum": "normal",
    "sum_product": "positive",
    "log": "normal",
    "boolean": "truth",
}


@every_option
@pytest.mark.parametrize("semiring", SCORES)
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_values_and_gradients_equal_enumeration(
    semiring: str, options: dict[str, bool], data: st.DataObject
) -> None:
    case = data.draw(cases(SCORES[semiring], options))
    leaves = case.leaves
    scores = document_scores(case.layout, semiring, case.arcs)
    expected = enumerate_scores(case, lambda paths: paths_value(semiring, paths))
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)
    matched = expected.isfinite()
    if semiring == "boolean" or not matched.any():
        return
    weights = torch.linspace(-1, 2, int(matched.sum()), dtype=torch.float64)
    wanted = torch.autograd.grad(
        (expected[matched] * weights).sum() + 0 * case.arcs.scores.sum(),
        leaves,
        allow_unused=True,
        materialize_grads=True,
    )
    found = torch.autograd.grad((scores[matched] * weights).sum(), leaves)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(case=cases("positive"))
def test_sum_product_is_the_sum_over_spans(case: Case) -> None:
    """The expected count of section 3.2, from span scores alone; `log` gives its logarithm."""
    batch, k = len(case.arcs.offsets) - 1, case.layout.num_patterns
    expected = torch.zeros(batch, k, dtype=torch.float64)
    for document in range(batch):
        first, last = case.arcs.offsets[document : document + 2].tolist()
        shortest = 0 if case.layout.empty_matches else 1
        spans = [
            case.arcs.index[i:j]
            for i in range(first, last + 1)
            for j in range(i + shortest, last + 1)
        ]
        if not spans:
            continue
        offsets = torch.tensor([0, *itertools.accumulate(len(span) for span in spans)])
        arcs = case.arcs._replace(index=torch.cat(spans), offsets=offsets)
        expected[document] = span_scores(case.layout, "sum_product", arcs).sum(dim=0)
    counts = document_scores(case.layout, "sum_product", case.arcs)
    torch.testing.assert_close(counts, expected, rtol=1e-9, atol=1e-9)
    arcs = case.arcs._replace(scores=case.arcs.scores.log(), epsilon=case.arcs.epsilon.log())
    logs = document_scores(case.layout, "log", arcs)
    torch.testing.assert_close(logs, expected.log(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("asteration", ["first_order", "full"])
@pytest.mark.parametrize("semiring", SCORES)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_span_scores_equal_enumeration(
    semiring: str, asteration: Asteration, data: st.DataObject
) -> None:
    """Equations 1 (no epsilons) and 2."""
    case = data.draw(cases(SCORES[semiring]))
    scores = span_scores(case.layout, semiring, case.arcs, asteration)
    for b, p in itertools.product(range(len(scores)), range(case.layout.num_patterns)):
        tokens = case.tokens(b)
        paths = list(span_paths(case, tokens, p, 0, len(tokens), full=asteration == "full"))
        if paths and not paths[0]:
            continue
        expected = paths_value(semiring, paths)
        torch.testing.assert_close(scores[b, p], expected, rtol=1e-9, atol=1e-9)


def test_full_asteration_takes_epsilons_in_a_row() -> None:
    """One token, three states: main path then two epsilons needs A*, not I + A."""
    layout = Layout((4,), self_loops=False)
    scores = torch.tensor([[2.0, 3.0, 5.0]])
    epsilon = torch.tensor([7.0, 11.0, 13.0])
    arcs = Arcs(scores, torch.tensor([0]), torch.tensor([0, 1]), epsilon)
    first = span_scores(layout, "sum_product", arcs)
    full = span_scores(layout, "sum_product", arcs, "full")
    with pytest.raises(ValueError, match="expected one of first_order, full; found 'first-order'"):
        span_scores(layout, "sum_product", arcs, "first-order")
    assert first.item() == 7 * 3 * 13
    assert full.item() == 2 * 11 * 13 + 7 * 3 * 13 + 7 * 11 * 5


def preference(path: Path, end: int) -> list[int]:
    """The order in which the design prefers equal paths, read backwards from the match's end.

    At each turn: no epsilon before an epsilon, then the main path before a self-loop, and a fresh
    start before any arc.
    """
    keys: list[int] = []
    arcs = [arc for arc, _ in reversed(path)]
    while True:
        epsilon = bool(arcs) and arcs[0][0] == "epsilon"
        keys.append(int(epsilon))
        arcs = arcs[epsilon:]
        if not arcs:
            return [*keys, 0]
        keys.append(1 if arcs[0][0] == "main_path" else 2)
        arcs = arcs[1:]


@every_option
@pytest.mark.parametrize("values", ["small_integers", "normal"])
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_best_matches_and_gradients_follow_the_preferred_path(
    values: str, options: dict[str, bool], data: st.DataObject
) -> None:
    """Ties: the earliest end, then the path that the design prefers; gradients follow it alone."""
    case = data.draw(cases(values, options))
    leaves = case.leaves
    matches = best_matches(case.layout, "max_sum", case.arcs)
    spelt = spell_out(case.layout, case.arcs, matches)
    found = document_scores(case.layout, "max_sum", case.arcs)
    for b, p in itertools.product(range(len(found)), range(case.layout.num_patterns)):
        candidates = list(document_paths(case, b, p))
        match = spelt[b][p]
        if not candidates:
            assert match is None
            assert found[b, p] == -INFINITY
            continue
        start, end, path = min(
            candidates,
            key=lambda each: (
                -round(path_value("max_sum", each[2]).item(), 9),
                each[1],
                preference(each[2], each[1]),
            ),
        )
        assert match is not None
        assert (match.start, match.end) == (start, end)
        assert list(match.arcs) == [(*arc, score.item()) for arc, score in path]
        assert match.score == pytest.approx(path_value("max_sum", path).item())
        chosen = torch.autograd.grad(
            path_value("max_sum", path), leaves, allow_unused=True, materialize_grads=True
        )
        ours = torch.autograd.grad(found[b, p], leaves, retain_graph=True)
        assert all(torch.equal(x, y) for x, y in zip(ours, chosen, strict=True))


def test_a_match_may_loop_at_start_and_end_with_an_epsilon() -> None:
    """A two-state pattern consumes a word so, although the loop loses to a fresh start."""
    layout = Layout((2,), boundary_loops=True)
    scores = torch.tensor([[-9.0, -1.0, -2.0]])  # main path, START loop, END loop
    arcs = Arcs(scores, torch.tensor([0]), torch.tensor([0, 1]), torch.tensor([3.0]))
    ((match,),) = spell_out(layout, arcs, best_matches(layout, "max_sum", arcs))
    assert match is not None
    assert (match.score, match.start, match.end) == (2.0, 0, 1)
    assert match.arcs == (Arc("self_loop", 0, 0, -1.0), Arc("epsilon", 0, None, 3.0))


@every_option
@settings(deadline=None, max_examples=10)
@given(data=st.data(), k=st.integers(1, 6))
def test_k_best_matches_are_the_best_paths_of_the_best_ends(
    options: dict[str, bool], data: st.DataObject, k: int
) -> None:
    case = data.draw(cases("small_integers", options))
    ranked = k_best_matches(case.layout, "max_sum", case.arcs, k)
    by_end = end_scores(case.layout, "max_sum", case.arcs).scores
    assert len(ranked) == len(case.arcs.offsets) - 1
    for b, p in itertools.product(range(len(ranked)), range(case.layout.num_patterns)):
        best: dict[int, tuple[float, list[int], int, list[tuple[Any, ...]]]] = {}
        for start, end, path in document_paths(case, b, p):
            score = path_value("max_sum", path).item()
            arcs = [(*arc, value.item()) for arc, value in path]
            key = (-score, preference(path, end), start, arcs)
            best[end] = min(best.get(end, key), key)
        expected = sorted((key[0], end, key) for end, key in best.items())[:k]
        found = ranked[b][p]
        assert [(match.score, match.end) for match in found] == [
            (-minus, end) for minus, end, _ in expected
        ]
        assert [(match.start, list(match.arcs)) for match in found] == [
            key[2:] for *_, key in expected
        ]
        for end, key in best.items():
            if end > 0:
                assert by_end[case.arcs.offsets[b] + end - 1, p] == -key[0]


def test_sums_have_no_best_match() -> None:
    layout = Layout((2,))
    arcs = Arcs(torch.ones(1, 1), torch.tensor([0]), torch.tensor([0, 1]), torch.ones(1))
    for function in (best_matches, lambda *rest: k_best_matches(*rest, 1)):
        with pytest.raises(ValueError, match="no best match"):
            function(layout, "log", arcs)


def test_a_semiring_of_ones_own_counts_matches() -> None:
    """How many ways a document matches, for arcs that are there (1) or not (0)."""

    @Semiring.register("counting", exist_ok=True)
    class Counting(Semiring):
        zero, one = 0.0, 1.0
        accepts = frozenset({"truth"})
        reason = "it counts paths"
        default_encoding = "positive"

        def plus(self, first: Tensor, second: Tensor) -> Tensor:
            return first + second

        def times(self, first: Tensor, second: Tensor) -> Tensor:
            return first * second

    @settings(deadline=None, max_examples=40)
    @given(case=cases("truth"))
    def check(case: Case) -> None:
        counts = document_scores(case.layout, "counting", case.arcs)
        expected = enumerate_scores(
            case,
            lambda paths: torch.tensor(
                float(sum(all(score == 1 for _, score in path) for path in paths)),
                dtype=torch.float64,
            ),
        )
        assert torch.equal(counts, expected)

    check()
