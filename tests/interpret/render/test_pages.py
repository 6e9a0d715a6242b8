"""Pages and pictures parsed: whole, static, escaped, and right for any script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.interpret import (
    Contribution,
    DocumentExplanation,
    DocumentExplanations,
    Explainer,
    Explanation,
    Match,
    StateActivations,
    Step,
)
from sopa_plugin.interpret.render.markup import text_width
from sopa_plugin.interpret.report import Faithfulness, ModelReport

HOSTILE = ["<script>alert(1)</script>", "<b>", "&", '"quoted"', "\x00", "\ud800", "😀"]
HOSTILE += ["👩‍👩‍👧", "שלום", "עולם", ",", "مرحبا", "ＡＢ", "日本"]
VOID = {"meta", "br", "hr"}


class Page(HTMLParser):
    """Elements, attributes and text of a page; fails where elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def check_static(page: Page) -> None:
    for tag, attributes in page.elements:
        assert tag not in {"script", "iframe", "object", "embed", "link", "img", "base", "form"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name != "src"
            if name in ("href", "xlink:href"):
                assert (value or "").startswith("#")


def check_no_request(text: str) -> None:
    found = re.findall(r"(?:https?:)?//[\w.]+|url\(|@import", text)
    assert set(found) <= {"http://www.w3.org"}  # SVG's name space


@pytest.fixture
def hostile(make_explainer: Callable[..., Explainer], vectors: dict[str, np.ndarray]) -> Explainer:
    random = np.random.default_rng(0)
    vectors |= {word: random.normal(size=6) for word in HOSTILE}
    subject = make_explainer().subject
    return Explainer.from_encoder(subject.encoder, vectors, subject._head, subject.labels)


def explanations(explainer: Explainer) -> dict[str, Explanation]:
    document = ["the", *HOSTILE, "not", "good"]
    patterns = explainer.patterns([document, HOSTILE, ["bad", "film"]], k=3)
    return {
        "document": explainer.document(document, gold="neutral"),
        "patterns": patterns,
        "automata": patterns.automata(),
        "activations": explainer.activations(document, "5-1"),
    }


KINDS = ["document", "patterns", "automata", "activations"]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_whole_static_and_escaped(kind: str, hostile: Explainer) -> None:
    text = explanations(hostile)[kind].to_html()
    page = Page(text.removeprefix("<!DOCTYPE html>\n"))
    check_static(page)
    check_no_request(text)
    assert page.elements[0][0] == "html"
    text.encode("utf-8")  # no lone surrogate
    assert "\x00" not in text
    assert "prefers-color-scheme:dark" in text
    viewports = [a for tag, a in page.elements if a.get("name") == "viewport"]
    assert viewports[0]["content"] == "width=device-width, initial-scale=1"


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_are_whole_static_and_escaped(kind: str, hostile: Explainer) -> None:
    text = explanations(hostile)[kind].to_svg()
    check_no_request(text)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert width > 0
    assert height > 0
    for element in root.iter():
        name = element.tag.rpartition("}")[2]
        assert name not in {"script", "foreignObject", "image", "use", "a"}
        for value in element.attrib.values():
            assert "nan" not in value
            assert "inf" not in value
    assert "prefers-color-scheme:dark" in text


def test_the_text_of_a_document_is_there_word_for_word(hostile: Explainer) -> None:
    explanation = hostile.document(["the", *HOSTILE, "good"], shown=99)
    page = Page(explanation.html_body())
    text = re.sub(r"[▲▼]\d+|[\u200e\u200f]", "", "".join(page.text))
    shown = " ".join(["the", *HOSTILE, "good"]).replace("\x00", "�").replace("\ud800", "�")
    assert shown in text


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "report"])
def test_a_terminal_gets_no_control_character_of_a_document(
    kind: str, color: bool, make_explainer: Callable[..., Explainer], vectors: dict[str, Any]
) -> None:
    """Words and labels that would colour or move the cursor come out in visible form."""
    sequences = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\rover", "\x7f", "new\nline"]
    random = np.random.default_rng(1)
    vectors |= {word: random.normal(size=6) for word in sequences}
    plain = make_explainer().subject
    labels = ["\x1b[31mnegative", "neutral", "positive\x9b"]
    explainer = Explainer.from_encoder(plain.encoder, vectors, plain._head, labels)
    document = ["the", *sequences, "good"]
    patterns = explainer.patterns([document, sequences[::-1], ["bad", "film"]], k=3)
    explained = explainer.document(document, gold=labels[0], target=labels[2], shown=99)
    text = {
        "document": explained,
        "patterns": patterns,
        "automata": patterns.automata(),
        "activations": explainer.activations(document, "5-1"),
        "report": ModelReport(
            "\x1b[Hmodel", tuple(labels), {"accuracy": 1.0, "macro_f1": 1.0, "loss": 0.1,
            "examples": 1}, ((1, 0, 0),) * 3, patterns, Faithfulness(1, 0, 0, 0, 0),
            (explained,), (), (),
        ),
    }[kind].to_text(color)  # fmt: skip
    painted = re.sub(r"\x1b\[(?:34;1|33|2|1|35|0)m", "", text) if color else text
    assert (text != painted) == color
    assert not [c for c in painted if unicodedata.category(c) == "Cc" and c != "\n"]
    assert "␛[2J" in text
    assert "new␊line" in text


