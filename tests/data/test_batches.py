"""Documents tokenised once, and the batches of training and evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_plugin.data.batches import Documents, evaluation_batches, training_batches
from sopa_plugin.data.tokenizers import make_tokenizer

TEXTS = ["b a b", "", "a c", "b"]
# [PAD] 0, [UNK] 1
A, B, UNKNOWN = 2, 3, 1


@pytest.fixture
def documents() -> Documents:
    return Documents.encode(TEXTS, make_tokenizer(["a", "b"]), labels=[1, 0, 1, 0])


def test_documents_lie_end_to_end(documents: Documents) -> None:
    assert documents.ids.tolist() == [B, A, B, A, UNKNOWN, B]
    assert documents.offsets.tolist() == [0, 3, 3, 5, 6]
    assert documents.lengths.tolist() == [3, 0, 2, 1]
    assert len(documents) == 4


def test_packed_batch_has_each_word_once(documents: Documents) -> None:
    batch = documents.packed(np.array([2, 0, 1]))
    assert batch["token_ids"].tolist() == [UNKNOWN, A, B]
    assert batch["token_ids"][batch["index"]].tolist() == [A, UNKNOWN, B, A, B]
    assert batch["offsets"].tolist() == [0, 2, 5, 5]
    assert batch["labels"].tolist() == [1, 1, 0]


def test_padded_batch(documents: Documents) -> None:
    batch = documents.padded(np.array([0, 3]), padding=0)
    assert batch["input_ids"].tolist() == [[B, A, B], [B, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    empty = documents.padded(np.array([1]), padding=0)
    assert empty["input_ids"].shape == (1, 1)
    assert not empty["attention_mask"].any()


def test_embedded_batch_holds_the_vectors_of_its_tokens(documents: Documents) -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(6, 2)
    embedded = Documents(documents.ids, documents.offsets, documents.labels, vectors)
    batch = embedded.embedded(np.array([2, 0]))
    assert torch.equal(batch["rows"], torch.from_numpy(vectors[[3, 4, 0, 1, 2]]))
    assert batch["index"].tolist() == [0, 1, 2, 3, 4]
    assert batch["offsets"].tolist() == [0, 2, 5]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=4, max_size=60),
    batch_size=st.integers(1, 9),
    num_processes=st.integers(1, 4),
    by_length=st.booleans(),
)
def test_an_epoch_has_every_document_once(
    lengths: list[int], batch_size: int, num_processes: int, by_length: bool
) -> None:
    steps = training_batches(np.array(lengths), batch_size, 1, 0, num_processes, by_length)
    documents = [document for step in steps for batch in step for document in batch.tolist()]
    assert sorted(documents) == list(range(len(lengths)))
    sizes = sorted(sum(map(len, step)) for step in steps)
    full = batch_size * num_processes
    assert all(size == full for size in sizes[1:-1])
    for step in steps:
        assert len(step) == num_processes
        # every process has something to do, and about as much
        assert min(map(len, step)) >= 1
        assert max(map(len, step)) - min(map(len, step)) <= 1


def test_order_depends_on_seed_and_epoch_alone() -> None:
    lengths = np.arange(40) % 7

    def order(seed: int, epoch: int) -> list[int]:
        return [int(d) for step in training_batches(lengths, 5, seed, epoch) for d in step[0]]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_two_processes_share_the_step_of_one_with_twice_the_batch() -> None:
    lengths = np.arange(22)
    one = training_batches(lengths, 16, 3, 5)
    two = training_batches(lengths, 8, 3, 5, num_processes=2)
    assert [np.concatenate(step).tolist() for step in two] == [step[0].tolist() for step in one]


def test_batches_hold_documents_of_like_length() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 1000)
    together = training_batches(lengths, 50, 1, 0)
    apart = training_batches(lengths, 50, 1, 0, by_length=False)

    def spread(steps: list) -> float:
        return float(np.mean([np.ptp(lengths[step[0]]) for step in steps]))

    assert spread(together) < spread(apart) / 3
    # and they do not come from short to long
    assert np.corrcoef([lengths[step[0]].mean() for step in together], range(20))[0, 1] < 0.9


def test_too_few_documents_for_the_processes() -> None:
    with pytest.raises(ValueError, match="2 documents cannot be shared by 3 processes"):
        training_batches(np.array([1, 1]), 4, 1, 0, num_processes=3)


@given(st.lists(st.integers(0, 50), max_size=50), st.integers(1, 8), st.integers(1, 60))
def test_evaluation_batches_are_bounded(lengths: list[int], size: int, tokens: int) -> None:
    batches = list(evaluation_batches(np.array(lengths, dtype=np.int64), size, tokens))
    documents = [document for batch in batches for document in batch.tolist()]
    assert sorted(documents) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= size
        longest = max(lengths[document] for document in batch)
        assert len(batch) == 1 or longest * len(batch) <= tokens
