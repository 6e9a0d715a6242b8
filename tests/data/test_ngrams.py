"""Character n-grams, and documents with words that a vocabulary lacks."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_plugin.data.batches import Documents
from sopa_plugin.data.ngrams import MOST_NGRAMS, NewWords, character_ngrams
from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.models.open_vocabulary import OpenVocabularyTokenizer, with_unknown_words


@pytest.fixture
def tokenizer() -> OpenVocabularyTokenizer:
    return with_unknown_words(make_tokenizer(["good", "film"]), None, ngram_buckets=1000)


def test_ngrams_of_a_word_by_hand() -> None:
    pieces = ["<ab", "<ab>", "ab>"]  # of 3 to 5 characters of <ab>, by where they begin
    expected = [crc32(piece.encode()) % 1000 + 1 for piece in pieces]
    assert character_ngrams("ab", 1000) == expected + [0] * (MOST_NGRAMS - 3)
    assert sum(number > 0 for number in character_ngrams("é", 1000)) == 1  # <é>


@given(st.text(min_size=1, max_size=40), st.integers(1, 50))
def test_ngrams_are_as_many_as_are_kept_and_those_of_a_begin_are_shared(
    word: str, buckets: int
) -> None:
    found = character_ngrams(word, buckets)
    assert len(found) == MOST_NGRAMS
    assert all(0 <= number <= buckets for number in found)
    count = sum(number > 0 for number in found)
    assert all(found[:count])
    length = len(word) + 2  # with its ends marked
    assert count == min(sum(max(length + 1 - size, 0) for size in (3, 4, 5)), MOST_NGRAMS)
    begun = max(length - 5, 0) * 3  # whole n-grams before the end
    assert character_ngrams(word + "x", buckets)[:begun] == found[:begun]


def test_new_words_are_told_apart_in_batches(tokenizer: OpenVocabularyTokenizer) -> None:
    texts = ["good", "zork good zork", "", "film blub"]
    documents = Documents.encode(texts, tokenizer)
    good, film, unknown = 2, 3, 1
    assert documents.ids.tolist() == [good, 4, good, 4, film, 5]
    assert documents.known_ids.tolist() == [good, unknown, good, unknown, film, unknown]
    zork, blub = character_ngrams("zork", 1000), character_ngrams("blub", 1000)

    packed = documents.packed(np.array([3, 1]))
    assert packed["token_ids"].tolist() == [good, film, unknown, unknown]
    assert packed["index"].tolist() == [1, 3, 2, 0, 2]
    assert packed["ngrams"].tolist() == [[2, *zork], [3, *blub]]

    padded = documents.padded(np.array([3, 2, 1]), padding=0)
    assert padded["input_ids"].tolist() == [[3, 1, 0], [0, 0, 0], [1, 2, 1]]
    assert padded["ngrams"].tolist() == [[1, *blub], [2, *zork], [4, *zork]]


def test_new_words_go_on_from_documents_to_documents(tokenizer: OpenVocabularyTokenizer) -> None:
    new_words = NewWords(len(tokenizer))
    for text, numbers in (("a b", [4, 5]), ("b c", [5, 6])):
        assert Documents.encode([text], tokenizer, None, new_words).ids.tolist() == numbers
    assert list(new_words.words) == ["a", "b", "c"]
    assert new_words.entries().shape == (3, 1 + MOST_NGRAMS)


def test_a_tokenizer_without_ngrams_has_one_unknown_word() -> None:
    documents = Documents.encode(["a b"], make_tokenizer(["c"]))
    assert documents.ids.tolist() == documents.known_ids.tolist() == [1, 1]
    assert "ngrams" not in documents.packed(np.array([0]))


def test_what_the_tokenizer_returns(tokenizer: OpenVocabularyTokenizer) -> None:
    nothing, zork = [0] * (1 + MOST_NGRAMS), character_ngrams("zork", 1000)
    assert tokenizer("good zork")["ngrams"] == [[1, *zork]]
    assert tokenizer("")["ngrams"] == [nothing]
    texts = ["good", "zork good film zork"]
    expected = [[nothing, nothing], [[0, *zork], [3, *zork]]]
    for side in ("right", "left"):
        found = tokenizer(texts, padding=True, return_tensors="pt", padding_side=side)
        assert found["ngrams"].tolist() == expected
        collated = tokenizer.pad(
            [tokenizer(text) for text in texts], return_tensors="pt", padding_side=side
        )
        assert collated["ngrams"][:, :2].tolist() == expected
        assert not collated["ngrams"][:, 2:].any()
        assert collated["input_ids"].tolist() == found["input_ids"].tolist()
    cut = tokenizer(texts, truncation=True, max_length=2)
    assert cut["ngrams"] == [[nothing], [[0, *zork]]]
