from __future__ import annotations

from pathlib import Path

import pytest

from sopa_plugin.data.tokenizers import Tokenizer, WhitespaceTokenizer
from sopa_plugin.errors import UserError


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
