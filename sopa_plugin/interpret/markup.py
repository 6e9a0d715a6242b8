"""What pages, pictures and terminals share: escaped elements, colours, widths, numbers in words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from shutil import get_terminal_size
from string import ascii_uppercase, digits
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sopa_plugin.errors import visible

COLOURS = {
    "paper": ("#ffffff", "#0f141a"),
    "ink": ("#1c2128", "#e4e9ef"),
    "muted": ("#5b6572", "#98a3b0"),
    "line": ("#d4dae1", "#333c47"),
    "card": ("#f6f8fa", "#171d25"),
    "blue": ("#0b5cad", "#79b8ff"),
    "blue_soft": ("#cfe4f8", "#16395e"),
    "orange": ("#a83f00", "#ffab70"),
    "orange_soft": ("#fbdcc4", "#5a3010"),
    "violet": ("#6b3fa0", "#c9a6f5"),
}
"""On light paper and on dark. Blue for and orange against stay apart in every common colour
blindness."""
REPLACED = {
    "next": "where the pattern makes do with its next best match, or its mean if none is left",
    "no_match": "as if the pattern had not matched",
    "zero": "with the pattern's score set to zero",
    "mean": "with the pattern's score set to its mean",
}
"""What a contribution compares with, in words."""

SHOWN = 20
"""Places of a pattern that its card shows."""

FIRST = 10
"""Patterns that a page shows at once; of more, all are folded."""

HUE, GOLDEN = 165, 137.5
"""Degrees: the first class's hue, neither blue nor orange, and from one class's to the next."""

CONTINUES = "##"
"""How a word piece that goes on with the word before it is written."""

_NARROW = frozenset("iljtfrI.,;:'`|!()[]{}/\\\" -")
_WIDE = frozenset("mwMW@%&—…▲▼∗↻\ufffd")
_ANSI = {"for": "34;1", "against": "33", "muted": "2", "strong": "1"}
_PAINT = re.compile(r"\x1b\[[\d;]+m")


def render(template: str, **values: Any) -> Markup:
    """A file of `templates/` with `values` in it, escaped unless they are markup."""
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("sopa_plugin.interpret"),
        autoescape=True,
        finalize=_written,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = (number, signed, percent, mark, side, shorten, state_name, text_width, class_keys)
    environment.globals.update({each.__name__: each for each in (*shown, tuple)})
    environment.globals.update(FIRST=FIRST, REPLACED=REPLACED, SHOWN=SHOWN)
    return environment


def _written(value: object) -> object:
    """Text made visible; a coordinate with two decimals at most."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return visible(value) if type(value) is str else value


@cache
def style(page: bool) -> Markup:
    """The rules of pictures and, for a `page`, of all else: both colour schemes."""
    light, dark = ({name: each[n] for name, each in COLOURS.items()} for n in (0, 1))
    in_the_dark = render("picture.css", **dark)
    rules = render("picture.css", **light) + f"@media (prefers-color-scheme:dark){{{in_the_dark}}}"
    return rules + render("page.css", light=light, dark=dark) if page else rules


class Picture(NamedTuple):
    """SVG elements within a box."""

    width: float
    height: float
    elements: Markup

    def svg(self, title: str, alone: bool = False) -> Markup:
        """The whole picture; `alone` in a file of its own, else in a page that has the style."""
        return render("picture.svg", it=self, title=title, style=style(page=False) if alone else "")


class ClassKey(NamedTuple):
    """What a class is known by besides its name: a letter and a hue in degrees."""

    letter: str
    hue: int


@cache
def class_keys(labels: tuple[str, ...]) -> dict[str, ClassKey]:
    """A key for each of the `labels`: if one is left, a letter of its name, else any other."""
    letters: dict[str, str] = {}
    for others in ("", ascii_uppercase + digits):
        for label in labels:
            taken = set(letters.values())
            free = (c for c in label.upper() + others if c.isalnum() and c not in taken)
            if label not in letters and (letter := next(free, "")):
                letters[label] = letter
    return {
        label: ClassKey(letters.get(label, str(number)), round(HUE + GOLDEN * number) % 360)
        for number, label in enumerate(labels)
    }


