"""What rules are written in, told apart by suffix: token patterns, word regexes, lexicons.

- `.jsonl`: a JSON object a line, as spaCy's EntityRuler and Prodigy write them, `{"label": "…",
  "pattern": [{"LOWER": "not"}, {"OP": "?"}, {"LOWER": {"IN": ["good", "great"]}}]}`; also a plain
  string as pattern; optional `id`, `weight` and `over`, the labels that lose a vote where the rule
  fires. Lines of one label and `id` are one rule.
- `.txt`: `[label]` sections with a regular expression over tokens a line, `//` before a comment:
  `$` is any token, `%` a number, `&` one of `, : ! . ( ) | ? "`, `EOS` the end of the text,
  `( a | b )` alternatives, `* + ?` after an item or a group; it matches the whole text. A section
  `[label] > other, another` names labels that lose a vote.
- `.tsv`: a lexicon, `term<TAB>label[<TAB>weight]`, in any case; terms of one word that have one
  label and weight are one rule.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sopa_plugin.errors import UserError, shortened
from sopa_plugin.files import parse_json
from sopa_plugin.rules.automaton import MOST_PATTERNS, DoesNotFit, Item
from sopa_plugin.rules.tokens import ANY, END, START, Condition, TokenTest, one_of, read_token

MOST_ITEMS = 1000
"""Tokens of a word regex, one behind another; more are refused, even where some change nothing."""

HEAVIEST = 1e9
"""Largest weight of a vote, either way; more are refused."""

Sequences = tuple[tuple[Item, ...], ...]
"""Alternatives, each a sequence of items."""


class Fault(NamedTuple):
    """What is wrong with a line of a file of rules."""

    line: int
    reason: str


class Written(NamedTuple):
    """A rule as it was read, before it is made patterns."""

    line: int
    text: str
    label: str
    alternatives: Sequences
    weight: float = 1.0
    over: tuple[str, ...] = ()
    id: str | None = None
    section: int | None = None  # the line that says `over` of several rules


def read_written(file: Path) -> tuple[list[Written], list[Fault]]:
    """The rules of a file, and what is wrong with lines that are none.

    Raises `UserError` if it cannot be read.
    """
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise UserError(
            f"{file}: expected rules in a file named {', '.join(_READERS)} (JSON lines of "
            "token patterns, [label] sections of word regexes, a lexicon of term<TAB>label)"
        )
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from error
    lines, faults = enumerate(re.split("\r\n|\r|\n", text), 1), _Faults()
    return list(reader([each for each in lines if each[1].strip()], faults)), faults


Lines = Sequence[tuple[int, str]]
"""Lines with their numbers."""


class _Faults(list[Fault]):
    @contextmanager
    def of(self, line: int) -> Iterator[None]:
        """For `with`: what raises `ValueError` is a fault of a line."""
        try:
            yield
        except json.JSONDecodeError as error:
            self.append(Fault(line, f"not JSON ({error.msg} at column {error.colno})"))
        except ValueError as error:
            self.append(Fault(line, str(error)))


def _read_json_lines(lines: Lines, faults: _Faults) -> Iterator[Written]:
    for number, line in lines:
        with faults.of(number):
            yield read_token_pattern(number, parse_json(line))


def read_token_pattern(number: int, row: Any) -> Written:
    """The rule of a line of JSON; raises `ValueError` with what is wrong."""
    keys = ("label", "pattern", "id", "weight", "over")
    if not isinstance(row, dict) or not {"label", "pattern"} <= set(row):
        raise ValueError('expected an object with "label" and "pattern"')
    if re.search(r"[\ud800-\udfff]", json.dumps(row, ensure_ascii=False)):
        raise ValueError("half of a surrogate pair, which is no character; take it out")
    if unknown := sorted(set(row) - set(keys)):
        raise ValueError(f"no key {shortened(unknown[0])}: expected {', '.join(keys)}")
    over = [row["over"]] if isinstance(row.get("over"), str) else row.get("over") or []
    if not isinstance(over, list):
        raise ValueError(f"over: expected a list of labels, found {shortened(over)}")
    if not isinstance(row.get("id", ""), str):
        raise ValueError(f"id: expected a string, found {shortened(row['id'])}")
    text = pattern = row["pattern"]
    if isinstance(pattern, str):
        items = [Item(one_of(frozenset([word]))) for word in pattern.split()]
    elif isinstance(pattern, list):
        items = [_token_item(each) for each in pattern]
        text = json.dumps(pattern, ensure_ascii=False)
    else:
        raise ValueError(f"pattern: expected a list or a string, found {shortened(pattern)}")
    label, weight = read_label(row["label"]), read_weight(row.get("weight", 1))
    lose = tuple(read_label(each, "over") for each in over)
    return Written(number, text, label, (tuple(items),), weight, lose, row.get("id"))


_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")
_SIGNS: dict[str, tuple[int, int | None]] = {
    "1": (1, 1),
    "?": (0, 1),
    "*": (0, None),
    "+": (1, None),
}


def _token_item(given: Any) -> Item:
    if not isinstance(given, dict):
        raise ValueError(f"pattern: expected an object for each token, found {shortened(given)}")
    test = read_token({key: value for key, value in given.items() if key != "OP"})
    written = given.get("OP", "1")
    sign = written if isinstance(written, str) else ""
    if sign == "!":
        return Item(TokenTest(test.conditions, negated=True))
    if sign in _SIGNS:
        return Item(test, *_SIGNS[sign])
    count = _COUNT.fullmatch(sign)
    if count is None or not (count[1] or count[3]):
        raise ValueError(
            f"OP: expected one of ! ? + * {{n}} {{n,m}} {{n,}} {{,m}}, found {shortened(written)}"
        )
    least = int(count[1] or 0)
    most = int(count[3]) if count[3] else None if count[2] else least
    if most is not None and most < least:
        raise ValueError(f"OP: expected {{n,m}} with n at most m, found {sign}")
    return Item(test, least, most)


def read_label(value: Any, key: str = "label") -> str:
    """A label, if it is one; else raises `ValueError`."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key}: expected a string, found {shortened(value)}")
    return value


