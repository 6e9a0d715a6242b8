"""A document's spans: where they are drawn, in a terminal and in a picture."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from sopa_plugin.interpret import Contribution, DocumentExplanation, Explainer, Match, Step

Places = list[tuple[int, int, float]]


def explain(words: list[str], places: Places, **values: Any) -> DocumentExplanation:
    """Contributions of patterns that match `start, end` with some effect on `yes`."""
    contributions = tuple(
        Contribution(
            f"2-{n}",
            0.5,
            Match(
                f"2-{n}", 2, 0.5, 0, start, end,
                tuple(Step("main_path", 0, 0.5, at, words[at]) for at in range(start, end)),
            ),
            {"no": -effect, "yes": effect},
        )
        for n, (start, end, effect) in enumerate(places, start=1)
    )  # fmt: skip
    given = {"probabilities": {"no": 0.1, "yes": 0.9}, "target": "yes", "gold": None}
    given |= {"shown_patterns": 99, "replacement": "zero", **values}
    faithful = {"comprehensiveness": 0.0, "sufficiency": 0.0}
    return DocumentExplanation(tuple(words), contributions=contributions, **(faithful | given))


def places_of(words: list[str], explanation: DocumentExplanation) -> list[tuple[str, float, float]]:
    """The words of the picture, with line and left edge."""
    root = ElementTree.fromstring(explanation.to_svg())
    return [
        (each.text or "", float(each.attrib["y"]), float(each.attrib["x"]))
        for each in root.iterfind("{*}g/{*}text")
        if each.text in words
    ]


def test_the_lines_of_a_terminal_stand_below_their_words() -> None:
    """Keys wider than their words take further lines instead of pushing the next ones on."""
    found = explain(["a", "b", "c", "film"], [(0, 1, 0.5), (0, 1, 0.4), (1, 2, 0.3), (3, 4, -0.2)])
    lines = found.to_text().splitlines()
    start = lines.index("a b c film")
    assert lines[start + 1 : start + 4] == ["▲1▲2  ▼4╍╍", "  ▲3", ""]


def test_a_span_goes_on_in_the_next_line_of_a_terminal() -> None:
    words = ["x" * 38, "y" * 38, "z" * 5, "end"]
    lines = explain(words, [(1, 3, 0.5)]).to_text().splitlines()
    assert lines[2] == f"{words[0]} {words[1]}"
    assert lines[3] == " " * 39 + "▲1" + "━" * 36
    assert lines[4:6] == ["zzzzz end", "━━━━━"]


def test_overlapping_spans_lie_on_lines_of_their_own(
    make_explainer: Callable[..., Explainer], documents: list[list[str]]
) -> None:
    explainer = make_explainer(patterns={2: 3, 3: 3, 5: 3})
    explainer.subject._head = lambda vectors: vectors[:, :3]
    overlaps = 0
    for words in filter(None, documents):
        spans = explainer.document(words, shown=99).spans()
        for a in spans:
            for b in spans:
                if a.rank < b.rank and a.start < b.end and b.start < a.end:
                    overlaps += 1
                    same = a[:2] == b[:2] and a.effect * b.effect > 0
                    assert (a.lane == b.lane) == same
    assert overlaps > 0


def test_words_of_a_picture_do_not_overlap() -> None:
    words = [f"word{n}" for n in range(60)]
    found = explain(words, [(3, 5, 1.0), (4, 5, -1.0), (20, 40, 0.5)])
    root = ElementTree.fromstring(found.to_svg())
    lines: dict[str, list[tuple[float, float]]] = {}
    for element in root.iter():
        if element.text in words:
            place = float(element.attrib["x"]), float(element.attrib["textLength"])
            lines.setdefault(element.attrib["y"], []).append(place)
    assert len(lines) > 3
    for places in lines.values():
        for (left, width), (following, _) in pairwise(places):
            assert left + width < following
        assert max(left + width for left, width in places) <= float(root.attrib["width"])


@pytest.mark.parametrize(
    ("words", "mirrored"),
    [(["שלום", "עולם", "good"], True), (["good", "עולם"], False), (["1", "«", "שלום"], True)],
)
def test_a_text_from_right_to_left_stands_at_the_right(words: list[str], mirrored: bool) -> None:
    found = explain(words, [])
    assert found.right_to_left == mirrored
    left = [x for _, _, x in places_of(words, found)]
    assert left == sorted(left, reverse=mirrored)
    details = ElementTree.fromstring(f"<div>{found.html_body()}</div>").find(".//details")
    assert details.get("open") == ("open" if mirrored else None)
    assert (details.find("p").get("dir"), details.find("p").text) == ("auto", " ".join(words))


def test_sign_has_a_second_mark_besides_its_colour() -> None:
    found = explain(["a", "b"], [(0, 1, 0.5), (1, 2, -0.4)])
    body = ElementTree.fromstring(f"<div>{found.html_body()}</div>")
    keys = {e.text: e.get("class") for e in body.iter("{http://www.w3.org/2000/svg}text")}
    assert keys["▲1"] == "strong for"
    assert keys["▼2"] == "strong against"
    rows = ["".join(row.itertext()).split()[0] for row in body.iterfind(".//table/tr")]
    assert rows == ["▲1", "▼2"]
    assert "▲1" in found.to_text()
    assert "▼2" in found.to_text()


def test_a_phrase_marks_what_loops_and_epsilons_did() -> None:
    steps = (
        Step("epsilon", 0, 0.5),
        Step("main_path", 1, 0.5, 0, "un"),
        Step("main_path", 2, 0.5, 1, "##funny"),
        Step("self_loop", 3, 0.5, 2, "so"),
        Step("main_path", 3, 0.5, 3, "<b>"),
    )
    match = Match("5-1", 5, 0.5, 0, 0, 4, steps)
    found = DocumentExplanation(
        ("un", "##funny", "so", "<b>"), {"no": 0.1, "yes": 0.9}, "yes", None,
        (Contribution("5-1", 0.5, match, {"no": -1, "yes": 1}),), 9, "zero", 0, 0,
    )  # fmt: skip
    cell = ElementTree.fromstring(f"<div>{found.html_body()}</div>").find(".//td/span[@dir]")
    assert "".join(cell.itertext()) == "ε unfunny ↻so <b>"
    assert [span.get("class") for span in cell] == ["muted", "looped"]


def test_two_thousand_words(make_explainer: Callable[..., Explainer]) -> None:
    random = np.random.default_rng(1)
    words = [str(word) for word in random.choice(["good", "bad", "film", "very", ","], size=2000)]
    explanation = make_explainer().document(words, shown=99)
    assert " ".join(words) in explanation.to_html()
    ElementTree.fromstring(explanation.to_svg())
    assert len(explanation.to_text().splitlines()) > 100