def text_width(text: str, size: float) -> float:
    """About how wide `text` is in a sans-serif face of `size` pixels."""
    text = visible(text)
    joined = [False, *(character == "\u200d" for character in text)]
    pairs = zip(text, joined, strict=False)
    return size * sum(0.0 if after_joiner else _em(character) for character, after_joiner in pairs)


def _em(character: str) -> float:
    if character in _NARROW:
        return 0.34
    if character in _WIDE:
        return 0.88
    if unicodedata.category(character) in ("Cf", "Mn"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.25 if unicodedata.category(character) == "So" else 1.02
    return 0.68 if character.isupper() else 0.57


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    text = unpainted(text)
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(c) in ("Mn", "Cf")
        else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def padded(text: str, width: int) -> str:
    """`text` with blanks after it up to `width` columns of a terminal."""
    return text + " " * (width - columns(text))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a terminal, indented: cells below one another, two blanks between them."""
    widths = [max(map(columns, cells)) for cells in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(padded, row, widths)).rstrip() for row in rows]


def paint(text: str, kind: str) -> str:
    """`text` for a terminal as `kind` looks, in ANSI codes."""
    return f"\x1b[{_ANSI[kind]}m{text}\x1b[0m" if kind in _ANSI else text


def unpainted(text: str) -> str:
    """`text` without what `paint` put there."""
    return _PAINT.sub("", text)


def wrap(words: Mapping[int, tuple[float, float]], room: float) -> list[dict[int, float]]:
    """Words in lines no wider than `room`: for each line, its words' places by their numbers.

    Of a word, the gap before it is given, which the first of a line has not, and its width.
    """
    lines: list[dict[int, float]] = [{}]
    end = 0.0
    for word, (blank, width) in words.items():
        if lines[-1] and end + blank + width > room:
            lines.append({})
        start = end + blank if lines[-1] else 0.0
        lines[-1][word] = start
        end = start + width
    return lines


def fold(text: str, indent: int = 0) -> str:
    """Running text in lines no wider than the terminal, all but the first indented."""
    words = text.split(" ")
    sizes = {i: (1.0, columns(word)) for i, word in enumerate(words)}
    sizes[0] = 0.0, sizes[0][1] - indent  # the first line has more room
    lines = wrap(sizes, get_terminal_size().columns - indent)
    first, *rest = (" ".join(words[i] for i in line) for line in lines)
    return "\n".join([first, *(" " * indent + line.strip() for line in rest)])


def shorten(text: str, width: int) -> str:
    """`text`, cut to `width` characters with an ellipsis where it is longer."""
    return text if len(text) <= width else text[: width - 1] + "…"


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


def number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits and a true minus; `–` for no match."""
    if not math.isfinite(value):
        return "–"
    return f"{value + 0.0:.{digits}g}".replace("-", "−")


def signed(value: float, decimals: int = 2) -> str:
    """`value` with its sign, unless its decimals are zero."""
    shown = round(value, decimals)
    return f"{shown:{'+' if shown else ''}.{decimals}f}".replace("-", "−" if shown else "")


def percent(share: float) -> str:
    """`share` in per cent, one decimal below ten."""
    value = max(0.0, 100 * share)
    return f"{value:.1f} %" if value < 10 else f"{value:.0f} %"


def state_name(state: int, num_states: int) -> str:
    """What a state is called: START, END or its number."""
    return "START" if state == 0 else "END" if state == num_states - 1 else str(state)


def mark(value: float) -> str:
    """The mark that stands beside the colour: for ▲, against ▼, neither ·."""
    return "▲" if value > 0 else "▼" if value < 0 else "·"


def side(value: float) -> str:
    """The class of elements whose colour tells the sign of `value`."""
    return "for" if value > 0 else "against" if value < 0 else "neither"
