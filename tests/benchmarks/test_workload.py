"""Sentences to measure on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sopa_plugin.benchmarks.workload import make_workload

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "sst"


def test_generated_sentences_have_the_shape_of_sst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of SST: see `workload`; a batch has 2,842 words, 1,142 of them distinct."""
    monkeypatch.delenv("SOPA_SST", raising=False)
    workload = make_workload()
    lengths = workload.documents.lengths
    assert len(lengths) == 6920
    assert len(workload.dev_texts) == 872
    assert lengths.mean() == pytest.approx(19.3, rel=0.05)
    assert lengths.std() == pytest.approx(9.3, rel=0.1)
    assert (lengths.min(), lengths.max()) == (2, 52)
    assert len(np.unique(workload.documents.ids)) == pytest.approx(14_830, rel=0.1)
    batches = workload.batches(46)
    distinct = [len(workload.documents.packed(numbers)["token_ids"]) for numbers in batches]
    assert np.mean(distinct) == pytest.approx(1142, rel=0.1)


def test_the_same_seed_gives_the_same_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOPA_SST", raising=False)
    assert make_workload(50).texts == make_workload(50).texts
    assert make_workload(50).texts != make_workload(50, seed=1).texts


def test_a_few_batches_are_as_long_as_all_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOPA_SST", raising=False)
    workload = make_workload(3000)
    lengths = workload.documents.lengths
    assert [len(each) for each in workload.batches(4)] == [150] * 4
    some = np.concatenate(workload.batches(4))
    assert lengths[some].mean() == pytest.approx(lengths.mean(), rel=0.15)
    # each of sentences of like length
    assert max(lengths[each].std() for each in workload.batches(4)) < lengths.std() / 2


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared SST")
def test_the_real_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOPA_SST", str(SHARED / "trees"))
    workload = make_workload()
    assert (len(workload.texts), len(workload.dev_texts)) == (6920, 872)
    assert "SST" in workload.what
    assert workload.documents.lengths.mean() == pytest.approx(19.3, abs=0.05)
