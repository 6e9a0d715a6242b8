"""Text to word ids as the saved tokenizer gives them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from sopa_plugin.compiled.words import Words
from sopa_plugin.data.tokenizers import make_tokenizer

VOCABULARY = [
    "film",
    "the",
    "café",
    "ice\xa0cream",
    "i̇",
    "σ",
    "a",
    "b",
    "ab",
    "[pad]",
    "\x1c",
    "x\0",
]
ODD = ["\xa0", "\u2028", "\x85", "\x1c", "\x1d", "\x1e", "\x1f", "\0", "\u3000", "İ", "ΟΔΟΣ", "ꟋA"]


def both(lowercase: bool) -> tuple[Words, PreTrainedTokenizerFast]:
    tokenizer = make_tokenizer(VOCABULARY, lowercase)
    vocabulary = tokenizer.get_vocab()
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    return Words(words, vocabulary["[UNK]"], lowercase), tokenizer


BOTH = {lowercase: both(lowercase) for lowercase in (False, True)}


def same(texts: list[str], lowercase: bool) -> bool:
    words, tokenizer = BOTH[lowercase]
    ids, offsets = words.encode(texts)
    expected = tokenizer(texts)["input_ids"] if texts else []
    found = [ids[start:stop].tolist() for start, stop in pairwise(offsets.tolist())]
    assert int(offsets[-1]) == len(ids)
    return found == expected


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\n\r\f\v ",
        "the film",
        "  the\tfilm\n\nthe\r\nunheard-of\ffilm\vTHE  ",
        "[PAD] [UNK] [pad]",
        "a ab b aba x x\0",
        "ice\xa0cream café Café",
        *(f"a{odd}b {odd} film" for odd in ODD),
    ],
    ids=ascii,
)
def test_numbers_words_as_the_tokenizer_does(text: str, lowercase: bool) -> None:
    assert same([text], lowercase)


def test_by_hand() -> None:
    words = Words(["[PAD]", "[UNK]", "good", "film"], unknown=1, lowercase=True)
    ids, offsets = words.encode(["A Good film", "", "good"])
    assert ids.tolist() == [1, 2, 3, 2]
    assert offsets.tolist() == [0, 3, 3, 4]


def test_no_text() -> None:
    assert same([], False)


WORD = st.one_of(st.sampled_from(VOCABULARY), st.sampled_from(ODD), st.text(max_size=4))
TEXT = st.builds(str.join, st.sampled_from([" ", "", "\n", "\t \v"]), st.lists(WORD, max_size=8))


@given(st.lists(TEXT, max_size=4), st.booleans())
def test_any_text(texts: list[str], lowercase: bool) -> None:
    assert same(texts, lowercase)


NO_BLANKS = st.characters(exclude_characters=" \t\n\r\f\v", codec="utf-8")


@given(st.sets(st.text(NO_BLANKS, min_size=1, max_size=3)))
def test_every_word_of_any_vocabulary_is_found_and_no_other(vocabulary: set[str]) -> None:
    words = Words(["[UNK]", *sorted(vocabulary)], unknown=0, lowercase=False)
    ids, _ = words.encode([" ".join(words.words), "not there"])
    assert ids.tolist() == [*range(len(words.words)), 0, 0]
