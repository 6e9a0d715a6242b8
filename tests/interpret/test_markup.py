from __future__ import annotations

import math

import pytest

from sopa_plugin.interpret.markup import (
    class_keys,
    columns,
    mark,
    number,
    percent,
    render,
    shorten,
    signed,
    text_width,
    visible,
    wrap,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J\n\x7f", "␛[2J␊␡"),
        ("\x9b\ud800\uffff", "\ufffd\ufffd\ufffd"),
        ("\u202eevil\u2066", "\ufffdevil\ufffd"),
        ("עם שלום 👩\u200d👧 é", "עם שלום 👩\u200d👧 é"),
    ],
)
def test_what_is_shown_holds_no_control_character(text: str, expected: str) -> None:
    assert visible(text) == expected
    assert render("fragment.html", style="", body=text).count(expected) == 1


def test_widths() -> None:
    assert text_width("iiii", 10) < text_width("nnnn", 10) < text_width("mmmm", 10)
    assert text_width("e\u0301", 10) == text_width("e", 10)
    assert text_width("👩\u200d👩\u200d👧", 10) == text_width("👩", 10)
    assert text_width("\u202e", 10) == text_width("\ufffd", 10)  # as which it is shown
    assert columns("日本") == 4
    assert columns("e\u0301") == 1


def test_each_class_has_a_letter_and_a_hue_of_its_own() -> None:
    names = ("flight", "airfare", "flight_time", "fare", "a+b", "אב", "+", "12")
    keys = class_keys(names)
    assert "".join(key.letter for key in keys.values()) == "FALRBאC1"
    assert len({key.hue for key in keys.values()}) == len(names)
    many = class_keys(tuple(f"class {n}" for n in range(60)))
    assert len({key.letter for key in many.values()}) == 60


def test_words_are_wrapped_where_they_would_not_fit() -> None:
    words = {5: (1, 3), 6: (1, 4), 7: (1, 9), 8: (0, 1), 9: (1, 1)}
    assert wrap(words, 8) == [{5: 0, 6: 4}, {7: 0}, {8: 0, 9: 2}]
    assert wrap({}, 8) == [{}]


def test_numbers() -> None:
    assert number(0.12345) == "0.123"
    assert number(-2.0) == "−2"
    assert number(-math.inf) == number(math.nan) == "–"
    assert number(-0.0) == "0"
    assert signed(-0.5) == "−0.50"
    assert [signed(value) for value in (0.004, -0.004, -0.0)] == ["0.00"] * 3
    assert percent(0.0371) == "3.7 %"
    assert percent(0.371) == "37 %"
    assert [mark(value) for value in (2, -2, 0)] == ["▲", "▼", "·"]
    assert shorten("abcdef", 4) == "abc…"
