"""The Triton kernels against the reference: on a GPU where there is one, else interpreted.

Triton chooses its interpreter when it is imported, so without a GPU these tests run in a process of
their own. What the interpreter cannot tell (that the code compiles) is tested by compiling.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sopa_plugin.wfsa import Arcs, Layout, Semiring, document_scores, reference, spell_out

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install .[gpu]")

INF = float("inf")
MAX_SUM = Semiring.named("max_sum")
SUMS = ("sum_product", "log")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])

here = pytest.mark.skipif(
    not (INTERPRETED or torch.cuda.is_available()),
    reason="no GPU: test_everything_under_the_interpreter runs this",
)

# Each two options in all four ways; more patterns than a program takes; two states and five.
LAYOUTS = [
    Layout((2,) * 20 + (3,) * 20, True, True, False, True, False),
    Layout((2, 4), True, True, True, True, True),
    Layout((2, 3), True, True, True, True, False),
    Layout((2, 5), False, True, False, True, True),
    Layout((2, 3), False, False, True, False, False),
    Layout((2, 3), True, False, False, True, True),
    Layout((2, 2, 4), True, True, False, False, True),
]


def make_case(layout: Layout, seed: int) -> Arcs:
    """Whole numbers, so that paths tie, some -inf; documents empty, short and long."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, generator=generator).round()
        return drawn.masked_fill(torch.rand(*shape, generator=generator) < 0.1, -INF)

    offsets = torch.tensor([0, 4, 4, 5, 8])
    index = torch.randint(0, 4, (8,), generator=generator)
    tensors = (numbers(5, layout.num_scores), index, offsets, numbers(layout.num_epsilons))
    return Arcs(*(tensor.to(DEVICE) for tensor in tensors))


@here
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_scores_and_paths_are_those_of_the_reference(layout: Layout) -> None:
    from sopa_plugin.wfsa import cuda

    arcs = make_case(layout, seed=0)
    expected = reference.document_scores(layout, MAX_SUM, arcs, keep_paths=True)
    found = cuda.forward(layout, "max_sum", arcs, keep_paths=True)
    for mine, theirs in zip(found[:3], expected[:3], strict=True):
        assert torch.equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    assert spell_out(layout, arcs, found) == spell_out(layout, arcs, expected)
    alone, *nothing = cuda.forward(layout, "max_sum", arcs, keep_paths=False)
    assert torch.equal(alone, expected.scores)
    assert [tensor.numel() for tensor in nothing] == [0, 0, 0]
    recurrence = reference.Recurrence(layout, MAX_SUM, arcs.epsilon, trace=True)
    by_end = cuda.end_scores(layout, arcs)
    for mine, theirs in zip(by_end[:2], reference.end_scores(recurrence, arcs)[:2], strict=True):
        assert torch.equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    assert torch.equal(by_end.steps, found.steps)


@here
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_are_those_of_the_reference(layout: Layout) -> None:
    from sopa_plugin.wfsa import cuda

    arcs = make_case(layout, seed=1)
    scores, epsilon = (each.clone().requires_grad_() for each in (arcs.scores, arcs.epsilon))
    leaves = arcs._replace(scores=scores, epsilon=epsilon)
    out = reference.document_scores(layout, MAX_SUM, leaves).scores
    grad = torch.linspace(-1, 2, out.numel(), device=DEVICE).view_as(out)
    grad[0, 0] = 0
    torch.where(out > -INF, out * grad, 0).sum().backward()
    _, *paths = cuda.forward(layout, "max_sum", arcs, keep_paths=True)
    found = cuda.backward(layout, "max_sum", grad, arcs, *paths)
    for mine, theirs in zip(found, (scores.grad, epsilon.grad), strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if theirs is None else theirs)
    for mine, again in zip(
        found, cuda.backward(layout, "max_sum", grad, arcs, *paths), strict=True
    ):
        assert torch.equal(mine, again)


def sums_of(semiring: str, layout: Layout, arcs: Arcs, dtype: torch.dtype) -> list[Tensor]:
    """Scores and gradients, the latter of finite scores alone."""
    leaves = [each.to(dtype).requires_grad_() for each in (arcs.scores, arcs.epsilon)]
    out = document_scores(layout, semiring, arcs._replace(scores=leaves[0], epsilon=leaves[1]))
    grad = torch.linspace(-1, 2, out.numel(), dtype=dtype, device=DEVICE).view_as(out)
    grads = torch.autograd.grad(out, leaves, grad.masked_fill(out.isinf(), 0))
    return [each.double() for each in (out.detach(), *grads)]


def sums_close(
    semiring: str, layout: Layout, arcs: Arcs, monkeypatch: pytest.MonkeyPatch, rtol: float = 1e-5
) -> list[Tensor]:
    """What the kernel has found, which is what the reference finds in float64."""
    monkeypatch.setenv("SOPA_KERNEL", "reference")
    expected = sums_of(semiring, layout, arcs, torch.float64)
    monkeypatch.setenv("SOPA_KERNEL", "cuda")
    found = sums_of(semiring, layout, arcs, torch.float32)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=1e-6)
    return found


