"""Which implementation serves: chosen by device, semiring and dtype, forced, or fallen back to."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from sopa_plugin.errors import UserError
from sopa_plugin.wfsa import Arcs, Layout, cpu, dispatch, document_scores
from sopa_plugin.wfsa.dispatch import choose_kernel

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
LAYOUT = Layout((2, 3))


@pytest.fixture(autouse=True)
def nothing_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOPA_KERNEL", raising=False)
    dispatch._log_fallback.cache_clear()


def case(dtype: torch.dtype = torch.float32) -> Arcs:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, LAYOUT.num_scores, generator=generator, dtype=dtype)
    epsilon = torch.randn(LAYOUT.num_epsilons, generator=generator, dtype=dtype)
    return Arcs(scores, torch.tensor([0, 1, 2, 3, 3]), torch.tensor([0, 3, 5]), epsilon)


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a Python process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.parametrize("semiring", ["max_product", "max_sum", "sum_product", "log"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_cpu_serves_all_that_have_gradients(semiring: str, dtype: torch.dtype) -> None:
    assert choose_kernel(semiring, CPU, dtype) is cpu


@pytest.mark.parametrize("semiring", ["boolean", "a_users_own"])
def test_the_reference_serves_other_semirings_without_a_word(
    semiring: str, caplog: pytest.LogCaptureFixture
) -> None:
    for device in (CPU, CUDA):
        assert choose_kernel(semiring, device, torch.float32) is None
    assert not caplog.records


def test_the_reference_serves_float64_and_that_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert choose_kernel("max_sum", CPU, torch.float64) is None
    (record,) = caplog.records
    assert "float64" in record.getMessage()


@pytest.mark.parametrize(
    ("forced", "semiring", "device", "dtype", "reason"),
    [
        ("cpu", "boolean", CPU, torch.float32, "max_sum, sum_product, not boolean"),
        ("cuda", "boolean", CUDA, torch.float32, "max_sum, sum_product, not boolean"),
        ("cpu", "max_sum", CPU, torch.float64, "float64"),
        ("cpu", "max_sum", CUDA, torch.float32, "on cuda"),
        ("cuda", "max_sum", CPU, torch.float32, "on cpu"),
        ("fast", "max_sum", CPU, torch.float32, "one of reference, cpu, cuda"),
    ],
)
def test_forcing_what_cannot_serve_is_an_error(
    forced: str,
    semiring: str,
    device: torch.device,
    dtype: torch.dtype,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOPA_KERNEL", forced)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UserError, match=reason) as error:
        choose_kernel(semiring, device, dtype)
    assert f"SOPA_KERNEL={forced}" in str(error.value)


def test_what_is_forced_serves_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    by_default = document_scores(LAYOUT, "max_sum", case())
    monkeypatch.setenv("SOPA_KERNEL", "cpu")
    assert torch.equal(document_scores(LAYOUT, "max_sum", case()), by_default)
    with pytest.raises(UserError, match="SOPA_KERNEL=cpu cannot serve this call"):
        document_scores(LAYOUT, "boolean", case())
    monkeypatch.setenv("SOPA_KERNEL", "reference")
    assert choose_kernel("max_sum", CPU, torch.float32) is None
    assert torch.equal(document_scores(LAYOUT, "max_sum", case()), by_default)


def test_without_numba_the_reference_serves_unless_the_kernel_is_forced() -> None:
    """In a process that has no numba: one warning, or an error."""
    script = """
    import sys
    sys.modules["numba"] = None
    import logging, os, torch
    logging.basicConfig(format="%(levelname)s %(message)s")
    from sopa_plugin.wfsa import Arcs, Layout, document_scores
    from sopa_plugin.errors import UserError
    layout, index, offsets = Layout((2,)), torch.tensor([0, 0]), torch.tensor([0, 2])
    def compute():
        arcs = Arcs(torch.ones(1, 1), index, offsets, -torch.ones(1))
        return document_scores(layout, "max_sum", arcs).item()
    print(compute(), compute())
    os.environ["SOPA_KERNEL"] = "cpu"
    try:
        compute()
    except UserError as error:
        print(error)
    """
    process = run(script)
    numbers, error = process.stdout.splitlines()
    assert numbers == "1.0 1.0"
    assert error.startswith("SOPA_KERNEL=cpu cannot serve this call: importing it failed")
    assert process.stderr.count("WARNING The cpu kernel is not used (slower)") == 1
