"""Tokenizers: what words a text is, which of them are known, and its case and length."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sopa_plugin.data.tokenizers import (
    Tokenizer,
    WhitespaceTokenizer,
    WordTokenizer,
    build_tokenizer,
    fold_and_cut,
    in_batches,
)
from sopa_plugin.errors import UserError
from sopa_plugin.registry import check

TRAIN = ["b a b", "b c"]
DEV = ["d d d d"]
FILE = ["x", "b", ". . .", "y", "z"]
SHARED = Path(__file__).resolve().parents[3] / "shared"


def words(tokenizer: WhitespaceTokenizer, pretrained: list[str]) -> list[str]:
    vocabulary = tokenizer.build(TRAIN, DEV, pretrained).get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


@pytest.mark.parametrize(
    ("vocabulary", "pretrained", "expected"),
    [
        (None, [], ["b", "a", "c"]),
        (None, FILE, ["d", "b", "a", "c", "x", "y", "z"]),
        ("train", FILE, ["b", "a", "c"]),
        ("train_dev", FILE, ["d", "b", "a", "c"]),
        ("vectors", FILE, ["d", "b", "a", "c", "x", "y", "z"]),
    ],
)
def test_vocabulary_by_frequency_then_appearance_then_file(
    vocabulary: str | None, pretrained: list[str], expected: list[str]
) -> None:
    tokenizer = WhitespaceTokenizer(vocabulary=vocabulary)  # type: ignore[arg-type]
    assert words(tokenizer, pretrained) == ["[PAD]", "[UNK]", *expected]


def test_caps_the_words_of_the_file_and_reads_no_further() -> None:
    def file() -> object:
        yield from ["x", "y"]
        raise AssertionError("read on")

    vocabulary = WhitespaceTokenizer(max_pretrained_words=2).build(TRAIN, DEV, file()).get_vocab()  # type: ignore[arg-type]
    assert {"x", "y"} < vocabulary.keys()


def test_rare_words_are_left_out() -> None:
    assert words(WhitespaceTokenizer(min_count=2), []) == ["[PAD]", "[UNK]", "b"]


def test_vectors_need_frozen_vectors() -> None:
    with pytest.raises(UserError, match="embedder has no vectors from"):
        WhitespaceTokenizer(vocabulary="vectors").build(TRAIN, DEV, [])


def test_ids_of_known_unknown_and_no_words() -> None:
    built = WhitespaceTokenizer().build(TRAIN, DEV, [])
    assert built("a q b")["input_ids"] == [3, 1, 2]
    assert built("")["input_ids"] == []
    batch = built(["a", ""], padding=True)
    assert batch["input_ids"] == [[3], [0]]
    assert batch["attention_mask"] == [[1], [0]]
    assert set(batch) == {"input_ids", "attention_mask"}


@given(st.text(alphabet="ab \t\n\r\f\v\u00a0\u2028\x85\x1c\u3000", max_size=12))
def test_splits_on_ascii_blanks_alone(text: str) -> None:
    expected = [word for word in re.split("[ \t\n\r\f\v]+", text) if word]
    built = WhitespaceTokenizer().build([text, "a"], [], [])
    assert built.convert_ids_to_tokens(built(text)["input_ids"]) == expected


def test_special_tokens_written_in_a_text_are_ordinary_words(tmp_path: Path) -> None:
    tokenizer = WhitespaceTokenizer(lowercase=True)
    tokenizer.build(["a [PAD] b"], [], []).save_pretrained(tmp_path)
    built = AutoTokenizer.from_pretrained(tmp_path)
    assert built.tokenize("a [PAD] x[UNK]b") == ["a", "[pad]", "[UNK]"]
    cased = WhitespaceTokenizer().build(["a [PAD] b"], [], [])
    encoded = cased("a [PAD] x[PAD]b")
    assert encoded["input_ids"] == [2, 0, 1]
    assert encoded["attention_mask"] == [1, 1, 1]


def test_saved_and_loaded_by_transformers(tmp_path: Path) -> None:
    built = WhitespaceTokenizer(lowercase=True).build(["The caf\u00c9\u00a0bar"], [], [])
    built.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == built.get_vocab()
    for text in ["the CAF\u00c9\u00a0BAR", "", "unknown THE", "the " * 2000]:
        assert dict(loaded(text)) == dict(built(text))
    assert loaded("The caf\u00e9\u00a0Bar")["input_ids"] == [2, 3]
    assert len(loaded("the " * 2000, truncation=True)["input_ids"]) == 2000
    assert loaded.decode([2, 3]) == "the caf\u00e9\u00a0bar"


def test_lower_casing_counts_and_looks_up_alike() -> None:
    # Rust and Python lower-case a final sigma differently: the vocabulary must follow the tokenizer
    text = "\u039f\u0394\u039f\u03a3 \u0130"
    built = WhitespaceTokenizer(lowercase=True).build([text], [], ["THE", "the"])
    assert 1 not in built(text + " The")["input_ids"]
    assert len(built) == 5


def test_config() -> None:
    assert isinstance(Tokenizer.from_params({}), WhitespaceTokenizer)
    problems = check(Tokenizer, {"min_count": 0, "max_pretrained_words": 0}, "tokenizer")
    assert {each.path for each in problems} == {
        "tokenizer.max_pretrained_words",
        "tokenizer.min_count",
    }
    with pytest.raises(ValueError, match="min_count"):
        WhitespaceTokenizer(min_count=0)
    with pytest.raises(ValueError, match=r'vocabulary: expected "train" or .*, found "dev"'):
        WhitespaceTokenizer(vocabulary="dev")


def test_sst_words_with_no_break_spaces_stay_whole() -> None:
    path = SHARED / "data/sst/stsa.binary.train"
    if not path.exists():
        pytest.skip("the real SST is not here (shared/data/sst)")
    lines = path.read_bytes().decode().split("\n")
    texts = [line[2:] for line in lines if line]
    built = WhitespaceTokenizer().build(texts, [], [])
    with_nbsp = [text for text in texts if "\u00a0" in text]
    assert with_nbsp
    for text in with_nbsp:
        assert len(built(text)["input_ids"]) == len(re.findall("[^ ]+", text))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("He is happy now.", ["He", "is", "happy", "now", "."]),
        ("Don't! It's Tom’s.", ["Do", "n't", "!", "It", "'s", "Tom", "’s", "."]),
        (
            "re-imagined for $3.50... in the U.S.",
            ["re-imagined", "for", "$", "3.50", "...", "in", "the", "U.S."],
        ),
        ("wait--what?", ["wait", "--", "what", "?"]),
        (" \n", []),
    ],
)
def test_splits_running_text(text, tokens):
    tokenizer = WordTokenizer(vocabulary="train").build([text, "a"], [], [])
    assert tokenizer.tokenize(text) == tokens


def test_lowercase_and_unknown_words():
    tokenizer = Tokenizer.from_params({"type": "words", "lowercase": True}).build(
        ["The end."], [], []
    )
    assert tokenizer.tokenize("THE End, not") == ["the", "end", "[UNK]", "[UNK]"]


def test_pretrained_words_that_would_be_split_are_left_out():
    tokenizer = WordTokenizer(vocabulary="vectors").build(["a"], [], ["b", "(c)", "'s", "n't"])
    assert set(tokenizer.get_vocab()) - {"[PAD]", "[UNK]"} == {"a", "b", "'s", "n't"}


def test_a_saved_tokenizer_splits_alike(tmp_path):
    text = "Don't go: it's over."
    tokenizer = WordTokenizer(vocabulary="train").build([text], [], [])
    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).tokenize(text) == tokenizer.tokenize(text)


def test_is_the_tokenizer_of_the_folder(tmp_path: Path) -> None:
    published = WhitespaceTokenizer().build(["some words"], [], [])
    published.model_max_length = 20
    published.save_pretrained(tmp_path)
    part = Tokenizer.from_params({"type": "pretrained", "model": str(tmp_path)})
    tokenizer = part.build(["other"], [], ["words"])
    assert tokenizer("words other")["input_ids"] == [3, 1]
    # no limit of length: the embedder cuts long documents up, nothing is cut off
    assert len(tokenizer("words " * 50, truncation=True)["input_ids"]) == 50


def test_a_missing_tokenizer_says_what_can_be_done(tmp_path: Path) -> None:
    part = Tokenizer.from_params({"type": "pretrained", "model": str(tmp_path / "none")})
    with pytest.raises(UserError, match=r"(?s)tokenizer\.model.*none.*HF_HUB_OFFLINE"):
        part.build([], [], [])


def known(part: Tokenizer, texts: list[str], *more: str, **given: object) -> list[list[str]]:
    """What the built tokenizer makes of the texts it was built from, and of others."""
    built = build_tokenizer(part, texts, [], **given)  # type: ignore[arg-type]
    return [built.convert_ids_to_tokens(built(text)["input_ids"]) for text in (*texts, *more)]


def test_the_data_set_decides_case_and_length_before_the_tokenizer() -> None:
    part = WhitespaceTokenizer(lowercase=False, max_tokens=9)
    found = known(part, ["A  b\tC d"], "B A x x", lowercase=True, max_tokens=3)
    assert found == [["a", "b", "c"], ["b", "a", "[UNK]"]]
    assert known(WhitespaceTokenizer(), ["A b"]) == [["A", "b"]]
    assert known(WordTokenizer(max_tokens=2), ["Don't (go) on"]) == [["Do", "n't", "(", "go", ")"]]


def test_words_beyond_the_length_are_not_in_the_vocabulary() -> None:
    built = build_tokenizer(WhitespaceTokenizer(), ["a b c", "b"], [], max_tokens=2)
    assert built.get_vocab().keys() == {"[PAD]", "[UNK]", "a", "b"}


@pytest.mark.parametrize(
    ("cased", "lowercase", "tokens", "advice"),
    [
        (None, None, ["The"], None),
        (False, None, ["the"], None),
        (True, None, ["The"], None),
        (False, True, ["the"], None),
        (True, False, ["The"], None),
        (None, True, ["the"], None),
        (True, True, ["the"], "tokenizer.lowercase is true, .* have capitals.*set it to false"),
        (False, False, ["The"], "tokenizer.lowercase is false, .* have none.*set it to true"),
    ],
)
def test_case_goes_by_the_vectors(
    cased: bool | None,
    lowercase: bool | None,
    tokens: list[str],
    advice: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert known(WhitespaceTokenizer(lowercase=lowercase), ["The"], cased=cased) == [tokens]
    assert bool(caplog.messages) == bool(advice)
    assert re.search(advice or "", caplog.text)


def test_cased_words_of_the_vectors_fill_no_row_that_nothing_reaches() -> None:
    file = ["The", "the", "film"]
    built = build_tokenizer(WhitespaceTokenizer(), ["The"], [], file, lowercase=True)
    assert sorted(built.get_vocab()) == ["[PAD]", "[UNK]", "film", "the"]


def test_a_final_sigma_is_known_at_prediction() -> None:
    assert known(WhitespaceTokenizer(), ["ΚΑΛΟΣ ΡΥΘΜΟΣ"], lowercase=True) == [["καλοσ", "ρυθμοσ"]]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=3),
    st.sampled_from([WhitespaceTokenizer, WordTokenizer]),
    st.booleans(),
    st.sampled_from([None, 1, 2, 5]),
)
@settings(max_examples=150, deadline=None)
def test_every_word_of_training_is_known(
    texts: list[str], kind: type[WhitespaceTokenizer], lowercase: bool, length: int | None
) -> None:
    texts = ["first", *texts]
    for tokens in known(kind(), texts, lowercase=lowercase, max_tokens=length):
        assert "[UNK]" not in tokens


@given(
    st.text(st.sampled_from("ab \t\n\r\f\v\u00a0\u2028é"), max_size=40), st.sampled_from([1, 2, 7])
)
def test_the_first_words_are_kept_and_no_more(text: str, length: int) -> None:
    all_words = [word for word in re.split("[ \t\n\r\f\v]+", text) if word]
    (found, *_) = known(WhitespaceTokenizer(), [text, "a"], max_tokens=length)
    assert found == all_words[:length]


def test_any_tokenizer_can_be_made_to_fold_and_cut(tmp_path: Path) -> None:
    WhitespaceTokenizer().build(["a b c"], [], []).save_pretrained(tmp_path)
    part = Tokenizer.from_params({"type": "pretrained", "model": str(tmp_path), "lowercase": True})
    tokenizer = build_tokenizer(part, [], [], max_tokens=2)
    assert tokenizer.tokenize("A B C") == ["a", "b"]
    before = tokenizer.backend_tokenizer.to_str()
    fold_and_cut(tokenizer, True, 2)  # which it does already
    assert tokenizer.backend_tokenizer.to_str() == before
    with pytest.raises(UserError, match="can neither lower-case nor cut"):
        fold_and_cut(PreTrainedTokenizerBase(), True, None)


def test_a_vocabulary_of_no_words_is_an_error() -> None:
    for part in (WhitespaceTokenizer(), WordTokenizer()):
        with pytest.raises(UserError, match="none of the 0 distinct words"):
            part.build([" "], [], [])
    with pytest.raises(UserError, match=r"none of the 2 distinct words .* comes 2 times"):
        WhitespaceTokenizer(min_count=2).build(["a b"], [], [])


def test_lengths_beyond_counting_are_a_problem_of_the_config() -> None:
    (problem,) = check(Tokenizer, {"type": "words", "max_tokens": 10**30}, "tokenizer")
    assert problem.path == "tokenizer.max_tokens"
    assert known(WhitespaceTokenizer(max_tokens=100_000), ["a b"]) == [["a", "b"]]


def test_an_emoji_is_one_token() -> None:
    texts = ["\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd"]
    texts += ["\u2764\ufe0f", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "!", "\u2026"]
    assert known(WordTokenizer(), [f"so{''.join(texts)} ok"]) == [["so", *texts, "ok"]]


def test_texts_in_batches() -> None:
    texts = [str(i) for i in range(5)]
    for given_as in (texts, iter(texts), tuple(texts)):
        assert list(in_batches(given_as, 2)) == [["0", "1"], ["2", "3"], ["4"]]
