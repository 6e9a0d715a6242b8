from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from sopa_plugin.data.tokenizers import Tokenizer, WhitespaceTokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.registry import check

TRAIN = ["b a b", "b c"]
DEV = ["d d d d"]
FILE = ["x", "b", ". . .", "y", "z"]
SHARED = Path(__file__).resolve().parents[4] / "shared"


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
    with pytest.raises(UserError, match="embedder has no frozen vectors"):
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
    built = WhitespaceTokenizer().build([text], [], [])
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
    assert [each.path for each in problems] == [
        "tokenizer.max_pretrained_words",
        "tokenizer.min_count",
    ]
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
