"""Rules that people write, read from files: token patterns, word regexes, lexicons.

A rule names a label and what a text must hold to have it. Three formats, told apart by suffix:

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

import importlib
import itertools
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.errors import UserError, listed, shortened
from sopa_plugin.files import parse_json
from sopa_plugin.rules.automaton import MOST_PATTERNS, DoesNotFit, HardPattern, Item, fit
from sopa_plugin.rules.tokens import ANY, END, START, Condition, TokenTest, one_of, read_token

MOST_LONG = 500
"""Patterns of several words in a file; more are refused."""

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


@dataclass(frozen=True)
class Rule:
    """What a text must hold to have a label.

    Arguments:
        label: that it votes for.
        name: of the rule, `label/number` or its `id`.
        line: of the file, from 1.
        text: as it was written.
        patterns: that match what it matches; its score is the best of theirs.
        weight: of its vote.
        over: labels that lose a vote where it fires.
    """

    label: str
    name: str
    line: int
    text: str
    patterns: tuple[HardPattern, ...]
    weight: float = 1.0
    over: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            **vars(self),
            "patterns": [pattern.to_json() for pattern in self.patterns],
            "over": list(self.over),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Rule:
        """What `to_json` wrote; raises `ValueError` for what it would not have written."""
        return cls(
            _label(given["label"]),
            str(given["name"]),
            int(given["line"]),
            str(given["text"]),
            tuple(map(HardPattern.from_json, given["patterns"])),
            _weight(given["weight"]),
            tuple(map(_label, given["over"])),
        )


class _Written(NamedTuple):
    """A rule as it was read, before it is made patterns."""

    line: int
    text: str
    label: str
    id: str | None
    weight: float
    over: tuple[str, ...]
    alternatives: Sequences


@dataclass(frozen=True)
class Rules:
    """Rules, and what is wrong with those that are none.

    Arguments:
        rules: in the order of the file.
        faults: of lines that are refused, each with what to write instead.
        source: the file, for messages.
        fallback: the label where no rule fires.
        asked: what a model asks of tokens beside what they ask: whether they are words that were
            put on or taken from arcs.
    """

    rules: tuple[Rule, ...]
    faults: tuple[Fault, ...]
    source: str
    fallback: str | None = None
    asked: tuple[TokenTest, ...] = ()

    @classmethod
    def read(cls, path: str | Path) -> Rules:
        """The rules of a file.

        Raises:
            UserError: the file cannot be read, or rules are refused: every one, with its line.
        """
        found = cls.examine(path)
        found.require_sound()
        return found

    def require_sound(self) -> None:
        """Raises `UserError` with every fault, or if there is no rule."""
        if self.faults:
            raise UserError("\n".join(f"{self.source}:{line}: {why}" for line, why in self.faults))
        if not self.rules:
            raise UserError(f"{self.source}: there is no rule in it")

    @classmethod
    def examine(cls, path: str | Path) -> Rules:
        """As `read`, with the faults beside the rules instead of an error.

        Raises:
            UserError: the file cannot be read.
        """
        file = Path(path)
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
        written: list[_Written] = []
        faults: list[Fault] = []
        for each in reader(re.split("\r\n|\r|\n", text)):
            (faults if isinstance(each, Fault) else written).append(each)  # type: ignore[arg-type]
        rules: list[Rule] = []
        numbers: Counter[str] = Counter()
        for lines in _grouped(written):
            rule = _rule(lines, numbers[lines[0].label] + 1)
            if isinstance(rule, Fault):
                faults.append(rule)
            else:
                rules.append(rule)
                numbers[rule.label] += 1
        rules, too_many = _within_memory(rules)
        return cls(tuple(rules), tuple(sorted([*faults, *too_many])), str(file))

    def without_case(self) -> Rules:
        """The rules for text whose case is folded: those that ask for capitals are refused."""
        kept, faults = [], list(self.faults)
        for rule in self.rules:
            asked = [str(t) for each in rule.patterns for t in each.tests if t.sees_case]
            if asked:
                reason = (
                    f"{asked[0]} asks for capitals, and the case of texts is folded; take LOWER"
                )
                faults.append(Fault(rule.line, reason))
            else:
                kept.append(rule)
        return replace(self, rules=tuple(kept), faults=tuple(sorted(faults)))

    def adding(self, text: str, label: str) -> Rules:
        """The rules and one more, which may match anywhere in a text.

        Arguments:
            text: a token pattern if it begins with `[` or `{`, else a word regex, in which a `*`
                that stands alone is any words.
            label: of the rule.

        Raises:
            UserError: it is refused, with the reason.
        """
        names = {rule.name for rule in self.rules}
        number = next(n for n in itertools.count(1) if f"{label}/{n}" not in names)
        line = len(self.rules) + 1
        try:
            if text.lstrip().startswith(("[", "{")):
                given = parse_json(text)
                if isinstance(given, dict) and "pattern" not in given:
                    given = [given]
                row = given if isinstance(given, dict) else {"pattern": given}
                written = _token_pattern(line, {**row, "label": label})
            else:
                expression = re.sub(r"(?<!\S)(?:\$\s+)?\*(?!\S)", "$*", text)
                alternatives = _Expression(expression).read()
                if any(_EOS in items[:-1] for items in alternatives):
                    raise DoesNotFit("EOS: expected at its end")
                written = _Written(line, text, label, None, 1.0, (), alternatives)
            rule = _rule([written], number)
        except ValueError as error:
            raise UserError(f"the rule {shortened(text)}: {error}") from error
        if isinstance(rule, Fault):
            raise UserError(f"the rule {rule.reason}")
        if rule.name in names:
            raise UserError(f"there is a rule called {shortened(rule.name)}: take another id")
        return replace(self, rules=(*self.rules, rule))

    def deciding(self, fallback: str | None, precedence: Mapping[str, Sequence[str]]) -> Rules:
        """The rules with a label where none fires, and labels that go before others.

        Arguments:
            fallback: the label where no rule fires.
            precedence: of a label, those that lose a vote where one of its rules fires.

        Raises:
            UserError: `precedence` names a label that no rule votes for.
        """
        known = dict.fromkeys(rule.label for rule in self.rules)
        for label in itertools.chain(precedence, *precedence.values()):
            if label not in known:
                raise UserError(
                    f"model.precedence: no rule has the label {shortened(label)}; expected one of "
                    f"{listed(known)}"
                )
        rules = (
            replace(rule, over=(*rule.over, *precedence.get(rule.label, ()))) for rule in self.rules
        )
        return replace(self, rules=tuple(rules), fallback=fallback)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that rules vote for, in the order of the file, and the fallback."""
        labels = [rule.label for rule in self.rules]
        return tuple(dict.fromkeys([*labels, *([self.fallback] if self.fallback else [])]))

    def votes(self, labels: Sequence[str]) -> NDArray[np.float64]:
        """What each rule that fires adds to the votes of `labels`, `[rules, labels]`."""
        found = np.zeros((len(self.rules), len(labels)))
        numbers = {label: number for number, label in enumerate(labels)}
        for votes, rule in zip(found, self.rules, strict=True):
            for label in {rule.label, *rule.over} & numbers.keys():
                votes[numbers[label]] = rule.weight * (label == rule.label) - (label in rule.over)
        return found

    @property
    def words(self) -> list[str]:
        """The words that rules name, each once."""
        patterns = (pattern for rule in self.rules for pattern in rule.patterns)
        tests = (*(test for pattern in patterns for test in pattern.tests), *self.asked)
        return list(dict.fromkeys(word for test in tests for word in sorted(test.named)))

    def to_model(
        self,
        texts: Sequence[str] = (),
        vectors: str | None = None,
        tokenizer: str = "words",
        lowercase: bool = False,
    ) -> Any:
        """A `TextClassifier` that classifies as the rules vote, without a label.

        It can be saved, compiled, explained and trained like any other.

        Arguments:
            texts: unlabelled ones, whose words it is to know; on them it is measured what rules
                give where they do not fire, so that ties are decided rightly.
            vectors: a file of word vectors, of use once it is trained.
            tokenizer: `words`, or `whitespace` for text that is tokenised already.
            lowercase: whether text is lower-cased first.

        Raises `UserError` for rules that ask for capitals where text is lower-cased.
        """
        # models are above rules, which may not import them
        models = importlib.import_module("sopa_plugin.models")
        return models.TextClassifier.from_rules(self, texts, vectors, tokenizer, lowercase)

    def to_json(self) -> dict[str, Any]:
        """As plain values, for a saved model; of the file, the name without its folder."""
        rules = [rule.to_json() for rule in self.rules]
        asked = [test.to_json() for test in self.asked]
        source = Path(self.source).name
        return {"rules": rules, "source": source, "fallback": self.fallback, "asked": asked}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Rules:
        """What `to_json` wrote; raises `UserError` for what it would not have written."""
        try:
            rules = tuple(map(Rule.from_json, given["rules"]))
            asked = tuple(map(TokenTest.from_json, given.get("asked", ())))
            return cls(rules, (), str(given["source"]), given["fallback"], asked)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"the rules of a saved model cannot be read ({error})") from error


