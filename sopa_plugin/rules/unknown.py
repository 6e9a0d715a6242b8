"""Words that a vocabulary lacks, told apart by what rules ask of them.

A word-level tokenizer gives every unknown word one id, and what rules ask of it (is it a number, is
it *not* in a list, is it a listed word in capitals) could not be answered from that. So the
vocabulary gets one more row for each answer that an unknown word can give.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sopa_plugin.errors import UserError
from sopa_plugin.rules.tokens import TokenTest

MOST_OPEN = 8
"""Tests of anything but a list of words whose answers are all combined: 256 rows."""

MOST_KNOWN = 100_000
"""Unknown words whose row is remembered."""

Answers = str
"""Whether each test holds of a word, as 0 and 1."""

_UNNAMED = "unnamedword"


class UnknownWords:
    """Gives words that are not in a vocabulary the row of those that answer alike.

    Arguments:
        tests: what rules ask of tokens.
        rows: of each combination of answers.
    """

    def __init__(self, tests: Sequence[TokenTest], rows: Mapping[Answers, int]) -> None:
        self.tests = tuple(tests)
        self.rows = dict(rows)
        self._known: dict[str, int] = {}

    @classmethod
    def of(
        cls, tests: Sequence[TokenTest], words: Iterable[str], unknown: int, first: int
    ) -> UnknownWords:
        """Rows for all that unknown words can answer.

        Arguments:
            tests: what rules ask of tokens.
            words: those that rules name, of which other spellings may be unknown, and others to
                learn from what can be answered.
            unknown: the row of words of which only holds what holds for most.
            first: of the rows that there are to be.
        """
        plain, *others = dict.fromkeys([*_open_answers(tests), *_of_spellings(tests, words)])
        return cls(tests, {plain: unknown} | {each: first + n for n, each in enumerate(others)})

    def row(self, word: str) -> int:
        """The row of an unknown word: that of its answers or, if there is none, of the nearest."""
        if word not in self._known:
            found = self.row_of(answers_of(self.tests, word))
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[word] = found
        return self._known[word]

    def row_of(self, answers: Answers) -> int:
        """The row of answers or, if there is none, of the nearest."""
        if answers not in self.rows:
            answers = min(self.rows, key=lambda each: _differences(each, answers))
        return self.rows[answers]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"tests": [test.to_json() for test in self.tests], "rows": self.rows}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> UnknownWords:
        """What `to_json` wrote; raises `UserError` for what it would not have written."""
        try:
            tests = [TokenTest.from_json(test) for test in given["tests"]]
            rows = {str(answers): int(row) for answers, row in given["rows"].items()}
            if not rows or any(len(answers) != len(tests) for answers in rows):
                raise ValueError("answers that are not of its tests")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"a saved tokenizer's rules cannot be read ({error})") from error
        return cls(tests, rows)


def answers_of(tests: Sequence[TokenTest], word: str) -> Answers:
    """Whether each of the tests holds of a word."""
    return "".join(str(int(test.accepts(word))) for test in tests)


def _open_answers(tests: Sequence[TokenTest]) -> Iterator[Answers]:
    """What a word can answer that no test names: first what is most usual, no to all open tests."""
    is_open = [_is_open(test) for test in tests]
    if sum(is_open) > MOST_OPEN:
        is_open = [False] * len(tests)  # too many to combine; words will show which come together
    for answers in itertools.product(*((False, True) if each else (None,) for each in is_open)):
        yield "".join(
            str(int(test.accepts(_UNNAMED) if answer is None else answer))
            for test, answer in zip(tests, answers, strict=True)
        )


def _is_open(test: TokenTest) -> bool:
    """Whether words that a test does not name may meet it or fail it."""
    listed = [
        relation
        for attribute, relation, _ in test.conditions
        if attribute in ("ORTH", "TEXT", "LOWER") and relation in ("==", "IN", "NOT_IN")
    ]
    return len(listed) < len(test.conditions) and not {"==", "IN"} & set(listed)


def _of_spellings(tests: Sequence[TokenTest], words: Iterable[str]) -> Iterator[Answers]:
    for word in words:
        for spelt in (word, word.lower(), word.upper(), word.title(), word.capitalize()):
            yield answers_of(tests, spelt)


def _differences(some: Answers, others: Answers) -> int:
    return sum(a != b for a, b in zip(some, others, strict=True))
