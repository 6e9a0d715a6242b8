"""What a rule asks of one token: word sets, regular expressions and attributes, as spaCy's Matcher.

Every attribute is a function of the word alone, so that a token carries the answers as features.
"""

from __future__ import annotations

import operator
import re
import unicodedata
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from re import _constants as regex_codes  # type: ignore[attr-defined]
from re import _parser as regex_parser  # type: ignore[attr-defined]
from typing import Any, Literal, NamedTuple

from sopa_plugin.errors import shortened

_NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand million billion trillion quadrillion gajillion bazillion first second third "
    "fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth "
    "sixtieth seventieth eightieth ninetieth hundredth thousandth millionth billionth trillionth "
    "quadrillionth gajillionth bazillionth"
)
_NUMBERS = frozenset(_NUMBER_WORDS.split())
"""English words that spaCy's LIKE_NUM takes for numbers."""


def _is_like_number(word: str) -> bool:
    plain = word[1:] if word.startswith(("+", "-", "±", "~")) else word
    plain = plain.replace(",", "").replace(".", "")
    if plain.isdigit() or plain.lower() in _NUMBERS:
        return True
    if plain.count("/") == 1 and all(part.isdigit() for part in plain.split("/")):
        return True
    return plain.lower().endswith(("st", "nd", "rd", "th")) and plain[:-2].isdigit()


def _shape(word: str) -> str:
    """Letters as X and x, digits as d, at most four alike in a row."""
    if len(word) >= 100:
        return "LONG"
    kinds = (
        ("X" if c.isupper() else "x") if c.isalpha() else "d" if c.isdigit() else c for c in word
    )
    return "".join("".join(list(run)[:4]) for _, run in groupby(kinds))


def _is_punctuation(word: str) -> bool:
    return all(unicodedata.category(character).startswith("P") for character in word)


ATTRIBUTES: Mapping[str, tuple[Callable[[str], str | int | bool], type]] = {
    "ORTH": (str, str),
    "TEXT": (str, str),
    "LOWER": (str.lower, str),
    "SHAPE": (_shape, str),
    "LENGTH": (len, int),
    "IS_ALPHA": (str.isalpha, bool),
    "IS_DIGIT": (str.isdigit, bool),
    "IS_LOWER": (str.islower, bool),
    "IS_PUNCT": (_is_punctuation, bool),
    "IS_TITLE": (str.istitle, bool),
    "IS_UPPER": (str.isupper, bool),
    "LIKE_NUM": (_is_like_number, bool),
}
"""What can be asked of a word: how it is computed, and the type of its value."""

_SPELLINGS = ("ORTH", "TEXT", "LOWER")  # the attributes whose values are words

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "IN": lambda value, values: value in values,
    "NOT_IN": lambda value, values: value not in values,
    "REGEX": lambda value, patterns: any(re.search(each, value[:MOST_SEEN]) for each in patterns),
}
RELATIONS = {
    str: ("IN", "NOT_IN", "REGEX"),
    int: ("==", "!=", ">=", "<=", ">", "<", "IN", "NOT_IN"),
    bool: (),
}
"""What an attribute of each type may be compared by, beside being equal."""


class Condition(NamedTuple):
    """That an attribute of a word stands in a relation to a value."""

    attribute: str
    relation: str
    value: Any  # a frozenset for IN, NOT_IN and REGEX

    def holds(self, word: str) -> bool:
        """Whether it is so of `word`."""
        found = ATTRIBUTES[self.attribute][0](word)
        return _COMPARISONS[self.relation](found, self.value)