def read_weight(value: Any) -> float:
    """The weight of a vote, if it is one; else raises `ValueError`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not -HEAVIEST <= value <= HEAVIEST:  # nor NaN
        raise ValueError(f"weight: expected a number up to {HEAVIEST:g}, found {shortened(value)}")
    return float(value)


def _read_lexicon(lines: Lines, faults: _Faults) -> Iterator[Written]:
    # by label and weight, the line of the first word and all words
    sets: dict[tuple[str, float], tuple[int, list[str]]] = {}
    for number, line in lines:
        with faults.of(number):
            term, *cells = line.split("\t")
            words = term.lower().split()
            if not 1 <= len(cells) <= 2 or not words:
                raise ValueError(f"expected term<TAB>label[<TAB>weight], found {shortened(line)}")
            try:
                label, weight = (
                    read_label(cells[0]),
                    read_weight(float(cells[1] if cells[1:] else 1)),
                )
            except ValueError as error:
                told = str(error).startswith(("label", "weight"))
                reason = error if told else "weight: a number"
                raise ValueError(f"{reason}; in {shortened(line)}") from error
            if len(words) == 1:
                sets.setdefault((label, weight), (number, []))[1].extend(words)
            else:
                items = tuple(Item(one_of(frozenset([word]), "LOWER")) for word in words)
                yield Written(number, term, label, (items,), weight)
    for (label, weight), (first, words) in sets.items():
        item = Item(one_of(frozenset(words), "LOWER"))
        yield Written(first, shortened(", ".join(words)), label, ((item,),), weight)


_SECTION = re.compile(r"\[\s*(?P<label>[^\]]*[^\]\s])\s*\]\s*(?:>(?P<over>.*))?")


def _read_sections(lines: Lines, faults: _Faults) -> Iterator[Written]:
    label: str | None = None
    over: tuple[str, ...] = ()
    start: int | None = None
    for number, line in lines:
        rule = re.sub(r"(^|\s)//.*", "", line).strip()
        if section := _SECTION.fullmatch(rule):
            label, start = section["label"], number
            over = tuple(filter(None, map(str.strip, (section["over"] or "").split(","))))
        elif rule and label is None:
            reason = f"expected a [label] before the first rule, found {shortened(rule)}"
            faults.append(Fault(number, reason))
        elif rule:
            with faults.of(number):
                try:
                    alternatives = tuple(map(_whole_text, read_expression(rule)))
                except ValueError as error:
                    raise ValueError(f"{shortened(rule)}: {error}") from error
                yield Written(number, rule, str(label), alternatives, over=over, section=start)


_EOS = Item(END)


def _whole_text(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items with the boundaries of the text, unless any words may stand there."""
    rest = Item(ANY, 0, None)
    starts = [] if items and items[0] == rest else [Item(START)]
    ends = [] if items and items[-1] in (rest, _EOS) else [_EOS]
    return (*starts, *items, *ends)


