"""Every explanation in every form: whole, static, escaped."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.interpret import DocumentExplanations, Explainer, Explanation
from sopa_plugin.interpret.comparison import Comparison, Flip, PatternPair
from sopa_plugin.interpret.faithfulness import measure
from sopa_plugin.interpret.leave_one_out import Use
from sopa_plugin.interpret.markup import class_keys, columns, style, text_width, visible
from sopa_plugin.interpret.patterns import PatternReading
from sopa_plugin.interpret.report import Line, ModelReport, chart
from sopa_plugin.interpret.rules import ArcChange, Doing, RuleReading, RulesReading

HOSTILE = ["<script>alert(1)</script>", "<b>", "&", '"quoted"', "'", "{{7*7}}", "\x00", "\ud800"]
HOSTILE += ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\rover", "\x7f", "new\nline", "\u202eturned"]
HOSTILE += ["😀", "👩‍👩‍👧", "שלום", "עולם", ",", "مرحبا", "ＡＢ", "日本"]
LABELS = ["\x1b[31m<i>negative</i>", "neutral", 'positive" onload="alert(1)\x9b']
PICTURES = ["document", "patterns", "automata", "activations"]
KINDS = [*PICTURES, "documents", "report", "concordance", "rules", "comparison"]


@pytest.fixture
def hostile(
    make_explainer: Callable[..., Explainer], vectors: dict[str, np.ndarray]
) -> dict[str, Explanation]:
    """Explanations by kind, hostile words, labels and names in them."""
    random = np.random.default_rng(0)
    vectors |= {word: random.normal(size=6) for word in HOSTILE}
    subject = make_explainer().subject
    explainer = Explainer.from_encoder(subject.encoder, vectors, subject._head, LABELS)
    words = ["the", *HOSTILE, "not", "good"]
    document = explainer.document(words, gold=LABELS[0], target=LABELS[2], shown=99)
    patterns = explainer.patterns([words, HOSTILE, HOSTILE[::-1], ["bad", "film"]], k=3)
    thresholds = {each.name: each.threshold for each in patterns}
    where = explainer.where([words, HOSTILE], [0, 2], thresholds)
    metrics = {"accuracy": 1.0, "macro_f1": 1.0, "loss": 0.1, "examples": 1}
    metrics["calibration_error"] = 0.1
    confusion, faithful = ((1, 0, 0),) * 3, measure(explainer, "<b>model", [words])
    doing, words_of = Doing(LABELS[0], 1.0, 3), dict.fromkeys(HOSTILE[:14], 2)
    arc = ArcChange("\x1b[31m<i>rule", "arc 1", words_of, words_of)
    rule = RuleReading("<b>\x9b31m", "\x1b[2J<b>", doing, Doing(None, 0.0, 0), 0, [arc])
    rules = RulesReading((rule,), 4, ("bad", "good"))
    figures = {f"dev_{name}": figure for name, figure in metrics.items()}
    flip = Flip(" ".join(words), document, explainer.document(["bad"], gold=LABELS[0]))
    pair = PatternPair(patterns[0], patterns[1], 0.5)
    return {
        "rules": rules,
        "comparison": Comparison(
            ("<b>\x1b", "\rover"), "dev", figures, figures, (flip,), (pair,), (("<b>",), ())
        ),
        "concordance": max(where.values(), key=lambda each: len(each.places)),
        "document": document,
        "patterns": patterns,
        "automata": patterns.automata(),
        "activations": explainer.activations(words, "5-1"),
        "documents": DocumentExplanations((document, explainer.document(["bad"]))),
        "report": ModelReport(
            "\x1b[H<b>model", tuple(LABELS), metrics, confusion, patterns, where, faithful,
            (document,), (document,), (document,), (), ((1, 0.9, 0), (3, 2.9, 2)),
            "<b>.csv\x1b", ((0.9, 0.8), (0.5, math.nan), (0.4, 0.6)), 1, rules,
        ),
    }  # fmt: skip


def check_static(root: ElementTree.Element) -> None:
    for element in root.iter():
        name = element.tag.rpartition("}")[2]
        assert name not in {"script", "iframe", "object", "embed", "link", "img", "base", "form"}
        assert name not in {"foreignObject", "image", "use", "i"}
        assert not [key for key in element.attrib if key.startswith("on") or key == "src"]
        assert element.get("href", "#").startswith("#")
        for value in element.attrib.values():
            assert not re.search(r"\b(nan|inf)\b", value)


def check_text(text: str) -> None:
    """No request, no control character, a style for both colour schemes."""
    found = re.findall(r"(?:https?:)?//[\w.]+|url\(|@import", text)
    assert set(found) <= {"http://www.w3.org"}  # SVG's name space
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"]
    assert "\u202e" not in text
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_whole_static_and_escaped(kind: str, hostile: dict[str, Explanation]) -> None:
    text = hostile[kind].to_html()
    check_text(text)
    start, page = text.split("\n", 1)
    assert start == "<!DOCTYPE html>"
    root = ElementTree.fromstring(page)  # what is not closed in order fails here
    check_static(root)
    (viewport,) = root.findall("./head/meta[@name='viewport']")
    assert viewport.get("content") == "width=device-width, initial-scale=1"
    shown = "".join(root.find("body").itertext())
    assert any(word in shown for word in ("<script>", "<b>", "<i>"))


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_are_whole_static_and_escaped(kind: str, hostile: dict[str, Explanation]) -> None:
    text = hostile[kind].to_svg()
    check_text(text)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.attrib["width"]) > 0
    assert float(root.attrib["height"]) > 0
    check_static(root)


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_terminal_gets_no_control_character(
    kind: str, color: bool, hostile: dict[str, Explanation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words and labels that would colour or move the cursor come out in visible form."""
    monkeypatch.setenv("COLUMNS", "900")  # so that all of the text is shown
    plain, text = hostile[kind].to_text(), hostile[kind].to_text(color)
    assert re.sub(r"\x1b\[(?:34;1|33|2|1|0)m", "", text) == plain
    assert (text != plain) == color
    assert not [c for c in plain if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"]
    assert "␛[2J" in plain
    assert "new␊line" in plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_python_terminal_shows_the_text(kind: str, hostile: dict[str, Explanation]) -> None:
    assert repr(hostile[kind]) == hostile[kind].to_text()


def body(explanation: Explanation) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{explanation.html_body()}</div>")


def test_effects_and_confusions_are_shaded(hostile: dict[str, Explanation]) -> None:
    report = hostile["report"]
    confused, effects = (
        [e.get("style", "") for e in table.iter("td") if "--shade" in e.get("style", "")]
        for table in body(report).iter("table")
        if table.find(".//td[@style]") is not None and table.find(".//td/table") is None
        and any("--shade" in e.get("style", "") for e in table.iter("td"))
    )  # fmt: skip
    assert len(confused) == 3 * 3  # of each label one document, all given the first
    assert [each.split(";")[0] for each in confused[:2]] == ["--shade:50%", "--shade:0%"]
    assert ["blue" in each for each in confused[::3]] == [True, False, False]
    assert len(effects) == 5 * 3
    assert any("--shade:50%" in each for each in effects)


def test_classes_without_documents_are_left_out_of_the_confusions(
    hostile: dict[str, Explanation],
) -> None:
    report = replace(hostile["report"], confusion=((2, 0, 1), (0, 0, 0), (0, 0, 0)))
    assert report.confused == {
        LABELS[0]: {LABELS[0]: 2, LABELS[2]: 1},
        LABELS[2]: {LABELS[0]: 0, LABELS[2]: 0},
    }
    assert "1 classes are left out" in report.html_body()


@pytest.mark.parametrize("kind", ["document", "report", "concordance", "comparison"])
def test_classes_have_a_letter_and_a_hue(kind: str, hostile: dict[str, Explanation]) -> None:
    root = body(hostile[kind])
    found = {
        e.get("title"): (e.text, e.get("style"))
        for e in root.iter("b")
        if e.get("class") == "class"
    }
    assert found
    names = [visible(label) for label in LABELS]
    assert [found[name][0] for name in names if name in found] == [
        letter for name, letter in zip(names, "3NP", strict=True) if name in found
    ]
    assert len({hue for _, hue in found.values()}) == len(found)


def test_links_lead_from_phrases_to_cards_and_from_places_to_errors(
    hostile: dict[str, Explanation],
) -> None:
    root = body(hostile["report"])
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    links = {link.get("href").removeprefix("#") for link in root.iter("a")}
    assert len(ids) == len(set(ids))
    assert links <= set(ids)
    assert {"pattern-5-1", "error-0", "errors", "examples-1"} <= links
    # a link opens what it leads into: the facts of a card, not the card
    parents = {child: parent for parent in root.iter() for child in parent}
    (card,) = (parents[each] for each in root.iter() if each.get("id") == "pattern-5-1")
    assert card.tag == "details"
    assert card.get("open") is None


def test_a_chart_lies_within_its_box() -> None:
    points = [(0.0, 3.0), (7.0, -0.25), (11.0, 1.0)]
    made = chart([Line("it", "dashed", points, [(2.0, "a <dot>")] * 3)], "a", "b", (7.0, "kept"))
    root = ElementTree.fromstring(made.svg("Chart"))
    drawn = [
        tuple(map(float, each.split(",")))
        for each in root.find(".//{*}polyline").attrib["points"].split()
    ]
    assert [x for x, _ in drawn] == sorted(x for x, _ in drawn)
    assert min(y for _, y in drawn) == drawn[0][1]
    assert max(y for _, y in drawn) == drawn[1][1]
    assert all(0 < x < made.width and 0 < y < made.height for x, y in drawn)
    assert len(root.findall(".//{*}circle")) == 3
    ticks = {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"0", "5", "10", "1", "2", "3", "it", "kept"} <= ticks
    flat = ElementTree.fromstring(
        chart([Line("", "", [(1.0, 0.5), (2.0, 0.5)])], "a", "b", None).svg("Chart")
    )
    check_static(flat)
    assert [each.text for each in flat.iterfind("{*}text[@text-anchor='middle']")] == [
        "1",
        "2",
        "a",
    ]


def test_the_calibration_curve_has_a_dot_for_each_bin_with_documents(
    hostile: dict[str, Explanation],
) -> None:
    svg = hostile["report"].calibration_curve.svg("Curve")
    says = [each.text for each in ElementTree.fromstring(svg).iterfind(".//{*}circle/{*}title")]
    assert says == ["1 documents: 90 % sure, 0 % right", "3 documents: 97 % sure, 67 % right"]


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
        box = group.find("{*}rect[@rx]") if kind == "patterns" else root
        for text in group.iterfind("{*}text"):
            width = text_width(text.text or "", float(text.attrib["font-size"]))
            if text.get("text-anchor") is None:
                edges.append(float(text.attrib["x"]) + width <= float(box.attrib["width"]))
    assert len(edges) > 4
    assert all(edges)


def test_notebooks_show_a_fragment_that_brings_its_style(
    make_explainer: Callable[..., Explainer],
) -> None:
    root = ElementTree.fromstring(make_explainer().document(["good"])._repr_html_())
    assert (root.tag, root[0].tag) == ("div", "style")
    check_static(root)


@pytest.mark.parametrize(
    "theirs",
    [
        ".jp-RenderedHTMLCommon tbody tr:nth-child(odd)",  # JupyterLab
        ":not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon tr",
        "div.rendered_html tbody tr:nth-child(odd)",  # nbsphinx
        "div.rendered_html table",
    ],
)
def test_the_style_of_a_notebook_does_not_colour_our_tables(theirs: str) -> None:
    """Rows striped for another colour scheme than the text would be unreadable."""

    def weight(selector: str) -> tuple[int, int]:
        """Its specificity: classes and their like, elements."""
        classes = len(re.findall(r"[.\[]|:(?!not)", selector))
        return classes, len(re.findall(r"(?:^|\s)[a-z]", selector))

    element = "table" if theirs.endswith("table") else "tr"
    ours = next(rule for rule in style(page=True).split("}") if f".sopa {element}{{" in rule
                or f".sopa {element}," in rule)  # fmt: skip
    selectors, _, declared = ours.partition("{")
    assert "background:none" in declared
    assert "color:var(--ink)" in declared
    assert all(weight(each.strip()) > weight(theirs) for each in selectors.split(","))


def test_several_documents_are_one_page_but_no_picture(
    make_explainer: Callable[..., Explainer],
) -> None:
    explainer = make_explainer()
    several = DocumentExplanations((explainer.document(["good"]), explainer.document(["bad"])))
    assert several.to_html().count("<h1>") == several.to_text().count("log-odds") == 2
    with pytest.raises(UserError, match="not one picture: choose text, json or html"):
        several.to_svg()


@pytest.mark.parametrize("suffix", [".html", ".svg", ".json", ".txt"])
def test_save_picks_the_form_by_suffix(
    suffix: str, make_explainer: Callable[..., Explainer], tmp_path: Any
) -> None:
    explanation = make_explainer().document(["good", "film"])
    file = tmp_path / "new" / f"why{suffix}"
    explanation.save(file)
    text = file.read_text(encoding="utf-8")
    match suffix:
        case ".html":
            assert text.startswith("<!DOCTYPE html>")
        case ".svg":
            assert text.startswith("<svg")
        case ".json":
            assert json.loads(text) == explanation.to_dict()
        case _:
            assert text == explanation.to_text() + "\n"


@pytest.mark.parametrize(
    ("skipped", "looped", "told"),
    [
        (
            (0.0, 0.0, 1.0),
            (0.0, 0.0),
            "nearly always does without its last word · hardly ever takes more words between",
        ),
        (
            (0.3, 0.01, 0.0),
            (0.0, 0.5),
            "does without its 1st word in 30 % of its matches · "
            "takes more words behind its 2nd in 50 % of its matches",
        ),
        (
            (0.0, 0.04, 0.0),
            (0.0, 0.01),
            "hardly ever does without a word or takes more words between",
        ),
    ],
)
def test_what_matches_do_is_said_of_words_not_of_states(
    skipped: tuple[float, ...], looped: tuple[float, ...], told: str
) -> None:
    taken = {("epsilon", state): share for state, share in enumerate(skipped)}
    taken |= {("self_loop", state): share for state, share in enumerate(looped, start=1)}
    use = Use(0.0, 0.0, 1.0, 1.0, 0.0, 9, taken, {})
    pattern = PatternReading("4-1", 4, (), 1.0, 0.5, 1.0, 0.7, 0.1, {}, use=use)
    assert " · ".join(pattern.habits) == told


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("kind", ["rules", "automata"])
def test_text_is_as_wide_as_the_terminal(
    kind: str, width: int, hostile: dict[str, Explanation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(columns, hostile[kind].to_text().split("\n"))) <= width


def test_confusions_stand_below_the_letters_of_classes(hostile: dict[str, Explanation]) -> None:
    lines = hostile["report"].to_text().split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith("labelled / predicted"))
    head, *rows = lines[start : start + 4]
    letters = [key.letter for key in class_keys(tuple(LABELS)).values()]
    assert head.split()[3:] == letters
    assert [row.split()[-4:] for row in rows] == [[each, "1", "0", "0"] for each in letters]
    assert {columns(row) for row in rows} == {columns(head)}
