"""Rules as automata: which patterns of states, arcs and epsilons match just what a rule does.

A state's self-loop repeats a token, an epsilon skips one; at most one epsilon is taken between two
tokens, and START and END have no loops. What does not fit one pattern is a union of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from sopa_plugin.rules.tokens import ANY, TokenTest

if TYPE_CHECKING:
    from sopa_plugin.wfsa import Layout

MOST_PATTERNS = 64
"""Patterns of one rule; more are refused."""

MOST_STATES = 50
"""States of a pattern; more are refused."""


class DoesNotFit(ValueError):
    """Why a rule is no union of patterns."""


class Item(NamedTuple):
    """A token of a rule, and how often it comes."""

    test: TokenTest
    least: int = 1
    most: int | None = 1  # None: any number

    @property
    def is_sure(self) -> bool:
        """Whether it comes a fixed number of times."""
        return self.least == self.most

    @property
    def is_loop(self) -> bool:
        """Whether it comes any number of times, or not at all."""
        return self.least == 0 and self.most is None


@dataclass(frozen=True)
class HardPattern:
    """A pattern whose arcs are sure: what each may consume, None where there is no such arc."""

    main_path: tuple[TokenTest | None, ...]  # from each state but END to the next
    epsilons: tuple[bool, ...]  # whether the same step can be made without a token
    loops: tuple[TokenTest | None, ...]  # of each state; none of START and END

    @property
    def tests(self) -> Iterator[TokenTest]:
        """What its arcs and loops ask of tokens."""
        return (test for test in (*self.main_path, *self.loops) if test)

    def arcs_in(self, layout: Layout, number: int) -> Iterator[tuple[int, TokenTest | None, bool]]:
        """Its arcs as pattern `number` of a layout: column, what it consumes, whether it loops."""
        for blocks, tests in ((layout.main_path, self.main_path), (layout.loops, self.loops)):
            for block, test in zip(blocks, tests, strict=False):
                if block is not None:  # START and END have no loops
                    yield block.origin + number, test, tests is self.loops

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> HardPattern:
        """What `plain` made of one; raises `ValueError` for what it would not have made."""
        main_path, loops = (
            tuple(each and TokenTest.from_json(each) for each in given[key])
            for key in ("main_path", "loops")
        )
        epsilons = tuple(map(bool, given["epsilons"]))
        if not 1 <= len(main_path) == len(epsilons) == len(loops) - 1 < MOST_STATES:
            raise ValueError("a pattern whose arcs do not go together")
        return cls(main_path, epsilons, loops)

    def __str__(self) -> str:
        parts = []
        for arc, epsilon, loop in zip(self.main_path, self.epsilons, self.loops, strict=False):
            parts.append(f"({loop})*" if loop else "")
            parts.append(f"({arc})?" if arc and epsilon else str(arc) if arc else "")
        return " ".join(filter(None, parts))


def fit(items: Sequence[Item]) -> list[HardPattern]:
    """The patterns that together match what a sequence of items matches.

    Raises `DoesNotFit` if there are too many, or the sequence matches the empty text.
    """
    found: dict[HardPattern, None] = {}
    waiting = [tuple(items)]
    for _ in range(MOST_PATTERNS * MOST_STATES):  # a pattern is made by fewer splits than states
        if not waiting:
            return list(found)
        items = _without_idle_ends(waiting.pop())
        if all(item.least == 0 or item.test.anchor for item in items):
            raise DoesNotFit("it matches the empty text: make one of its tokens sure")
        if sum(max(item.least, item.most or 0) for item in items) >= MOST_STATES:
            raise DoesNotFit(f"it has {MOST_STATES} tokens or more: cut it into shorter rules")
        steps = list(_steps(items))
        # the items of two steps that would need two epsilons with no token between
        crowded = ((a.item, b.item) for a, b in pairwise(steps) if a.epsilon and b.epsilon)
        if (both := next(crowded, None)) is not None:
            waiting += _split(items, both)
        else:
            loops = (*(step.loop for step in steps), None)
            main_path, epsilons = zip(*((step.arc, step.epsilon) for step in steps), strict=True)
            found[HardPattern(main_path, epsilons, loops)] = None
        if len(found) + len(waiting) > MOST_PATTERNS:
            break
    raise DoesNotFit(f"it is a union of more than {MOST_PATTERNS} patterns")


def _without_idle_ends(items: Sequence[Item]) -> tuple[Item, ...]:
    """The items without what a match can do without, at its ends and beside any words."""
    kept: list[Item] = []
    for item in items:
        before = kept[-1] if kept else Item(ANY, 1)
        if item.least == 0 and before.most is None and before.test in (ANY, item.test):
            continue
        if item.test == ANY and item.most is None:
            while kept and kept[-1].least == 0:
                kept.pop()
        kept.append(item)
    for end in (0, -1):
        while kept and kept[end].least == 0:
            kept.pop(end)
        if kept:
            kept[end] = kept[end]._replace(most=kept[end].least)
    return tuple(kept)


class _Step(NamedTuple):
    """From one state to the next: by a token, or by an epsilon too, or by it alone."""

    item: int  # which it is of
    arc: TokenTest | None
    epsilon: bool
    loop: TokenTest | None  # of the state before it


def _steps(items: Sequence[Item]) -> Iterator[_Step]:
    loop: TokenTest | None = None  # of the state reached
    for number, (test, least, most) in enumerate(items):
        if most is not None:
            for optional in _spread(least, most - least):
                yield _Step(number, test, optional, loop)
                loop = None
            continue
        if least == 0 and loop is not None:  # two loops meet on one state
            yield _Step(number, None, True, loop)
        if least == 1 and loop is None and number > 0 and items[number + 1].is_loop:
            yield _Step(number, test, False, test)  # the state after it has another loop
            continue
        for place in range(least):
            yield _Step(number, test, False, loop)
            loop = test if place == 0 else None
        loop = test if least < 2 else None


def _spread(sure: int, optional: int) -> list[bool]:
    """Which of so many tokens alike are optional, no two side by side if that can be."""
    order, gaps = [], [*range(1, sure), sure, 0]  # after how many sure ones; inner places first
    taken = set(gaps[:optional])
    for place in range(sure + 1):
        order += [True] * (place in taken) + [False] * (place < sure)
    return order + [True] * (optional - len(taken))


def _split(items: tuple[Item, ...], crowded: tuple[int, int]) -> list[tuple[Item, ...]]:
    """Two sequences that together match what one does, each with an item that is surer."""
    choices = sorted(set(crowded), key=lambda at: (items[at].most is None, items[at].least == 0))
    at = next(each for each in choices if not items[each].is_sure)
    test, least, most = items[at]
    fewest = () if least == 0 else (Item(test, least, least),)
    return [
        items[:at] + fewest + items[at + 1 :],
        (*items[:at], Item(test, least + 1, most), *items[at + 1 :]),
    ]