@here
@pytest.mark.parametrize("semiring", SUMS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_sums_and_their_gradients_are_those_of_the_reference(
    layout: Layout, semiring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens behind the last document, as batches have them that are filled up, are of none."""
    arcs = make_case(layout, seed=4)
    if semiring == "sum_product":
        arcs = arcs._replace(scores=arcs.scores.sigmoid(), epsilon=arcs.epsilon.sigmoid())
    index = torch.cat([arcs.index, arcs.index[:5]])
    filled = arcs._replace(index=index, offsets=torch.cat([arcs.offsets, arcs.offsets[-1:]]))
    found, for_scores, _ = sums_close(semiring, layout, filled, monkeypatch)
    assert found[[0, 2, 3]].isfinite().any()
    assert for_scores.any()
    if layout is LAYOUTS[0]:
        again = sums_of(semiring, layout, filled, torch.float32)
        assert torch.equal(again[1], for_scores)


@here
@pytest.mark.parametrize("semiring", SUMS)
def test_sums_over_a_long_document(semiring: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In log space of weights from e**-50 to e**50, whose sums no float32 could hold."""
    layout = Layout((2, 4), boundary_loops=True)
    arcs = make_case(layout, seed=5)
    scores, epsilon = (each.clamp(min=-5) for each in (arcs.scores, arcs.epsilon))
    if semiring == "log":
        scores, epsilon = 10 * scores, 10 * epsilon
    else:
        scores, epsilon = scores.sigmoid(), epsilon.sigmoid()
    index = arcs.index.repeat(4)
    offsets = torch.tensor([0, len(index)], device=DEVICE)
    found, *_ = sums_close(
        semiring, layout, Arcs(scores, index, offsets, epsilon), monkeypatch, 1e-3
    )
    assert found.isfinite().all()
    assert semiring == "sum_product" or found.max() > 100


@here
@pytest.mark.parametrize("semiring", SUMS)
def test_sums_over_nothing(semiring: str) -> None:
    """No document; then documents without a token, where only an empty match counts."""
    from sopa_plugin.wfsa import cuda

    layout = LAYOUTS[1]
    epsilon = make_case(layout, seed=0).epsilon.sigmoid().log()
    epsilon = epsilon if semiring == "log" else epsilon.exp()
    index, scores = torch.zeros(0, dtype=torch.int64, device=DEVICE), epsilon.new_zeros(0, 1)
    scores = scores.expand(0, layout.num_scores).contiguous()
    for documents in (0, 3):
        arcs = Arcs(scores, index, index.new_zeros(documents + 1), epsilon)
        out = cuda.forward(layout, semiring, arcs, keep_paths=False).scores
        expected = reference.document_scores(layout, Semiring.named(semiring), arcs).scores
        torch.testing.assert_close(out, expected)
        for_scores, for_epsilon = cuda.backward(layout, semiring, torch.ones_like(out), arcs)
        assert for_scores.shape == scores.shape
        assert for_epsilon.sum() == documents  # of the only pattern of two states


@here
def test_the_operator_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOPA_KERNEL", "cuda")
    layout = LAYOUTS[0]
    case = make_case(layout, seed=2)
    leaves = [each.clamp(min=-9).requires_grad_() for each in (case.scores, case.epsilon)]
    arcs = case._replace(scores=leaves[0], epsilon=leaves[1])
    out = document_scores(layout, "max_sum", arcs)
    monkeypatch.setenv("SOPA_KERNEL", "reference")
    expected = document_scores(layout, "max_sum", arcs)
    assert torch.equal(out, expected)
    mine, theirs = (torch.autograd.grad(each[[0, 2, 3]].sum(), leaves) for each in (out, expected))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


@here
def test_an_empty_batch() -> None:
    from sopa_plugin.wfsa import cuda

    layout = LAYOUTS[0]
    index, offsets = (torch.zeros(n, dtype=torch.int64, device=DEVICE) for n in (0, 1))
    arcs = make_case(layout, seed=0)._replace(index=index, offsets=offsets)
    out, *paths = cuda.forward(layout, "max_sum", arcs, keep_paths=True)
    assert out.shape == (0, layout.num_patterns)
    grads = cuda.backward(layout, "max_sum", out, arcs, *paths)
    assert [grad.shape for grad in grads] == [arcs.scores.shape, arcs.epsilon.shape]
    assert not any(grad.any() for grad in grads)


@here
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_tokens_behind_the_last_document_are_of_none(layout: Layout) -> None:
    """As batches have them that are filled up to a size: empty documents, then tokens of none."""
    from sopa_plugin.wfsa import cuda

    arcs = make_case(layout, seed=3)
    index = torch.cat([arcs.index, arcs.index[:5]])
    filled = arcs._replace(index=index, offsets=torch.cat([arcs.offsets, arcs.offsets[-1:]]))
    grad = torch.linspace(-1, 2, 4 * layout.num_patterns, device=DEVICE).view(4, -1)
    more = torch.cat([grad, torch.zeros_like(grad[:1])])
    found = []
    for each, given in ((arcs, grad), (filled, more)):
        out, *paths = cuda.forward(layout, "max_sum", each, keep_paths=True)
        found.append((out[:4], *cuda.backward(layout, "max_sum", given, each, *paths)))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=0)


@here
def test_a_batch_of_documents_without_a_token() -> None:
    from sopa_plugin.wfsa import cuda

    layout = LAYOUTS[1]  # its two-state patterns match no token at all
    epsilon = make_case(layout, seed=0).epsilon
    scores = epsilon.new_zeros(0, layout.num_scores)
    index, offsets = (torch.zeros(n, dtype=torch.int64, device=DEVICE) for n in (0, 4))
    arcs = Arcs(scores, index, offsets, epsilon)
    out, *paths = cuda.forward(layout, "max_sum", arcs, keep_paths=True)
    assert torch.equal(out, reference.document_scores(layout, MAX_SUM, arcs).scores)
    grads = cuda.backward(layout, "max_sum", torch.ones_like(out), arcs, *paths)
    assert grads[0].shape == scores.shape
    assert grads[1].sum() == 3 * (out[0] > -INF).sum()


@here
@pytest.mark.parametrize("size", [1e-38, 1e-20, 3.0, 1e30])
def test_gradients_of_any_size_add_up(size: float) -> None:
    from sopa_plugin.wfsa import cuda

    layout = LAYOUTS[0]
    arcs = make_case(layout, seed=1)
    out, *paths = cuda.forward(layout, "max_sum", arcs, keep_paths=True)
    whole = cuda.backward(layout, "max_sum", torch.ones_like(out), arcs, *paths)
    found = cuda.backward(layout, "max_sum", torch.full_like(out, size), arcs, *paths)
    for each, times in zip(found, whole, strict=True):
        torch.testing.assert_close(each, times * size, rtol=1e-6, atol=0)


@here
@pytest.mark.parametrize("value", [INF, -INF, float("nan")])
def test_one_gradient_that_is_no_number_shows_in_all(value: float) -> None:
    """So that what scales losses in half precision notices an overflow."""
    from sopa_plugin.wfsa import cuda

    layout = LAYOUTS[0]
    arcs = make_case(layout, seed=1)
    out, *paths = cuda.forward(layout, "max_sum", arcs, keep_paths=True)
    grad = torch.ones_like(out)
    grad[-1, 0] = value
    for each in cuda.backward(layout, "max_sum", grad, arcs, *paths):
        assert each.isnan().all()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_it_runs_where_its_tensors_are() -> None:
    layout = LAYOUTS[0]
    arcs = Arcs(*(each.to("cuda:1") for each in make_case(layout, seed=0)))
    inputs = arcs.scores.requires_grad_(), arcs.epsilon.requires_grad_()
    found = []
    for device in (0, 1):
        with torch.cuda.device(device):
            result = document_scores(layout, "max_sum", arcs)
            found.append((result, *torch.autograd.grad(result.exp().sum(), inputs)))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.skipif(INTERPRETED, reason="is running")
@pytest.mark.skipif(VERSION < (3, 7), reason="Triton's interpreter fails with numpy 2.4 before 3.7")
def test_everything_under_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment = {key: value for key, value in environment.items() if "PYTEST" not in key}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(Path(__file__))]
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "passed" in process.stdout