def _grouped(written: Iterable[_Written]) -> list[list[_Written]]:
    """The lines of each rule: several where they have an id in common."""
    groups: dict[Any, list[_Written]] = {}
    for number, each in enumerate(written):
        key = number if each.id is None else (each.label, each.id)
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def _rule(lines: Sequence[_Written], number: int) -> Rule | Fault:
    first = lines[0]
    for each in lines[1:]:
        if (each.weight, each.over) != (first.weight, first.over):
            return Fault(
                each.line, f"weight and over: expected those of line {first.line}, as the id"
            )
    patterns: dict[HardPattern, None] = {}
    for each in lines:
        try:
            for items in each.alternatives:
                patterns |= dict.fromkeys(fit(items))
        except DoesNotFit as error:
            return Fault(each.line, f"{shortened(each.text)}: {error}")
    if len(patterns) > MOST_PATTERNS:
        return Fault(
            first.line, f"a union of {len(patterns)} patterns; at most {MOST_PATTERNS} fit"
        )
    name = first.id or f"{first.label}/{number}"
    text = " | ".join(each.text for each in lines)
    return Rule(first.label, name, first.line, text, tuple(patterns), first.weight, first.over)


def _within_memory(rules: Sequence[Rule]) -> tuple[list[Rule], list[Fault]]:
    """The rules before there are more than `MOST_LONG` patterns of several words."""
    kept: list[Rule] = []
    refused: list[Rule] = []
    count = 0
    for rule in rules:
        long = sum(len(pattern.loops) > 2 for pattern in rule.patterns)
        count += long
        (refused if long and count > MOST_LONG else kept).append(rule)
    if not refused:
        return kept, []
    patterns = [pattern for rule in rules for pattern in rule.patterns]
    arcs = sum(2 * len(pattern.loops) - 3 for pattern in patterns)
    tests = {test for pattern in patterns for test in pattern.tests}
    reason = (
        f"here the file has more than {MOST_LONG} patterns of several words, and {count} in all, "
        f"which would take {4 * arcs * len(tests) / 1e9:.2g} GB for weights of what they ask; "
        "leave some out, or write words that stand alike as a set"
    )
    return kept, [Fault(refused[0].line, reason)]