SYMBOLS = {
    "$": ANY,
    "%": TokenTest((Condition("TEXT", "REGEX", frozenset([r"\A\d+(?:\.\d*)?\Z|\A\.\d+\Z"])),)),
    "&": one_of(frozenset(',:!.()|?"')),
    "EOS": END,
}
"""What stands for others than itself in a word regex."""


def is_plain(word: str) -> bool:
    """Whether a word stands for itself in a word regex, alone or among others."""
    return not (word in SYMBOLS or word.startswith("//") or re.search(r"[\s()|*+?\[\]{}\\^]", word))


def read_expression(text: str) -> Sequences:
    """The alternatives of a word regex; raises `ValueError` where it is none, or does not fit."""
    expression = _Expression(text)
    try:
        found = expression.alternatives()
    except RecursionError:
        raise ValueError("( in ( without end") from None
    if expression.pieces:
        raise ValueError("a ) without its (")
    if any(_EOS in items[:-1] for items in found):
        raise DoesNotFit("EOS: expected at its end")
    return found


_PIECE = re.compile(r"\s*([()|*+?]|[^\s()|*+?]+)")


class _Expression:
    """A word regex, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.pieces = deque(_PIECE.findall(text))

    def alternatives(self) -> Sequences:
        found = list(self._sequence())
        while self._next() == "|":
            self.pieces.popleft()
            found += self._sequence()
        return tuple(_merged(found))

    def _next(self) -> str | None:
        return self.pieces[0] if self.pieces else None

    def _sequence(self) -> Sequences:
        found: Sequences = ((),)
        while self._next() not in (None, "|", ")"):
            one = self._repeated(self._item(self.pieces.popleft()))
            if len(found) * len(one) > MOST_PATTERNS:
                raise DoesNotFit(f"it is a union of more than {MOST_PATTERNS} patterns")
            found = tuple(before + after for before in found for after in one)
            if len(found[0]) > MOST_ITEMS:
                raise DoesNotFit(f"it has more than {MOST_ITEMS} tokens: cut it into shorter rules")
        return found

    def _item(self, piece: str) -> Sequences:
        if piece == "(":
            found = self.alternatives()
            if self._next() != ")":
                raise ValueError("a ( without its )")
            self.pieces.popleft()
            return found
        if piece in "*+?":
            raise ValueError(f"nothing before the {piece} that it could repeat")
        if piece not in SYMBOLS and re.search(r"[\[\]{}\\^]", piece):
            where = "" if piece == self.text else f"{shortened(piece)}: "
            raise ValueError(
                f"{where}expected words, $ % & EOS, ( a | b ) and * + ?; other "
                'expressions stand in JSON lines, {"TEXT": {"REGEX": "…"}}'
            )
        return ((Item(SYMBOLS.get(piece) or one_of(frozenset([piece]))),),)

    def _repeated(self, item: Sequences) -> Sequences:
        sign = self._next()
        if sign is None or sign not in "*+?":
            return item
        self.pieces.popleft()
        if self._next() in ("*", "+", "?"):
            raise ValueError(f"{sign}{self._next()}: one of * + ? at a time")
        if len(item) == 1 and len(item[0]) == 1 and item[0][0].least == item[0][0].most == 1:
            if item[0][0].test is END:
                raise ValueError("EOS: it cannot be repeated")
            return ((Item(item[0][0].test, *_SIGNS[sign]),),)
        if sign == "?":
            return (*item, ())
        raise DoesNotFit("a group of several words is repeated; repeat single words alone")


def _merged(alternatives: Sequence[tuple[Item, ...]]) -> Iterator[tuple[Item, ...]]:
    """The alternatives, those of one word each as one set of words."""
    words: set[str] = set()
    patterns: set[str] = set()
    is_any = False
    rest: dict[tuple[Item, ...], None] = {}
    for each in alternatives:
        test = each[0].test if len(each) == 1 and each[0].is_sure and each[0].least == 1 else None
        if test is None or test.anchor:
            rest[each] = None
        elif test == ANY:
            is_any = True
        elif test.words is not None:
            words |= test.words
        else:
            patterns |= test.conditions[0].value
    if is_any:
        yield (Item(ANY),)
    elif patterns:
        patterns |= {rf"\A{re.escape(word)}\Z" for word in words}
        yield (Item(TokenTest((Condition("TEXT", "REGEX", frozenset(patterns)),))),)
    elif words:
        yield (Item(one_of(frozenset(words))),)
    yield from rest


_READERS = {".jsonl": _read_json_lines, ".txt": _read_sections, ".tsv": _read_lexicon}
