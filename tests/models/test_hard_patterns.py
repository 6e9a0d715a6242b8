from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_plugin.data.batches import Documents
from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.models import HardPatterns, load_model
from sopa_plugin.models import hard_patterns as miner
from sopa_plugin.models.hard_patterns import Lexicon, PatternTrie, mine

SST = Path(__file__).parents[2] / ".." / "shared" / "data" / "sst"


def documents_of(texts: list[list[int]]) -> Documents:
    lengths = [len(each) for each in texts]
    ids = np.array([word for each in texts for word in each], dtype=np.int64)
    return Documents(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def brute_force(text: list[int], lexicon: Lexicon, max_length: int) -> set[tuple[int, ...]]:
    """Every subsequence of concrete words whose gaps hold wildcards only."""
    found = set()
    for length in range(1, max_length + 1):
        for places in combinations(range(len(text)), length):
            gaps = [word for start, end in pairwise(places) for word in text[start + 1 : end]]
            if all(lexicon.concrete[text[i]] for i in places) and all(
                lexicon.wildcard[word] for word in gaps
            ):
                found.add(tuple(text[i] for i in places))
    return found


WORDS = 5
FLAGS = st.lists(st.booleans(), min_size=WORDS, max_size=WORDS).map(np.array)
TEXTS = st.lists(st.lists(st.integers(0, WORDS - 1), max_size=8), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    TEXTS, TEXTS, FLAGS, FLAGS, st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 7, 2**22])
)
def test_equals_brute_force(train, test, concrete, wildcard, max_length, least, at_once):
    lexicon = Lexicon(concrete, wildcard)
    counts = Counter(
        pattern for text in train for pattern in brute_force(text, lexicon, max_length)
    )
    frequent = {pattern for pattern, count in counts.items() if count >= least}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(miner, "CANDIDATES_AT_ONCE", at_once)
        trie = mine(documents_of(train), lexicon, max_length, least)
        rows, columns = trie.match(documents_of(test), lexicon)
    patterns = trie.sequences()
    assert len(set(patterns)) == len(patterns)
    assert set(patterns) == frequent
    found = {(row, patterns[column]) for row, column in zip(rows, columns, strict=True)}
    assert len(found) == len(rows)
    assert found == {
        (row, pattern)
        for row, text in enumerate(test)
        for pattern in brute_force(text, lexicon, max_length) & frequent
    }


def test_concrete_words_and_wildcards_by_frequency():
    ids = np.array([0] * 90 + [1] * 9 + [2])
    lexicon = Lexicon.count(ids, 5, unknown=4, concrete=0.05, wildcard=0.09)
    assert lexicon.concrete.tolist() == [True, True, False, False, False]
    assert lexicon.wildcard.tolist() == [False, True, True, True, True]


TRAIN = ["a very good film", "a really good film", "the film is bad", "a film of good taste"]


def model_of(**options) -> HardPatterns:
    words = Counter(word for text in TRAIN for word in text.split())
    options = {"min_frequency": 2, "concrete_frequency": 0.0, "wildcard_frequency": 0.1} | options
    return HardPatterns(make_tokenizer(words), ["negative", "positive"], **options)


def test_patterns_of_a_small_set():
    # of 17 tokens, a, good and film are more than a tenth: no wildcards
    model = model_of()
    features = model.fit_features(TRAIN)
    patterns = [" ".join(each) for each in model.patterns()]
    assert sorted(patterns) == ["a", "a good", "a good film", "film", "good", "good film"]
    row = dict(zip(patterns, features.toarray()[3], strict=True))
    assert row == {"a": 1, "a good": 0, "a good film": 0, "film": 1, "good": 1, "good film": 0}


def test_unknown_words_are_wildcards():
    model = model_of()
    model.fit_features(TRAIN)
    patterns = [" ".join(each) for each in model.patterns()]
    found = model.features(["a strangely good and new film", ""]).toarray()
    assert {each for each, here in zip(patterns, found[0], strict=True) if here} == set(patterns)
    assert not found[1].any()


def test_relative_frequency_is_of_documents():
    every_second = model_of(min_frequency=0.5)
    every_second.fit_features(TRAIN)
    absolute = model_of(min_frequency=2)
    absolute.fit_features(TRAIN)
    assert every_second.patterns() == absolute.patterns()


def test_no_pattern_is_an_error():
    with pytest.raises(UserError, match="no pattern is in 5 of the 4 training documents"):
        model_of(min_frequency=5).fit_features(TRAIN)


def test_saved_and_loaded(tmp_path):
    model = model_of()
    count = model.fit_features(TRAIN).shape[1]
    model.coefficients = np.random.default_rng(0).normal(size=(1, count))
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.patterns() == model.patterns()
    texts = ["a very good film", "some other film is bad", "", "good a film"]
    np.testing.assert_array_equal(loaded.log_probabilities(texts), model.log_probabilities(texts))
    assert not list(tmp_path.glob("*.pkl"))
    assert ["a", "good"] in json.loads((tmp_path / "features.json").read_text())["patterns"]


@pytest.mark.skipif(not SST.is_dir(), reason="needs ../shared/data/sst")
def test_accuracy_and_features_on_sst():
    from sklearn.linear_model import LogisticRegression

    texts, labels = {}, {}
    for split in ("train", "test"):
        lines = (SST / f"stsa.binary.{split}").read_text(encoding="utf-8").split("\n")
        lines = [line for line in lines if line]
        labels[split] = [int(line[0]) for line in lines]
        texts[split] = [line[2:] for line in lines]
    words = dict.fromkeys(word for text in texts["train"] for word in re.split(" +", text) if word)
    model = HardPatterns(make_tokenizer(words), ["0", "1"])
    features = model.fit_features(texts["train"])
    regression = LogisticRegression(C=0.1, max_iter=1000).fit(features, labels["train"])
    accuracy = regression.score(model.features(texts["test"]), labels["test"])
    assert 5000 < features.shape[1] < 8000  # the paper: 6K
    assert 0.725 < accuracy < 0.785  # the paper: 75.5


def test_a_trie_of_no_patterns_matches_nothing():
    lexicon = Lexicon(np.ones(3, dtype=bool), np.ones(3, dtype=bool))
    rows, columns = PatternTrie.of([]).match(documents_of([[0, 1], [2]]), lexicon)
    assert len(rows) == len(columns) == 0
