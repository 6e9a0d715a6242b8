from __future__ import annotations

import math

import pytest

from sopa_plugin.interpret.render.markup import (
    clean,
    is_right_to_left,
    mark,
    number,
    percent,
    shorten,
    signed,
    tag,
    text_width,
)
from sopa_plugin.interpret.render.terminal import columns


def test_elements_escape_attributes_and_leave_out_none() -> None:
    assert tag("a", "x", title='"<&', class_="b", id=None) == (
        '<a title="&quot;&lt;&amp;" class="b">x</a>'
    )
    assert tag("rect", stroke_width=1.5, x=2.0) == '<rect stroke-width="1.5" x="2"/>'
    assert tag("td") == "<td></td>"


def test_clean_replaces_what_xml_cannot_hold() -> None:
    assert clean("a\x00b\x1f\ud800<") == "a\ufffdb\ufffd\ufffd&lt;"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("good", False), ("שלום", True), ("123 שלום", True), ("«good» שלום", False), ("😀", False)],
)
def test_direction(text: str, expected: bool) -> None:
    assert is_right_to_left(text) is expected


def test_widths() -> None:
    assert text_width("iiii", 10) < text_width("nnnn", 10) < text_width("mmmm", 10)
    assert text_width("e\u0301", 10) == text_width("e", 10)
    assert text_width("👩\u200d👩\u200d👧", 10) == text_width("👩", 10)
    assert columns("日本") == 4
    assert columns("e\u0301") == 1


def test_numbers() -> None:
    assert number(0.12345) == "0.123"
    assert number(-2.0) == "−2"
    assert number(-math.inf) == number(math.nan) == "–"
    assert signed(-0.5) == "−0.50"
    assert percent(0.0371) == "3.7 %"
    assert percent(0.371) == "37 %"
    assert [mark(value) for value in (2, -2, 0)] == ["▲", "▼", "·"]
    assert shorten("abcdef", 4) == "abc…"
