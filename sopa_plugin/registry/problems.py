"""What is wrong with a config: one `Problem` a fault, and `ConfigError`, which lists them all.

And the words for it: of what is there (`found`), and of what a type hint asks for (`describe`).
"""

from __future__ import annotations

import difflib
import json
from collections import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from sopa_plugin.errors import UserError, brief, counted
from sopa_plugin.registry.hints import (
    ANYTHING,
    LISTS,
    MAPPINGS,
    SCALARS,
    SETS,
    UNIONS,
    Bound,
    Local,
    is_part,
    is_subclass,
    notes,
    undeferred,
)

TOP_LEVEL = "(top level)"
LONGEST_FOUND = 80  # characters of a value that a problem shows


@dataclass(frozen=True)
class Problem:
    """One fault of a config.

    Arguments:
        path: where in the config, as `-o` would write it (`model.encoder.dropout`); "" is the top.
        what: the fault in a few words (`unknown key`).
        expected: what would have been right.
        found: what the config holds.
        hint: the nearest known name, and what to do.
        mismatch: the value has the wrong shape altogether (another member of a union may fit it).
    """

    path: str
    what: str
    expected: str = ""
    found: str = ""
    hint: str = ""
    mismatch: bool = False

    def __str__(self) -> str:
        lines = [f"{self.path or TOP_LEVEL}: {self.what}"]
        lines += [f"    expected: {self.expected}"] if self.expected else []
        lines += [f"    found:    {self.found}"] if self.found else []
        lines += [f"    {self.hint}"] if self.hint else []
        return "\n".join(lines)


class ConfigError(UserError):
    """A config that cannot be used, with every problem found in it.

    Arguments:
        problems: the problems, or the message of a single one.
        source: the file that the config came from, if any.
    """

    def __init__(self, problems: str | Sequence[Problem], source: str = "") -> None:
        self.problems: list[Problem] = (
            [Problem("", problems)] if isinstance(problems, str) else list(problems)
        )
        self.source = source
        super().__init__(self.problems, source)  # what pickle calls the class with

    def __str__(self) -> str:
        if len(self.problems) == 1 and not self.problems[0].path:
            text = str(self.problems[0]).removeprefix(f"{TOP_LEVEL}: ")
            return brief(f"{self.source}: {text}" if self.source else text)
        count = len(self.problems)
        head = f"{self.source or 'the config'} has {counted(count, 'problem')}:"
        lines = [line for problem in self.problems for line in str(problem).splitlines()]
        return brief("\n".join([head, *(f"  {line}" for line in lines)]))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, whatever its case, or None if none is close."""
    if len(name) > LONGEST_FOUND:
        return None
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or "" if no known name is close."""
    close = nearest(name, known)
    return f"did you mean '{close}'?" if close is not None else ""


def join(path: str, key: object) -> str:
    """The path of `key` below `path`."""
    return f"{path}.{key}" if path else str(key)


def found(value: object) -> str:
    """A value of a config with the name of its type, shortened."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    if len(text) > LONGEST_FOUND:
        text = text[: LONGEST_FOUND - 3] + "..."
    other = f"a Python {type(value).__name__}"
    kind = next((words for each, words in _KINDS.items() if isinstance(value, each)), other)
    return text if text == kind else f"{text} ({kind})"


_KINDS: dict[Any, str] = {
    NoneType: "null",
    bool: "a truth value",
    int: "an integer",
    float: "a number",
    str: "a string",
    Mapping: "an object",
    list | tuple | set | frozenset: "a list",
}


def describe(hint: Any) -> str:
    """What a hint asks for, in words."""
    if notes(hint, Local):
        return "a path (a string)"
    limits = " and ".join(map(str, notes(hint, Bound)))
    hint = undeferred(hint)
    kind, args = get_origin(hint) or hint, get_args(hint)
    if hint in SCALARS:
        return f"{SCALARS[hint]} {limits}".rstrip()
    if hint in ANYTHING:
        return "anything"
    if kind in UNIONS:
        return _either(describe(each) for each in args if _in_config(each)) or "nothing"
    if kind is Literal:
        return _either(f'"{each}"' if isinstance(each, str) else found(each) for each in args)
    if kind is tuple and args and args[-1] is not Ellipsis:
        return f"a list of {len(args)}: " + ", ".join(map(describe, args))
    if kind in (*LISTS, *SETS, tuple):
        return f"a list of {describe(args[0])}" if args else "a list"
    if kind in MAPPINGS:
        return f"an object of {describe(args[0])}: {describe(args[1])}" if args else "an object"
    if is_subclass(kind, Enum):
        return _either(found(each.value) for each in kind)
    known: list[str] = getattr(kind, "list_available", list)()
    if known:
        return f"a {kind.__name__} (type: {', '.join(sorted(known))})"
    if is_part(kind):
        return f"an object (arguments of {kind.__name__})"
    if isinstance(kind, type):
        return f"a Python {kind.__name__} (not to be given in a config)"
    return str(hint)


def _in_config(hint: Any) -> bool:
    """Whether JSON can hold a value of that hint (a tensor or function comes from a program)."""
    kind = get_origin(undeferred(hint)) or undeferred(hint)
    if not isinstance(kind, type) or kind in SCALARS or is_part(kind) or issubclass(kind, Enum):
        return kind is not abc.Callable
    return kind in (*ANYTHING, *LISTS, *SETS, *MAPPINGS, tuple, *UNIONS)


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))