def _read_json_lines(lines: Sequence[str]) -> Iterator[_Written | Fault]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _token_pattern(number, parse_json(line))
        except json.JSONDecodeError as error:
            yield Fault(number, f"not JSON ({error.msg} at column {error.colno})")
        except ValueError as error:
            yield Fault(number, str(error))


def _token_pattern(number: int, row: Any) -> _Written:
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
    pattern = row["pattern"]
    if isinstance(pattern, str):
        items = [Item(one_of(frozenset([word]))) for word in pattern.split()]
    elif isinstance(pattern, list):
        items = [_token_item(each) for each in pattern]
    else:
        raise ValueError(f"pattern: expected a list or a string, found {shortened(pattern)}")
    text = pattern if isinstance(pattern, str) else json.dumps(pattern, ensure_ascii=False)
    return _Written(
        number,
        text,
        _label(row["label"]),
        row.get("id"),
        _weight(row.get("weight", 1)),
        tuple(_label(each, "over") for each in over),
        (tuple(items),),
    )


_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")


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


_SIGNS: dict[str, tuple[int, int | None]] = {
    "1": (1, 1),
    "?": (0, 1),
    "*": (0, None),
    "+": (1, None),
}


def _label(value: Any, key: str = "label") -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key}: expected a string, found {shortened(value)}")
    return value


