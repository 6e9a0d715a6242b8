"""The CPU kernel against the reference recurrence, in threads, in processes and from its cache."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sopa_plugin.wfsa import (
    Arcs,
    Ends,
    Layout,
    Semiring,
    best_matches,
    cpu,
    k_best_matches,
    next_scores,
    reference,
    spans_above,
    spell_out,
    trace,
)
from sopa_plugin.wfsa.kernels.threads import Compiled, ThreadPool

INF = float("inf")
MAX_SUM = Semiring.named("max_sum")


class Case(NamedTuple):
    """Packed documents with arc scores."""

    layout: Layout
    arcs: Arcs


def make_case(
    layout: Layout, documents: list[int], rows: int, seed: int, whole: bool = False, cut: float = 0
) -> Case:
    """Random scores, `whole` numbers so that paths tie, with a share `cut` of them -inf."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, generator=generator)
        drawn = drawn.round() if whole else drawn
        return drawn.masked_fill(torch.rand(*shape, generator=generator) < cut, -INF)

    index = torch.randint(0, rows, (sum(documents),), generator=generator)
    offsets = torch.tensor([0, *documents]).cumsum(0)
    scores, epsilon = numbers(rows, layout.num_scores), numbers(layout.num_epsilons)
    return Case(layout, Arcs(scores, index, offsets, epsilon))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lengths = draw(st.lists(st.integers(2, 7), min_size=1, max_size=19).map(sorted))
    return make_case(
        Layout(tuple(lengths), *(draw(st.booleans()) for _ in range(5))),
        documents=draw(st.lists(st.integers(0, 9), max_size=5)),
        rows=draw(st.integers(1, 6)),
        seed=draw(st.integers(0, 2**31)),
        whole=draw(st.booleans()),
        cut=draw(st.sampled_from([0, 0, 0.2])),
    )


def large_case() -> Case:
    """Enough work for four threads, forward and backward."""
    layout = Layout(tuple(length for length in (2, 3, 4, 5, 6) for _ in range(10)))
    generator = torch.Generator().manual_seed(1)
    documents = torch.randint(0, 40, (340,), generator=generator).tolist()
    case = make_case(layout, documents, rows=500, seed=2, whole=True)
    assert len(case.arcs.index) * layout.num_states > 4 * cpu.LEAST_STATES
    assert len(documents) * layout.num_patterns > 4 * cpu.LEAST_PATHS
    return case


def everything(case: Case) -> list[Tensor]:
    """All that the kernel computes for a case, with gradients that are not round numbers."""
    matches = cpu.forward(case.layout, "max_sum", case.arcs, keep_paths=True)
    grad = torch.linspace(-1, 1, matches.scores.numel()).view_as(matches.scores)
    grads = cpu.backward(case.layout, "max_sum", grad, case.arcs, *matches[1:])
    alone = cpu.forward(case.layout, "max_sum", case.arcs, keep_paths=False).scores
    pairs = np.indices(matches.scores.shape).reshape(2, -1)
    found = cpu.spans_above(*case, *pairs, np.zeros(len(pairs[0])))
    of_pairs = [cpu.next_scores(*case, *pairs), *map(torch.from_numpy, found)]
    return [*matches, *grads, alone, *cpu.end_scores(*case), *of_pairs]


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_scores_and_paths_are_those_of_the_reference(case: Case) -> None:
    layout, arcs = case
    expected = reference.document_scores(layout, MAX_SUM, arcs, keep_paths=True)
    found = cpu.forward(case.layout, "max_sum", case.arcs, keep_paths=True)
    for mine, theirs in zip(found[:3], expected[:3], strict=True):
        assert torch.equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    assert spell_out(layout, arcs, found) == spell_out(layout, arcs, expected)
    alone, *nothing = cpu.forward(case.layout, "max_sum", case.arcs, keep_paths=False)
    assert torch.equal(alone, expected.scores)
    assert [tensor.numel() for tensor in nothing] == [0, 0, 0]


