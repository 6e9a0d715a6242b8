from __future__ import annotations

import pytest

from sopa_plugin.data.tokenizers import Tokenizer, WordTokenizer


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
    tokenizer = WordTokenizer(vocabulary="train").build([text], [], [])
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
    from transformers import AutoTokenizer

    text = "Don't go: it's over."
    tokenizer = WordTokenizer(vocabulary="train").build([text], [], [])
    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).tokenize(text) == tokenizer.tokenize(text)