@dataclass(frozen=True)
class TokenTest:
    """What a token must be: all conditions hold; of none, any word.

    Arguments:
        conditions: of the word.
        negated: whether it must not be so.
        anchor: the token is the one before the text or the one after it, which no other test
            accepts, negated or not.
    """

    conditions: tuple[Condition, ...] = ()
    negated: bool = False
    anchor: Literal["start", "end"] | None = None

    def accepts(self, word: str) -> bool:
        """Whether a word of the text is so."""
        if self.anchor:
            return False
        return all(each.holds(word) for each in self.conditions) is not self.negated

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> TokenTest:
        """What `plain` made of one; raises `ValueError` for what it would not have made."""
        found: list[Condition] = []
        for attribute, relation, value in given["conditions"]:
            values = {"IN": value} if relation == "REGEX" else value
            asked = value if relation == "==" else {relation: values}
            found += read_token({attribute: asked}).conditions
        if given["anchor"] not in (None, "start", "end"):
            raise ValueError(f"anchor: expected start or end, found {given['anchor']!r}")
        return cls(tuple(found), bool(given["negated"]), given["anchor"])

    def to_token(self) -> dict[str, Any]:
        """As a token pattern of spaCy's Matcher, which `read_token` reads; not of an anchor."""
        found: dict[str, Any] = {}
        for attribute, relation, value in self.conditions:
            if relation == "==" and isinstance(value, bool):
                found[attribute] = value
                continue
            values = sorted(value) if isinstance(value, frozenset) else value
            if relation == "==" and isinstance(value, str):
                relation, values = "IN", [value]
            given = {"IN": values} if relation == "REGEX" else values
            found.setdefault(attribute, {})[relation] = given
        return found

    @property
    def sees_case(self) -> bool:
        """Whether it asks for capitals, which text whose case is folded has not."""
        return any(
            attribute in ("IS_TITLE", "IS_UPPER")
            or (
                attribute in ("ORTH", "TEXT")
                and any(each != each.lower() for each in _values(value))
            )
            or (attribute == "SHAPE" and any("X" in str(each) for each in _values(value)))
            for attribute, relation, value in self.conditions
            if relation != "REGEX"
        )

    @property
    def named(self) -> frozenset[str]:
        """The words that it names, whether it accepts or refuses them."""
        return frozenset(
            str(word)
            for attribute, relation, value in self.conditions
            if attribute in _SPELLINGS and relation != "REGEX"
            for word in _values(value)
        )

    @property
    def of_others(self) -> bool | None:
        """Whether it accepts words that are not `named`, in any case; None: some, not others."""
        if self.anchor:
            return False
        relations = [
            relation if attribute in _SPELLINGS else None
            for attribute, relation, _ in self.conditions
        ]
        if "==" in relations or "IN" in relations:
            return self.negated
        return not self.negated if set(relations) <= {"NOT_IN"} else None

    @property
    def words(self) -> frozenset[str] | None:
        """The set of words, where it is one."""
        if len(self.conditions) != 1 or self.negated:
            return None
        ((attribute, relation, value),) = self.conditions
        if attribute not in _SPELLINGS or relation not in ("==", "IN"):
            return None
        return value if relation == "IN" else frozenset([value])

    def __str__(self) -> str:
        if self.anchor:
            return {"start": "^", "end": "$"}[self.anchor]
        if self.words is not None:
            return "|".join(sorted(self.words))
        texts = []
        for attribute, relation, value in self.conditions:
            shown = "|".join(map(str, sorted(value))) if isinstance(value, frozenset) else value
            texts.append(f"{attribute}{'' if relation == '==' else ' ' + relation} {shown}")
        return f"{'not ' * self.negated}[{', '.join(texts) or 'any'}]"


def _values(value: Any) -> Any:
    return value if isinstance(value, frozenset) else (value,)


ANY = TokenTest()
"""Any word."""

START, END = TokenTest(anchor="start"), TokenTest(anchor="end")
"""Before the first word, after the last one."""


def one_of(words: frozenset[str], attribute: str = "TEXT") -> TokenTest:
    """The test of a set of words."""
    return TokenTest((Condition(attribute, "IN", words),))