@settings(max_examples=80, deadline=None)
@given(cases())
def test_matches_by_end_are_those_of_the_reference(case: Case) -> None:
    layout, arcs = case
    recurrence = reference.Recurrence(layout, MAX_SUM, arcs.epsilon, trace=True)
    expected = reference.end_scores(recurrence, arcs)
    found = cpu.end_scores(*case)
    for mine, theirs in zip(found[:2], expected[:2], strict=True):
        assert torch.equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    tokens, patterns = np.nonzero(found.scores.numpy() > -INF)
    paths = [
        trace(layout, arcs, each.steps.numpy(), Ends.at(each, arcs.offsets, tokens, patterns))
        for each in (found, expected)
    ]
    assert paths[0] == paths[1]


@settings(max_examples=80, deadline=None)
@given(cases(), st.sampled_from([-INF, -1.0, 0.5]))
def test_spans_of_pairs_are_those_of_the_reference(case: Case, floor: float) -> None:
    layout, arcs = case
    documents, patterns = np.indices((len(arcs.offsets) - 1, layout.num_patterns)).reshape(2, -1)[
        :, ::2
    ]
    given = documents, patterns, np.full(len(documents), floor)
    found = spans_above(layout, "max_sum", arcs, *given)
    expected = [
        (
            n,
            path.score,
            int(arcs.offsets[document]) + path.start,
            int(arcs.offsets[document]) + path.end,
        )
        for ranked in [k_best_matches(layout, "max_sum", arcs, 99)]
        for n, (document, pattern) in enumerate(zip(documents, patterns, strict=True))
        for path in sorted(ranked[document][pattern], key=lambda path: path.end)
        if path.end > 0 and path.score >= floor
    ]
    columns = found.pairs, found.scores, found.firsts, found.ends
    assert list(zip(*(each.tolist() for each in columns), strict=True)) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOPA_KERNEL", "reference")
        for mine, theirs in zip(found, spans_above(layout, "max_sum", arcs, *given), strict=True):
            assert mine.tolist() == theirs.tolist()


@settings(max_examples=80, deadline=None)
@given(cases())
def test_next_scores_are_those_without_the_tokens_of_the_best_match(case: Case) -> None:
    """Of documents in which a token that no arc takes stands for each of these."""
    layout, arcs = case
    paths = spell_out(layout, arcs, best_matches(layout, "max_sum", arcs))
    documents, patterns = np.indices((len(paths), layout.num_patterns)).reshape(2, -1)
    found = next_scores(layout, "max_sum", arcs, documents, patterns)
    assert found is not None
    scores = torch.cat([arcs.scores, torch.full((1, layout.num_scores), -INF)])
    for document, pattern, score in zip(documents, patterns, found, strict=True):
        index, path = arcs.index.clone(), paths[document][pattern]
        if path is not None:
            index[arcs.offsets[document] + path.start : arcs.offsets[document] + path.end] = -1
        index = index % len(scores)
        other = reference.document_scores(layout, MAX_SUM, Arcs(scores, index, *arcs[2:]))
        assert score == other.scores[document, pattern]


@settings(max_examples=80, deadline=None)
@given(cases())
def test_gradients_are_those_of_the_reference(case: Case) -> None:
    layout, arcs = case
    scores, epsilon = (each.clone().requires_grad_() for each in (arcs.scores, arcs.epsilon))
    leaves = arcs._replace(scores=scores, epsilon=epsilon)
    out = reference.document_scores(layout, MAX_SUM, leaves).scores
    # Where nothing matches there is no gradient, whatever comes from above.
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(0))
    total = torch.where(out > -INF, out * grad, 0).sum() + 0 * (scores.nansum() + epsilon.nansum())
    total.backward()
    matches = cpu.forward(case.layout, "max_sum", case.arcs, keep_paths=True)
    found = cpu.backward(layout, "max_sum", grad, arcs, *matches[1:])
    for mine, theirs in zip(found, (scores.grad, epsilon.grad), strict=True):
        expected = torch.zeros_like(mine) if theirs is None else theirs.nan_to_num()
        torch.testing.assert_close(mine, expected)


def test_documents_shorter_than_a_pattern_do_not_match() -> None:
    layout = Layout((2, 5), epsilons=False)
    case = make_case(layout, [2, 0], rows=2, seed=0)
    scores, ends, final, steps = cpu.forward(case.layout, "max_sum", case.arcs, keep_paths=True)
    assert scores[:, 1].tolist() == [-INF, -INF]
    assert scores[1, 0] == -INF
    assert ends.tolist() == [[int(ends[0, 0]), -1], [-1, -1]]
    assert ends[0, 0] > 0
    grad = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    for gradient in cpu.backward(layout, "max_sum", grad, case.arcs, ends, final, steps):
        assert not gradient.any()


