from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sopa_plugin.interpret import Match, StateActivations, Step


@pytest.fixture
def activations() -> StateActivations:
    """Four states over two words; the best path takes an epsilon before and after the second."""
    steps = (Step("epsilon", 0, 0.5), Step("main_path", 1, 0.5, 1, "b"), Step("epsilon", 2, 0.5))
    match = Match("4-1", 4, 0.125, 0, 1, 2, steps)
    return StateActivations("4-1", ("a", "b"), ((0.1,) * 4, (1.0,) * 4), match)


def test_the_best_path_of_a_terminal_has_its_epsilons(activations: StateActivations) -> None:
    assert activations.to_text().splitlines()[2:] == [
        "START   ░   █",
        "    1  [░]  █",
        "    2   ░  [█]",
        "  END   ░  [█]",
    ]


def test_a_terminal_has_as_many_words_beside_each_other_as_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = tuple(f"word{n}" for n in range(7))
    found = StateActivations("2-1", tokens, ((0.5, 1.0),) * 7, None)
    for width, expected in ((80, [7]), (30, [4, 3])):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = found.to_text().splitlines()
        assert [line.count("word") for line in lines if "word" in line] == expected
        assert max(map(len, lines)) <= width


def test_a_picture_outlines_the_path_and_fills_cells_by_value(
    activations: StateActivations,
) -> None:
    root = ElementTree.fromstring(activations.to_svg())
    looks = [each.get("class") for each in root.iterfind("{*}rect") if each.get("rx")]
    assert looks == ["best dashed", "best", "best dashed"]
    filled = [each.get("fill-opacity") for each in root.iterfind("{*}rect[@class='heat']")]
    assert filled[:8] == ["0.1"] * 4 + ["1"] * 4
    # What the shades stand for: a scale from nothing to full, with numbers at its ends.
    assert filled[8:] == ["0", "0.25", "0.5", "0.75", "1"]
    assert [each.text for each in root.iterfind("{*}text")][-2:] == ["0", "1"]


def test_a_long_document_is_drawn_around_the_match() -> None:
    tokens = tuple(f"w{n}" for n in range(100))
    match = Match("2-1", 2, 0.5, 0, 50, 51, (Step("main_path", 0, 0.5, 50, "w50"),))
    found = StateActivations("2-1", tokens, ((0.5, 0.5),) * 100, match)
    shown = [each.text for each in ElementTree.fromstring(found.to_svg()).iterfind("{*}text")]
    assert [word for word in shown if word in tokens] == list(tokens[38:63])
    assert shown.count("…") == 2