KINDS = {
    "*fp32": "scores epsilon document_scores end_scores grad largest floats states grad_tokens "
    "grad_epsilon",
    "*i64": "index offsets lengths main_starts main_firsts loop_starts loop_firsts state_starts "
    "sums",
    "*i32": "ends",
    "*u8": "final steps end_final",
}


@pytest.mark.skipif(INTERPRETED, reason="interpreted functions cannot be compiled")
@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("run", {"PATHS": False, "ENDS": False}),
        ("run", {"PATHS": True, "ENDS": True}),
        ("run", {"PATHS": True, "ENDS": False}),
        ("walk_back", {}),
        ("to_floats", {}),
        ("run_sums", {"LOGS": True, "KEEP": False}),
        ("run_sums", {"LOGS": False, "KEEP": True}),
        ("sums_back", {"LOGS": True}),
        ("sums_back", {"LOGS": False}),
    ],
)
def test_it_compiles_for_a_gpu(
    name: str, flags: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To machine code of an H100, states in registers: nothing goes through local memory."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from sopa_plugin.wfsa.kernels import triton as kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # there is nothing to fuse
    options = dict.fromkeys(("EPSILONS", "LOOPS", "BOUNDARY", "FINAL", "EMPTY"), True)
    constants = {"STATES": 6, "BLOCK": 32, **options, **flags}
    types = {each: kind for kind, names in KINDS.items() for each in names.split()}
    function = getattr(kernels, name)
    arguments = list(enumerate(function.arg_names))
    source = ASTSource(
        fn=function,
        signature={
            each: "constexpr" if each in constants else types.get(each, "i32")
            for _, each in arguments
        },
        constexprs={(i,): constants[each] for i, each in arguments if each in constants},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    assert compiled.asm["cubin"]
    assert ".local" not in compiled.asm["ptx"]
