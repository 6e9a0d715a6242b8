"""A document's spans: where they are drawn, in a terminal and in a picture."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from sopa_plugin.interpret import (
    Contribution,
    DocumentExplanation,
    DocumentExplanations,
    Explainer,
    Match,
    Step,
)
from sopa_plugin.interpret.markup import class_keys, columns

Places = list[tuple[int, int, float]]


def explain(words: list[str], places: Places, **values: Any) -> DocumentExplanation:
    """Contributions of patterns that match `start, end` with some effect on `yes`."""
    contributions = tuple(
        Contribution(
            f"2-{n}",
            0.5,
            {
                f"2-{n}": Match(
                    f"2-{n}", 2, 0.5, 0, start, end,
                    tuple(Step("main_path", 0, 0.5, at, words[at]) for at in range(start, end)),
                ),
            },
            {"no": -effect, "yes": effect},
        )
        for n, (start, end, effect) in enumerate(places, start=1)
    )  # fmt: skip
    given = {"probabilities": {"no": 0.1, "yes": 0.9}, "target": "yes", "gold": None}
    given |= {"shown_patterns": 99, "replacement": "zero", **values}
    given = {"comprehensiveness": 0.0, "sufficiency": 0.0} | given
    return DocumentExplanation(tuple(words), contributions=contributions, **given)


def places_of(words: list[str], explanation: DocumentExplanation) -> list[tuple[str, float, float]]:
    """The words of the picture, with line and left edge."""
    root = ElementTree.fromstring(explanation.to_svg())
    return [
        (each.text or "", float(each.attrib["y"]), float(each.attrib["x"]))
        for each in root.iterfind("{*}g/{*}text")
        if each.text in words
    ]


def test_the_lines_of_a_terminal_stand_below_their_words() -> None:
    """One of each contribution, the largest first; a key may be wider than its words."""
    found = explain(["a", "b", "c", "film"], [(0, 1, 0.5), (1, 3, 0.4), (3, 4, -0.2)])
    lines = found.to_text().splitlines()
    start = lines.index("a b c film")
    assert lines[start + 1 : start + 5] == ["▲1", "  ▲2━", "      ▼3╍╍", ""]


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


def test_the_marked_words_are_the_text_and_the_larger_contribution_counts() -> None:
    words = ["a", "b", "##c", "d", "e"]
    found = explain(words, [(0, 2, 0.5), (1, 4, -0.4)])
    assert found.marked == [("for", "a b"), ("against", "c d"), ("", " e")]
    assert "".join(text for _, text in explain(words, []).marked) == "a bc d e"


def test_the_page_has_the_text_in_its_own_direction() -> None:
    words = ["שלום", "עולם", "good"]
    found = ElementTree.fromstring(f"<div>{explain(words, []).html_body()}</div>")
    text = found.find(".//details/p")
    assert (text.get("dir"), text.text) == ("auto", " ".join(words))


def test_sign_has_a_second_mark_besides_its_colour() -> None:
    found = explain(["a", "b"], [(0, 1, 0.5), (1, 2, -0.4)])
    body = ElementTree.fromstring(f"<div>{found.html_body()}</div>")
    keys = {e.text: e.get("class") for e in body.iter("{http://www.w3.org/2000/svg}text")}
    assert keys["▲1"] == "strong for"
    assert keys["▼2"] == "strong against"
    rows = ["".join(row.itertext()).split()[0] for row in body.iterfind(".//table/tr")]
    assert [each for each in rows if each[0] in "▲▼"] == ["▲1", "▼2"]
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
        (Contribution("5-1", 0.5, {"5-1": match}, {"no": -1, "yes": 1}),), 9, "zero", 0, 0,
    )  # fmt: skip
    cell = ElementTree.fromstring(f"<div>{found.html_body()}</div>").find(".//td/span[@dir]")
    assert "".join(cell.itertext()) == "ε unfunny ↻so <b>"
    assert [span.get("class") for span in cell] == ["muted", "looped"]


def test_of_two_thousand_words_those_around_what_is_marked_are_drawn() -> None:
    words = [f"w{n}" for n in range(2000)]
    found = explain(words, [(0, 2, 0.5), (1000, 1003, -0.4)])
    kept = [*words[:14], "…", *words[988:1015], "…"]
    drawn = [text for text, _, _ in places_of([*words, "…"], found)]
    assert drawn == kept
    text = found.to_text()
    assert " ".join(re.findall(r"w\d+|…", text.split("log-odds")[0])) == " ".join(kept)
    assert found.to_html().count(" ".join(words)) == 1  # folded
    assert found.to_dict()["tokens"] == words
    assert len(explain(words[:150], [(0, 2, 0.5)]).words()) == 150
    unmarked = explain(words, []).words()
    assert [text for _, text in unmarked.values()] == [*words[:24], "…"]


def test_rows_of_the_table_lead_to_their_places() -> None:
    document = explain(["a", "b"], [(0, 1, 0.5), (1, 2, -0.4), (0, 0, 0.3)])
    other = explain(["c"], [(0, 1, 0.5)])
    page = DocumentExplanations((document, other)).html_body()
    root = ElementTree.fromstring(f"<div>{page}</div>")
    links = {link.text: link.get("href") for link in root.iterfind(".//td/a")}
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids)) == 3
    assert set(links) == {"▲1", "▼2"}  # the third consumed no word
    assert {f"#{each}" for each in ids} >= set(links.values())


def test_text_is_wrapped_at_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"word{n}" for n in range(30)]
    for width in (40, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = [line for line in explain(words, []).to_text().splitlines() if "word" in line]
        assert width - 7 <= len(lines[0]) <= width


def test_text_and_page_say_the_same_of_faithfulness() -> None:
    found = explain(["a"], [(0, 1, 0.5)], comprehensiveness=0.21, sufficiency=-0.07)
    about = "yes 90 % → 69 % without the phrases marked ▲, 97 % with them alone"
    assert found.to_text().splitlines()[-1] == about
    assert about in found.html_body()
    against = explain(["a"], [(0, 1, -0.5)])
    assert against.to_text().splitlines()[-1] == "no phrase speaks for yes"


def test_another_label_that_is_explained_is_named_beside_the_prediction() -> None:
    found = explain(["a"], [(0, 1, 0.5)], target="no")
    for text in (found.to_svg(), found.html_body()):
        assert "; explained: no 10 %" in text
    heading = ElementTree.fromstring(f"<div>{found.html_body()}</div>").find("h1")
    assert "".join(heading.itertext()).replace("Y ", "") == "Prediction: yes; explained: no 10 %"
    assert "explained" not in explain(["a"], [(0, 1, 0.5)]).html_body()


def test_the_ground_of_a_word_is_that_of_its_largest_contribution() -> None:
    found = explain(["a", "b"], [(0, 1, 0.5), (0, 2, -0.2)])
    root = ElementTree.fromstring(found.to_svg())
    grounds = [each.attrib["class"] for each in root.iterfind("{*}g/{*}rect")]
    assert grounds == ["against", "for"]
    key = class_keys(found.labels)["yes"]
    badge = next(each for each in root.iterfind("{*}rect") if "hsl" in each.get("fill", ""))
    assert f"hsl({key.hue}," in badge.attrib["fill"]
    assert key.letter in [each.text for each in root.iterfind("{*}text")]


def test_an_empty_document_is_said_to_be_the_priors() -> None:
    found = explain([], [])
    for text in (found.to_text(), found.html_body(), found.to_svg()):
        assert "an empty document: only the model" in text
        assert "phrase" not in text
    assert "\n\n\n" not in found.to_text()
    assert "<svg" not in found.html_body()


def test_a_file_is_titled_by_its_document() -> None:
    found = explain(["a", "<b>", *["film"] * 99], [])
    title = "<title>yes: a &lt;b&gt; film film"
    assert title in found.to_html().split("<body")[0]
    assert title in found.to_svg()
    assert len(found.title) <= 66


@pytest.mark.parametrize(
    "names", [("2-1", "2-22"), ("negative/12", "2-1"), ("质量/1", "a rule of")]
)
def test_columns_stand_below_their_heads(names: tuple[str, str]) -> None:
    """Whatever patterns are called; of wide characters, each takes two columns."""
    found = explain(["fine", "dull"], [(0, 1, 12.5), (1, 2, -0.5)])
    told = (
        replace(item, pattern=name, score=score, matches={name: item.match})
        for item, name, score in zip(found.contributions, names, (0.5, -1.23e-5), strict=True)
    )
    lines = replace(found, contributions=tuple(told)).to_text().splitlines()
    start = next(n for n, line in enumerate(lines) if "log-odds" in line)
    head, *rows = lines[start : start + 3]
    # where log-odds end, names begin, scores end and phrases begin
    ends = [
        columns(head.partition(each)[0]) for each in ("  pattern", "pattern", "  phrase", "phrase")
    ]
    for row, name, phrase in zip(rows, names, ("fine", "dull"), strict=True):
        odds = row.partition(name)[0]
        before = row.removesuffix(phrase)
        places = [columns(each) for each in (odds.rstrip(), odds, before.rstrip(), before)]
        assert places == ends


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_and_sentences_fit_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, make_explainer: Callable[..., Explainer]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    words = ["the", "film", "is", "not", "funny", ",", "never", "dull", "and", "very", "good"]
    explainer = make_explainer("next")
    found = explainer.document(words)
    assert len(found.shown) == 5
    lines = found.to_text().splitlines()
    assert max(map(len, lines)) <= width
    phrases = [item.instead.phrase for item in found.shown if item.instead]
    assert phrases
    assert all(any(line.endswith(phrase) for line in lines) for phrase in phrases)
    lines = explainer.patterns([words], k=1).to_text().splitlines()
    assert max(map(len, lines)) <= max(width, 70)


def test_titles_name_documents() -> None:
    one, two = (explain([word], [(0, 1, 0.5)]) for word in ("fine", "dull"))
    assert one.title == "yes: fine"
    assert DocumentExplanations((one, two)).title == "2 documents, the first: fine"