def test_inputs_need_not_be_contiguous() -> None:
    case = make_case(Layout((2, 4)), [5, 6], rows=4, seed=0)
    scores, *rows = case.arcs
    arcs = Arcs(scores.T.contiguous().T, *(torch.stack([row, row], dim=1)[:, 0] for row in rows))
    strided = Case(case.layout, arcs)
    for mine, theirs in zip(everything(strided), everything(case), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("row", [-1, 4])
def test_rows_that_do_not_exist_are_refused(row: int) -> None:
    case = make_case(Layout((2, 3)), [3], rows=4, seed=0)
    case.arcs.index[1] = row
    with pytest.raises(IndexError, match="rows 0 to 3"):
        cpu.forward(case.layout, "max_sum", case.arcs, keep_paths=False)


@pytest.mark.parametrize("offsets", [[0, 4], [0, 2, 1], [-1, 3]])
def test_tokens_that_do_not_exist_are_refused(offsets: list[int]) -> None:
    case = make_case(Layout((2, 3)), [3], rows=4, seed=0)
    arcs = case.arcs._replace(offsets=torch.tensor(offsets))
    with pytest.raises(IndexError, match="ascend from 0 to 3"):
        cpu.forward(case.layout, "max_sum", arcs, keep_paths=False)


GUARDED = """
import ctypes, mmap
import numpy as np
from sopa_plugin.wfsa import Arcs, Layout, cpu

area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(area))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), mmap.PAGESIZE, 0) == 0
place = (ctypes.c_float * 6).from_address(start + mmap.PAGESIZE)
scores, found = np.ctypeslib.as_array(place), np.empty((1, 1), np.float32)
scores[:] = range(6)
for loops in False, True:  # one score in a row, and three
    layout = Layout((2,), self_loops=loops, boundary_loops=loops)
    rows = scores.reshape(-1, layout.num_scores)
    arcs = Arcs(rows, np.array([1]), np.array([0, 1]), np.full(1, -np.inf, np.float32))
    cpu.document_scores(layout, "max_sum", arcs, found)
    assert found == rows[1, 0], (found, rows)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="guards a page of memory as Linux does")
def test_nothing_is_read_before_rows_of_few_scores() -> None:
    """Where vectors are wider than rows, in a process that would crash."""
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_results_are_bit_equal_for_every_number_of_threads_and_every_run(
    set_threads: Callable[[int], None],
) -> None:
    case = large_case()
    set_threads(1)
    expected = everything(case)
    for threads in (1, 2, 3, 4, 4):
        set_threads(threads)
        for mine, theirs in zip(everything(case), expected, strict=True):
            assert torch.equal(mine, theirs)


def test_errors_in_other_threads_are_raised(set_threads: Callable[[int], None]) -> None:
    set_threads(4)
    case = large_case()
    case.arcs.index[-1] = len(case.arcs.scores)
    with pytest.raises(IndexError, match="rows 0 to 499"):
        cpu.forward(case.layout, "max_sum", case.arcs, keep_paths=False)


def test_eight_threads_may_call_at_once(set_threads: Callable[[int], None]) -> None:
    set_threads(2)
    case = large_case()
    expected = everything(case)
    with ThreadPoolExecutor(8) as callers:
        for found in callers.map(lambda _: everything(case), range(16)):
            for mine, theirs in zip(found, expected, strict=True):
                assert torch.equal(mine, theirs)


def test_the_pool_grows_while_others_use_it() -> None:
    pool, seen = ThreadPool(), []

    def use(parts: int) -> None:
        pool.run(lambda first, last: seen.append((parts, first)), list(range(parts + 1)))

    with ThreadPoolExecutor(8) as callers:
        list(callers.map(use, range(1, 20)))
    assert sorted(seen) == [(parts, part) for parts in range(1, 20) for part in range(parts)]


def run(script: str, **environment: str) -> str:
    """What a script prints in a Python process of its own."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


SETUP = """
import os, sys, torch
from sopa_plugin.wfsa import Arcs, Layout, cpu
from sopa_plugin.wfsa.kernels import max_plus

torch.manual_seed(0)
layout = Layout(tuple(length for length in (2, 3, 4, 5, 6) for _ in range(10)))
index, offsets = torch.randint(0, 50, (320 * 20,)), torch.arange(321) * 20
scores, epsilon = torch.randn(50, layout.num_scores), torch.randn(layout.num_epsilons)
arcs = Arcs(scores, index, offsets, epsilon)

def compute(_=None):
    return cpu.forward(layout, "max_sum", arcs, False).scores
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    """A parent whose pool is in use; children, made by os.fork and by multiprocessing."""
    script = """
    torch.set_num_threads(3)
    expected = compute()
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(compute(), expected) else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    import multiprocessing
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(all(torch.equal(found, expected) for found in pool.map(compute, range(4))))
    print(torch.equal(compute(), expected))
    """
    assert run(SETUP + textwrap.dedent(script)).split() == ["0", "True", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_gradients_in_a_forked_child_of_a_parent_that_used_torch_threads() -> None:
    script = """
    torch.set_num_threads(4)
    torch.ones(1000, 1000).exp()  # starts torch's own threads, which a child does not have
    index, scores = torch.randint(0, 1000, (320 * 20,)), torch.randn(1000, layout.num_scores)
    arcs = Arcs(scores, index, offsets, epsilon)
    _, *paths = cpu.forward(layout, "max_sum", arcs, True)

    def back():
        return cpu.backward(layout, "max_sum", torch.ones(320, 50), arcs, *paths)[0].numpy()

    expected = back()
    child = os.fork()
    if not child:
        os._exit(0 if (back() == expected).all() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run(SETUP + textwrap.dedent(script)).split() == ["0"]


def test_scores_where_freed_memory_is_overwritten_at_once() -> None:
    """As another thread might; glibc does so when told to, other systems run the plain test."""
    script = """
    from sopa_plugin.wfsa import Semiring, reference
    layout = Layout(tuple(sorted((2, 3, 4, 5) * 4)))
    arcs = Arcs(
        torch.randn(50, layout.num_scores), index, offsets, torch.randn(layout.num_epsilons)
    )
    expected = reference.document_scores(layout, Semiring.named("max_sum"), arcs, keep_paths=True)
    found = cpu.forward(layout, "max_sum", arcs, True)
    print(*(torch.equal(mine, theirs) for mine, theirs in zip(found[:3], expected[:3])))
    print(torch.equal(cpu.forward(layout, "max_sum", arcs, False).scores, expected.scores))
    """
    overwrite = "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0"
    printed = run(SETUP + textwrap.dedent(script), GLIBC_TUNABLES=overwrite)
    assert printed.split() == ["True"] * 4


def test_compiled_code_is_kept_on_disk_and_threads_may_compile_at_once(tmp_path: Path) -> None:
    # Every best match takes the main path and ends at the sixth token.
    script = """
    from concurrent.futures import ThreadPoolExecutor
    ends = torch.full((320, 50), 6, dtype=torch.int32)
    final = torch.zeros(320, 50, dtype=torch.uint8)
    steps = torch.zeros(len(index), layout.num_states, dtype=torch.uint8)
    def back(_):
        return cpu.backward(layout, "max_sum", torch.ones(320, 50), arcs, ends, final, steps)[0]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(back, range(8)))
    assert all(torch.equal(each, found[0]) for each in found)
    assert found[0].sum() == 320 * 10 * (1 + 2 + 3 + 4 + 5)
    statistics = max_plus.walk_back._compiled.stats
    print(sum(statistics.cache_hits.values()), sum(statistics.cache_misses.values()))
    """
    script = SETUP + textwrap.dedent(script)
    cold, warm = (run(script, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert cold.split() == ["0", "1"]
    assert warm.split() == ["1", "0"]


def test_what_cannot_be_kept_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Numba finds no folder for code that comes from no file.
    names: dict[str, Callable[[int], int]] = {}
    exec("def double(number): return 2 * number", names)
    assert Compiled(names["double"])(4) == 8
    # The folder is lost between decorating and compiling.
    folder = tmp_path / "cache"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    kept = Compiled(triple)
    for found in sorted(folder.rglob("*"), reverse=True):
        found.rmdir()
    folder.rmdir()
    folder.write_text("not a folder")
    assert kept(4) == 12


def triple(number: int) -> int:
    return 3 * number