def read_token(item: Mapping[str, Any]) -> TokenTest:
    """The test that a token pattern of spaCy's Matcher describes, its operator apart.

    Raises:
        ValueError: what there is no such attribute, relation or value; says what to write instead.
    """
    conditions = []
    for name, given in item.items():
        attribute = name.upper()
        if attribute not in ATTRIBUTES:
            known = ", ".join([*ATTRIBUTES, "OP"])
            raise ValueError(
                f"no attribute {name!r} that is a function of the word: expected {known}"
            )
        kind = ATTRIBUTES[attribute][1]
        if not isinstance(given, Mapping):
            conditions.append(Condition(attribute, "==", _value(attribute, kind, given)))
            continue
        for relation, value in given.items():
            if relation not in RELATIONS[kind]:
                expected = ", ".join(RELATIONS[kind]) or "true or false alone"
                raise ValueError(f"{attribute}: no relation {relation!r}; expected {expected}")
            conditions.append(Condition(attribute, *_relation(attribute, kind, relation, value)))
    return TokenTest(tuple(conditions))


def _value(attribute: str, kind: type, value: Any) -> Any:
    if type(value) is not kind:
        name = {str: "a string", int: "a whole number", bool: "true or false"}[kind]
        raise ValueError(f"{attribute}: expected {name}, found {shortened(value)}")
    return value


def _list(attribute: str, relation: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{attribute}: {relation} takes a list, found {shortened(value)}")
    if relation == "IN" and not value:
        raise ValueError(f"{attribute}: no word is in an empty list; write what may stand here")
    return value


def _relation(attribute: str, kind: type, relation: str, value: Any) -> tuple[str, Any]:
    if relation == "REGEX":
        several = isinstance(value, Mapping) and set(value) == {"IN"}
        patterns = _list(attribute, "IN", value["IN"]) if several else [value]
        return relation, frozenset(read_regex(_value(attribute, str, each)) for each in patterns)
    if relation in ("IN", "NOT_IN"):
        value = _list(attribute, relation, value)
        return relation, frozenset(_value(attribute, kind, each) for each in value)
    return relation, _value(attribute, kind, value)


MOST_WAYS = 30_000
"""In how many ways a regular expression may take a word before it fails; more are refused."""

MOST_SEEN = 100
"""Letters of a word that an expression sees, which so takes a tenth of a second at most."""

_LONG = 30  # a repeat counts as so many at most, one without end as so many


def read_regex(pattern: str) -> str:
    """`pattern`, if it is a regular expression that no word takes long to be searched for.

    Raises:
        ValueError: it is none, or may take exponential time: the ways in which its repeats and
            alternatives can share a word out among them multiply to more than `MOST_WAYS`.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # of what later versions may read otherwise
            re.compile(pattern)
            parsed = regex_parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression: {shortened(pattern)} ({error})") from error
    if _ways(parsed) > MOST_WAYS:
        raise ValueError(
            f"the regular expression {shortened(pattern)} may take too long: write it without "
            "repeats or alternatives inside repeats and with at most three * or +"
        )
    return pattern


def _ways(parsed: Any) -> int:
    """In how many ways a parsed expression can take a word; of more than `MOST_WAYS`, some more."""
    found, too_many = 1, MOST_WAYS + 1
    for code, argument in parsed:
        if code in (regex_codes.GROUPREF, regex_codes.GROUPREF_EXISTS):
            return too_many
        if code in _REPEATS:
            least, most, body = argument
            found *= min(most - least + 1, _LONG) * _ways(body) ** min(most, _LONG)
        elif code is regex_codes.BRANCH:
            found *= sum(map(_ways, argument[1]))
        elif code in (regex_codes.ASSERT, regex_codes.ASSERT_NOT, regex_codes.SUBPATTERN):
            found *= _ways(argument[-1])
        elif code is regex_codes.ATOMIC_GROUP:
            found *= _ways(argument)
        found = min(found, too_many)
    return found


_REPEATS = (regex_codes.MAX_REPEAT, regex_codes.MIN_REPEAT, regex_codes.POSSESSIVE_REPEAT)