def _weight(value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not -HEAVIEST <= value <= HEAVIEST:  # nor NaN
        raise ValueError(f"weight: expected a number up to {HEAVIEST:g}, found {shortened(value)}")
    return float(value)


def _read_lexicon(lines: Sequence[str]) -> Iterator[_Written | Fault]:
    sets: dict[tuple[str, float], list[str]] = {}
    first: dict[tuple[str, float], int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        term, *cells = line.split("\t")
        words = term.lower().split()
        if not 1 <= len(cells) <= 2 or not words:
            yield Fault(number, f"expected term<TAB>label[<TAB>weight], found {shortened(line)}")
            continue
        try:
            label, weight = _label(cells[0]), _weight(float(cells[1]) if cells[1:] else 1)
        except ValueError as error:
            reason = (
                str(error) if str(error).startswith(("label", "weight")) else "weight: a number"
            )
            yield Fault(number, f"{reason}; in {shortened(line)}")
            continue
        if len(words) == 1:
            sets.setdefault((label, weight), []).extend(words)
            first.setdefault((label, weight), number)
            continue
        items = tuple(Item(one_of(frozenset([word]), "LOWER")) for word in words)
        yield _Written(number, term, label, None, weight, (), (items,))
    for (label, weight), found in sets.items():
        item = Item(one_of(frozenset(found), "LOWER"))
        text = shortened(", ".join(found))
        yield _Written(first[label, weight], text, label, None, weight, (), ((item,),))


_SECTION = re.compile(r"\[\s*(?P<label>[^\]]*[^\]\s])\s*\]\s*(?:>(?P<over>.*))?")


def _read_sections(lines: Sequence[str]) -> Iterator[_Written | Fault]:
    label: str | None = None
    over: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        rule = re.sub(r"(^|\s)//.*", "", line).strip()
        if not rule:
            continue
        if section := _SECTION.fullmatch(rule):
            label = section["label"]
            over = tuple(filter(None, map(str.strip, (section["over"] or "").split(","))))
        elif label is None:
            yield Fault(
                number, f"expected a [label] before the first rule, found {shortened(rule)}"
            )
        else:
            try:
                alternatives = tuple(_whole_text(each) for each in _Expression(rule).read())
                yield _Written(number, rule, label, None, 1.0, over, alternatives)
            except ValueError as error:
                yield Fault(number, f"{shortened(rule)}: {error}")


_EOS = Item(END)


def _whole_text(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items with the boundaries of the text, unless any words may stand there."""
    if _EOS in items[:-1]:
        raise DoesNotFit("EOS: expected at its end")
    starts = [] if items and _is_rest(items[0]) else [Item(START)]
    ends = [] if items and (_is_rest(items[-1]) or items[-1] == _EOS) else [_EOS]
    return (*starts, *items, *ends)


def _is_rest(item: Item) -> bool:
    return item == Item(ANY, 0, None)


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


_PIECE = re.compile(r"\s*([()|*+?]|[^\s()|*+?]+)")


class _Expression:
    """A regular expression over tokens, read from left to right."""

    def __init__(self, text: str) -> None:
        self.pieces = deque(_PIECE.findall(text))

    def read(self) -> Sequences:
        """Its alternatives.

        Raises:
            ValueError: it is not well-formed, or does not fit.
        """
        try:
            found = self._alternatives()
        except RecursionError:
            raise ValueError("( in ( without end") from None
        if self.pieces:
            raise ValueError("a ) without its (")
        return found

    def _next(self) -> str | None:
        return self.pieces[0] if self.pieces else None

    def _alternatives(self) -> Sequences:
        found = list(self._sequence())
        while self._next() == "|":
            self.pieces.popleft()
            found += self._sequence()
        return tuple(_merged(found))

    def _sequence(self) -> Sequences:
        found: Sequences = ((),)
        while (piece := self._next()) not in (None, "|", ")"):
            one = self._repeated(self._item(piece))
            if len(found) * len(one) > MOST_PATTERNS:
                raise DoesNotFit(f"it is a union of more than {MOST_PATTERNS} patterns")
            found = tuple(before + after for before in found for after in one)
            if len(found[0]) > MOST_ITEMS:
                raise DoesNotFit(f"it has more than {MOST_ITEMS} tokens: cut it into shorter rules")
        return found

    def _item(self, piece: str | None) -> Sequences:
        self.pieces.popleft()
        if piece == "(":
            found = self._alternatives()
            if self._next() != ")":
                raise ValueError("a ( without its )")
            self.pieces.popleft()
            return found
        if piece is None or piece in "*+?":
            raise ValueError(f"nothing before the {piece} that it could repeat")
        if piece not in SYMBOLS and re.search(r"[\[\]{}\\^]", piece):
            raise ValueError(
                f"{shortened(piece)}: expected words, $ % & EOS, ( a | b ) and * + ?; other "
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


_READERS: dict[str, Callable[[Sequence[str]], Iterator[_Written | Fault]]] = {
    ".jsonl": _read_json_lines,
    ".txt": _read_sections,
    ".tsv": _read_lexicon,
}
