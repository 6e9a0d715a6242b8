"""HTML and SVG elements as text, escaped; how wide a text will be; how numbers are written."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sopa_plugin.interpret.automaton import ArcReading

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NARROW = frozenset("iljtfrI.,;:'`|!()[]{}/\\\" -")
_WIDE = frozenset("mwMW@%&—▲▼∗↻")


def clean(text: str) -> str:
    """`text` escaped for HTML and XML; what no XML file may hold becomes U+FFFD."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def tag(name: str, /, *children: str, **attributes: object) -> str:
    """One element; `children` are elements or escaped text.

    A trailing `_` leaves an attribute's name (`class_`), `_` within it stands for `-`; an attribute
    that is None is left out.
    """
    written = "".join(
        f' {_attribute(key)}="{clean(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return f"<{name}{written}/>" if name in _VOID else f"<{name}{written}></{name}>"
    return f"<{name}{written}>{''.join(children)}</{name}>"


_VOID = frozenset(
    {"rect", "line", "circle", "path", "polygon", "ellipse", "br", "hr", "meta", "col"}
)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-") if key not in _CAMEL else _CAMEL[key]


_CAMEL = {"text_length": "textLength", "length_adjust": "lengthAdjust", "view_box": "viewBox"}


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text_width(text: str, size: float) -> float:
    """About how wide `text` is in a sans-serif face of `size` pixels."""
    joined = [False, *(character == "\u200d" for character in text)]
    pairs = zip(text, joined, strict=False)
    return size * sum(0.0 if after_joiner else _em(character) for character, after_joiner in pairs)


def _em(character: str) -> float:
    if character in _NARROW:
        return 0.34
    if character in _WIDE:
        return 0.88
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.25 if unicodedata.category(character) == "So" else 1.02
    return 0.68 if character.isupper() else 0.57


REPLACED = {
    "no_match": "as if the pattern had not matched",
    "zero": "with the pattern's score set to zero",
    "mean": "with the pattern's score set to its mean",
}
"""What a contribution compares with, in words."""


def shorten(text: str, width: int) -> str:
    """`text`, cut to `width` characters with an ellipsis where it is longer."""
    return text if len(text) <= width else text[: width - 1] + "…"


def is_right_to_left(text: str) -> bool:
    """Whether the first letter with a direction runs from right to left."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return False


CONTINUES = "##"
"""How a word piece that goes on with the word before it is written."""


def pieces(tokens: Iterable[str]) -> list[tuple[bool, str]]:
    """Each token as it stands in running text, and whether a blank stands before it."""
    found: list[tuple[bool, str]] = []
    for token in tokens:
        goes_on = token.startswith(CONTINUES) and len(token) > len(CONTINUES) and bool(found)
        text = token[len(CONTINUES) :] if goes_on else token
        found.append((bool(found) and not goes_on, text))
    return found


def joined(tokens: Iterable[str]) -> str:
    """Tokens as running text."""
    return "".join(" " * blank + text for blank, text in pieces(tokens))


def has_letters(text: str) -> bool:
    """Whether `text` has a letter of any script."""
    return any(character.isalpha() for character in text)


def number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits and a true minus; `–` for no match."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}".replace("-", "−")


def signed(value: float) -> str:
    """`value` with its sign and two decimals."""
    return f"{value:+.2f}".replace("-", "−")


def percent(share: float) -> str:
    """`share` in per cent, one decimal below ten."""
    value = 100 * share
    return f"{value:.1f} %" if value < 10 else f"{value:.0f} %"


def state_name(state: int, num_states: int) -> str:
    """What a state is called: START, END or its number."""
    return "START" if state == 0 else "END" if state == num_states - 1 else str(state)


def arc_cells(arc: ArcReading, num_states: int) -> tuple[str, str, str, str]:
    """An arc in words: where it leads, its bias, how much of a wildcard it is, its best words."""
    to = arc.state if arc.arc == "self_loop" else arc.state + 1
    way = f"{state_name(arc.state, num_states)} → {state_name(to, num_states)}"
    if arc.arc == "epsilon":
        return way, f"ε {number(arc.bias)}", "", ""
    words = ", ".join(f"{word} {number(score)}" for word, score in arc.words)
    return way, f"bias {number(arc.bias)}", f"∗ {percent(arc.wildcard)}", words


def mark(value: float) -> str:
    """The mark that stands beside the colour: for ▲, against ▼, neither ·."""
    return "▲" if value > 0 else "▼" if value < 0 else "·"


def side(value: float) -> str:
    """The class of elements whose colour tells the sign of `value`."""
    return "for" if value > 0 else "against" if value < 0 else "neither"