def test_direction_is_left_to_the_text(hostile: Explainer) -> None:
    page = Page(hostile.document(HOSTILE).html_body())
    (spans,) = [a for _, a in page.elements if "spans" in (a.get("class") or "").split()]
    assert spans["dir"] == "auto"


def test_right_to_left_words_stand_right_to_left_in_a_picture(
    make_explainer: Callable[..., Explainer],
) -> None:
    words = ["שלום", "עולם", "good", "film"]
    root = ElementTree.fromstring(make_explainer().document(words).to_svg())
    places = {e.text: float(e.attrib["x"]) for e in root.iter() if e.text in words}
    assert places["שלום"] > places["עולם"] > places["film"] > places["good"]
    inverse = ["good", "film", "שלום", "עולם"]
    root = ElementTree.fromstring(make_explainer().document(inverse).to_svg())
    places = {e.text: float(e.attrib["x"]) for e in root.iter() if e.text in words}
    assert places["good"] < places["film"] < places["עולם"] < places["שלום"]


def test_words_of_a_picture_do_not_overlap(make_explainer: Callable[..., Explainer]) -> None:
    words = [f"word{n}" for n in range(60)]
    root = ElementTree.fromstring(make_explainer().document(words).to_svg())
    lines: dict[str, list[tuple[float, float]]] = {}
    for element in root.iter():
        if element.text in words:
            place = float(element.attrib["x"]), float(element.attrib["textLength"])
            lines.setdefault(element.attrib["y"], []).append(place)
    assert len(lines) > 3
    for places in lines.values():
        for (left, width), (following, _) in zip(sorted(places), sorted(places)[1:], strict=False):
            assert left + width < following
        assert max(left + width for left, width in places) <= float(root.attrib["width"])


LABEL = "more recommendable than anything else that was seen this year"


@pytest.mark.parametrize("kind", ["document", "patterns"])
def test_the_text_of_a_picture_is_not_cut_off(
    kind: str, make_explainer: Callable[..., Explainer]
) -> None:
    """Whole lines of text: legends, facts, and labels of any length."""
    plain = make_explainer(self_loops="none", epsilons=False).subject
    labels = [f"{LABEL} {n}" for n in range(3)]
    explainer = Explainer.from_encoder(plain.encoder, plain._vectors, plain._head, labels)
    words = ["good", "film"]
    made = {"document": explainer.document(words), "patterns": explainer.patterns([words], k=1)}
    root = ElementTree.fromstring(made[kind].to_svg())
    edges = []
    for group in [root, *root.iterfind("{*}g")]:
        frame = root if group is root else group.find("{*}rect")
        for text in group.iterfind("{*}text"):
            size = float(text.attrib["font-size"])
            width = text_width(text.text or "", size)
            if text.attrib.get("text-anchor") is None:
                edges.append(float(text.attrib["x"]) + width <= float(frame.attrib["width"]))
    assert len(edges) > 4
    assert all(edges)


def test_the_lines_of_a_terminal_stand_below_their_words() -> None:
    """Keys wider than their words take further lines instead of pushing the next ones on."""
    effects = {"5-1": 0.5, "5-2": 0.4, "5-3": 0.3, "5-4": -0.2}
    places = {"5-1": 0, "5-2": 0, "5-3": 1, "5-4": 3}
    contributions = tuple(
        Contribution(
            name,
            0.5,
            Match(name, 2, 0.5, 0, at, at + 1, (Step("main_path", 0, 0.5, at, "a"),)),
            {"no": -effects[name], "yes": effects[name]},
        )
        for name, at in places.items()
    )
    explanation = DocumentExplanation(
        ("a", "b", "c", "film"),
        {"no": 0.1, "yes": 0.9},
        "yes",
        None,
        contributions,
        9,
        "zero",
        0,
        0,
    )
    lines = explanation.to_text().splitlines()
    start = lines.index("a b c film")
    assert lines[start + 1 : start + 4] == ["▲1▲2  ▼4╍╍", "  ▲3", ""]


