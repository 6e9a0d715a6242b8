"""What rules ask of words; by that, and by n-grams, unknown words are told apart.

A word-level tokenizer gives every unknown word one id, and what rules ask of it (is it a number, is
it *not* in a list, is it a listed word in capitals) could not be answered from that. So the
vocabulary gets one more row for each answer that an unknown word can give. N-grams come beside
the row.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.data.ngrams import MOST_NGRAMS, NewWords, character_ngrams
from sopa_plugin.files import plain
from sopa_plugin.rules.tokens import TokenTest

MOST_OPEN = 8
"""Tests of anything but a list of words whose answers are all combined: 256 rows."""

MOST_KNOWN = 100_000
"""Unknown words whose row and n-grams are remembered."""

Answers = str
"""Whether each test holds of a word, as 0 and 1."""

_UNNAMED = "unnamedword"
_KINDS = (
    "a ab abc abcd abcde abcdefg abcdefghij abcdefghijklmno é ñandú б 日本 7 42 365 1984 12345 3.5 "
    ".5 3. 1,000 1/2 -3 +7 3rd 21st 5% $5 ½ ² x1 3d b2b a-b e-mail u.s. o'clock n't 's a@b.de "
    "http://a.de one five seven second million seventeen . , ; ! ? ... -- - ' ( « $ % & @ # "
    "+ = _ :) 🙂"
)
"""Words of many kinds, one of which is like an unknown word more often than not."""


_SPELLINGS = str, str.lower, str.upper, str.title, str.capitalize


class Questions:
    """What rules ask of tokens, answered without trying everything on every word.

    A test that lists words is tried on those that it names, in any case, and has one answer for all
    others; only a predicate (a regular expression, a shape, a number) is tried on every word.
    """

    def __init__(self, tests: Sequence[TokenTest]) -> None:
        self.tests = tuple(tests)
        of_others = [test.of_others for test in tests]
        self._usual = bytes(map(_digit, of_others))
        self._predicates = [number for number, answer in enumerate(of_others) if answer is None]
        self._naming: dict[str, list[int]] = {}
        for number, test in enumerate(tests):
            for word in test.named if of_others[number] is not None else ():
                self._naming.setdefault(word, []).append(number)

    def answers(self, word: str) -> Answers:
        """Whether each of the tests holds of a word."""
        found = bytearray(self._usual)
        for numbers in (
            self._predicates,
            self._naming.get(word, ()),
            self._naming.get(word.lower(), ()),
        ):
            for number in numbers:
                found[number] = _digit(self.tests[number].accepts(word))
        return found.decode()

    def table(self, answers: Iterable[Answers]) -> NDArray[np.uint8]:
        """The answers of several words as 0 and 1, `[words, tests]`."""
        letters = np.frombuffer("".join(answers).encode(), dtype=np.uint8)
        return letters.reshape(-1, len(self.tests)) - _digit(False)


def _digit(answer: bool | None) -> int:
    return b"01"[bool(answer)]


class UnknownWords:
    """Gives words that are not in a vocabulary the row of those that answer alike.

    Arguments:
        questions: what rules ask of tokens.
        rows: of each combination of answers.
        ngram_buckets: how many numbers character n-grams have; 0 does without n-grams.
    """

    def __init__(
        self, questions: Questions, rows: Mapping[Answers, int], ngram_buckets: int = 0
    ) -> None:
        self.questions = questions
        self.rows = dict(rows)
        self.ngram_buckets = ngram_buckets
        self._known: dict[str, tuple[int, ...]] = {}

    @classmethod
    def of(
        cls,
        tests: Sequence[TokenTest],
        words: Iterable[str],
        unknown: int,
        first: int,
        ngram_buckets: int = 0,
    ) -> UnknownWords:
        """Rows for all that unknown words can answer.

        Arguments:
            tests: what rules ask of tokens.
            words: those that rules name, of which other spellings may be unknown, and others to
                learn from what can be answered.
            unknown: the row of words of which only holds what holds for most.
            first: of the rows that there are to be.
            ngram_buckets: how many numbers character n-grams have.
        """
        questions = Questions(tests)
        every = itertools.chain(words, _KINDS.split())
        spelt = {spell(word): None for word in every for spell in _SPELLINGS}
        found = dict.fromkeys([*_open_answers(tests), *map(questions.answers, spelt)])
        usual, *others = found
        rows = {usual: unknown} | {each: first + n for n, each in enumerate(others)}
        return cls(questions, rows, ngram_buckets)

    def row(self, word: str) -> int:
        """The row of an unknown word: that of its answers or, if there is none, of the nearest."""
        return self.entry(word)[0]

    def entry(self, word: str) -> tuple[int, ...]:
        """The row of an unknown word and, if there are any, its n-grams (`character_ngrams`)."""
        if word not in self._known:
            found = [self.row_of(self.questions.answers(word))]
            if self.ngram_buckets:
                found += character_ngrams(word, self.ngram_buckets)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[word] = tuple(found)
        return self._known[word]

    def number(self, word: str, new_words: NewWords) -> int:
        """The row of an unknown word or, where it has n-grams, its number among `new_words`."""
        entry = self.entry(word)
        return new_words.number(word, entry) if self.ngram_buckets else entry[0]

    def entries(self) -> list[list[int]]:
        """An entry with every row and, if there are n-grams, the last: what a model must have."""
        last = [self.ngram_buckets] + [0] * (MOST_NGRAMS - 1)
        return [
            [row, *last[: MOST_NGRAMS * bool(self.ngram_buckets)]] for row in self.rows.values()
        ]

    def row_of(self, answers: Answers) -> int:
        """The row of answers or, if there is none, of the nearest."""
        if answers not in self.rows:
            answers = min(self.rows, key=lambda each: sum(map(operator.ne, each, answers)))
        return self.rows[answers]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        tests = plain(self.questions.tests)
        return {"tests": tests, "rows": self.rows, "ngram_buckets": self.ngram_buckets}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> UnknownWords:
        """What `to_json` wrote; raises `ValueError` for what it would not have written."""
        try:
            tests = [TokenTest.from_json(test) for test in given["tests"]]
            rows = {str(answers): int(row) for answers, row in given["rows"].items()}
            ngram_buckets = int(given.get("ngram_buckets", 0))  # absent from earlier models
            fits = rows and all(len(answers) == len(tests) for answers in rows)
            if not fits or min(ngram_buckets, *rows.values()) < 0:
                raise ValueError("answers that are not of its tests, or numbers below 0")
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"a saved tokenizer's rules cannot be read ({error})") from error
        return cls(Questions(tests), rows, ngram_buckets)


def _open_answers(tests: Sequence[TokenTest]) -> Iterator[Answers]:
    """What a word can answer that no test names: first what is most usual, no to all predicates."""
    usual = [test.of_others for test in tests]
    if usual.count(None) > MOST_OPEN:  # words will show which answers come together
        usual = [test.accepts(_UNNAMED) for test in tests]
    choices = ("01" if each is None else str(int(each)) for each in usual)
    return map("".join, itertools.product(*choices))
