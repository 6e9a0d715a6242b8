"""The model card shows names as they are, whatever is in them."""

from __future__ import annotations

import pytest

from sopa_plugin.training.card import code, model_card, plain

LABELS = ["a|b", "`ticks`", "<script>alert(1)</script>", "line\nbreak", "\u202eright-to-left"]


def test_names_and_labels_are_escaped() -> None:
    card = model_card(
        "# run\n---\ntags: [x]",
        "sentences from <b>_data_</b>",
        False,
        LABELS,
        {"train": 3, "dev": 2},
        {"model": {"type": "text_classifier", "head": {"type": "mlp"}}},
        {"validation_accuracy": 0.5, "best_epoch": 0, "parameters_total": 1234},
        [],
    )
    front, text = card.removeprefix("---\n").split("\n---\n", 1)
    assert front.splitlines() == [
        "library_name: transformers",
        "pipeline_tag: text-classification",
        "tags:",
        "- sopa_plugin",
        "- soft-patterns",
    ]
    assert r"# \# run\\x0a---\\x0atags: \[x\]" in text
    assert r"sentences from \<b\>\_data\_\</b\>: 3 train, 2 dev." in text
    (classes,) = [line for line in text.splitlines() if line.startswith("Classes: ")]
    assert classes == (
        r"Classes: `a|b`, `` `ticks` ``, `<script>alert(1)</script>`, `line\x0abreak`, "
        r"`\x202eright-to-left`."
    )
    assert "| dev | 0.5000 | – | – | – |" in text
    assert "Parameters: 1,234" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a_b", r"a\_b"), ("$1 & *2*", r"\$1 \& \*2\*"), ("plain words", "plain words")],
)
def test_plain(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_code_has_more_backticks_than_are_in_it() -> None:
    assert [code(each) for each in ("a", "a`b", "``")] == ["`a`", "``a`b``", "``` `` ```"]