def test_the_best_path_of_a_terminal_has_its_epsilons() -> None:
    steps = (
        Step("epsilon", 0, 0.5),
        Step("main_path", 1, 0.5, 1, "b"),
        Step("epsilon", 2, 0.5),
    )
    match = Match("4-1", 4, 0.125, 0, 1, 2, steps)
    values = ((0.1,) * 4, (1.0,) * 4)
    rows = StateActivations("4-1", ("a", "b"), values, match).to_text().splitlines()[2:]
    assert rows == [
        "START   ░   █",
        "    1  [░]  █",
        "    2   ░  [█]",
        "  END   ░  [█]",
    ]


def test_two_thousand_words(make_explainer: Callable[..., Explainer]) -> None:
    random = np.random.default_rng(1)
    words = [str(word) for word in random.choice(["good", "bad", "film", "very", ","], size=2000)]
    explanation = make_explainer().document(words, shown=99)
    page = Page(explanation.html_body())
    assert "".join(page.text).count("film") >= words.count("film")
    ElementTree.fromstring(explanation.to_svg())
    assert len(explanation.to_text().splitlines()) > 100


def test_sign_has_a_second_mark_besides_its_colour(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer()
    seen = set()
    for words in documents:
        explanation = explainer.document(words)
        page = Page(explanation.html_body())
        for _, attributes in page.elements:
            classes = (attributes.get("class") or "").split()
            if "key" in classes:
                seen.add(classes[1])
        for rank, item in enumerate(explanation.shown, start=1):
            mark = "▲" if item.effect[explanation.target] > 0 else "▼"
            assert f"{mark}{rank}" in "".join(page.text)
            assert f"{mark}{rank}" in explanation.to_text()
    assert seen == {"for", "against"}


def test_overlapping_spans_lie_on_lines_of_their_own(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    from sopa_plugin.interpret.render.spans import lay_spans

    explainer = make_explainer(patterns={2: 3, 3: 3, 5: 3})
    overlaps = 0
    for words in documents:
        if words:
            subject = explainer.subject
            subject._head = lambda vectors: vectors[:, :3]
            spans = lay_spans(explainer.document(words, shown=99))
            for a in spans:
                for b in spans:
                    if a.rank < b.rank and a.start < b.end and b.start < a.end:
                        overlaps += 1
                        same = a[:2] == b[:2] and a.effect * b.effect > 0
                        assert (a.lane == b.lane) == same
    assert overlaps > 0


def test_colour_only_where_it_is_wanted(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer()
    for explanation in (explainer.document(documents[9]), explainer.patterns(documents, k=2)):
        plain, colored = explanation.to_text(), explanation.to_text(color=True)
        assert "\x1b" not in plain
        assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain
        assert colored != plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_python_terminal_shows_the_text(kind: str, hostile: Explainer) -> None:
    explanation = explanations(hostile)[kind]
    assert repr(explanation) == explanation.to_text()


def test_notebooks_show_a_fragment_that_brings_its_style(
    make_explainer: Callable[..., Explainer],
) -> None:
    text = make_explainer().document(["good"])._repr_html_()
    page = Page(text)
    assert [tag for tag, _ in page.elements[:2]] == ["div", "style"]
    assert "html" not in {tag for tag, _ in page.elements}
    check_static(page)


def test_several_documents_are_one_page_but_no_picture(
    make_explainer: Callable[..., Explainer],
) -> None:
    explainer = make_explainer()
    several = DocumentExplanations((explainer.document(["good"]), explainer.document(["bad"])))
    check_static(Page(several.html_body()))
    assert several.to_text().count("log-odds") == 2
    with pytest.raises(UserError, match="not one picture: choose text, json or html"):
        several.to_svg()


@pytest.mark.parametrize("suffix", [".html", ".svg", ".json", ".txt"])
def test_save_picks_the_form_by_suffix(
    suffix: str, make_explainer: Callable[..., Explainer], tmp_path
) -> None:
    explanation = make_explainer().document(["good", "film"])
    file = tmp_path / "new" / f"why{suffix}"
    explanation.save(file)
    beginnings = {".html": "<!DOCTYPE html>", ".svg": "<svg", ".json": "{"}
    beginnings[".txt"] = f"{explanation.predicted}; explained:"
    text = file.read_text(encoding="utf-8")
    assert text.startswith(beginnings[suffix])
