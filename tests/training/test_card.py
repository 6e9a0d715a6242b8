"""The model card shows names as they are, whatever is in them."""

from __future__ import annotations

import pytest
from datasets import Dataset

from sopa_plugin.data.readers.sst import SstReader
from sopa_plugin.training import card as card_module
from sopa_plugin.training.card import code, model_card, plain

LABELS = ["a|b", "`ticks`", "<script>alert(1)</script>", "line\nbreak", "\u202eright-to-left"]


class Reader(SstReader):
    """Data that are said to be anything."""

    def describe(self) -> str:
        return f"sentences from {self.path}"


def test_names_and_labels_are_escaped() -> None:
    card = model_card(
        "# run\n---\ntags: [x]",
        Reader("<b>_data_</b>"),
        {
            "train": Dataset.from_dict({"text": ["a"] * 3}),
            "dev": Dataset.from_dict({"text": ["b"] * 2}),
        },
        LABELS,
        {"model": {"type": "text_classifier", "head": {"type": "mlp"}}},
        {"validation_accuracy": 0.5, "best_epoch": 0, "parameters_total": 1234},
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
    assert "| dev | 0.5000 | – | – | – | – |" in text
    assert "Parameters: 1,234" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a_b", r"a\_b"), ("$1 & *2*", r"\$1 \& \*2\*"), ("plain words", "plain words")],
)
def test_plain(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_code_has_more_backticks_than_are_in_it() -> None:
    assert [code(each) for each in ("a", "a`b", "``")] == ["`a`", "``a`b``", "``` `` ```"]


def test_figures_by_class_and_an_example_of_its_own_data(monkeypatch: pytest.MonkeyPatch) -> None:
    by_class = {"a|b": {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "support": 7}}
    metrics = {"test_per_class": by_class, "test_calibration_error": 0.125, "temperature": 1.5}
    config = {"model": {"type": "text_classifier"}}
    texts = ["x" * 500, "``` ends the code", "tab\there", 'it\'s "my" card']
    monkeypatch.setattr(card_module, "imported_plugins", lambda: ["own"])
    data = {"dev": Dataset.from_dict({"text": texts})}
    card = model_card("run", Reader("data"), data, ["a|b"], config, metrics)
    assert "| test | – | – | – | 0.1250 | – |" in card
    assert r"| `a\|b` | 0.500 | 1.000 | 0.667 | 7 |" in card
    assert "a temperature of 1.500" in card
    assert r"""predict_texts(model, ["it's \"my\" card"])""" in card
    assert """echo 'it'"'"'s "my" card' | python -m sopa_plugin.predict""" in card
    assert "the packages `own`" in card
    data = {"dev": Dataset.from_dict({"text": texts[:3]})}
    assert "your own" in model_card("run", Reader("data"), data, [], config, {})
