"""`**kwargs` of a constructor: the arguments of its base, in configs as in Python."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
import torch

from sopa_plugin.registry import Registrable, build, check, fill_defaults
from sopa_plugin.registry.hints import arguments


class Reader(Registrable):
    handed_over = frozenset({"vocabulary"})

    def __init__(
        self,
        path: str,
        *,
        lowercase: bool = False,
        dev_size: float | int | None = None,
        vocabulary: tuple[str, ...] = (),
    ) -> None:
        self.given = {"path": path, "lowercase": lowercase, "dev_size": dev_size}
        self.vocabulary = vocabulary


class Silent(Reader):
    """Has no constructor, and so none to stop at."""


@Reader.register("tables")
class Tables(Silent):
    def __init__(self, column: str = "text", dev_size: float = 0.1, **options: Any) -> None:
        super().__init__(dev_size=dev_size, **options)
        self.given["column"] = column


@Reader.register("reviews")
@Reader.register("stars", constructor="of_stars")
class Reviews(Tables):
    def __init__(self, stars: int, **options: Any) -> None:
        super().__init__(**options)
        self.given["stars"] = stars

    @classmethod
    def of_stars(cls, most: int = 5, **options: Any) -> Reviews:
        return cls(stars=most, path="", **options)


@Reader.register("spelt_out")
class SpeltOut(Reader):
    def __init__(self, path: str, lowercase: bool = True) -> None:
        super().__init__(path, lowercase=lowercase)


@Reader.register("closed")
class Closed(SpeltOut):
    """Takes what `SpeltOut` takes, and not what lies beyond it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)


GOOD = {"type": "reviews", "stars": 3, "path": "x"}


class TestKwargs:
    def test_they_take_what_the_bases_take_over_two_levels(self) -> None:
        reader = Reader.from_params(GOOD | {"lowercase": True, "column": "body", "dev_size": 7})
        assert reader.given == {
            "stars": 3,
            "column": "body",
            "dev_size": 7.0,
            "path": "x",
            "lowercase": True,
        }

    def test_own_arguments_come_first_and_own_defaults_win(self) -> None:
        filled = fill_defaults(Reader, GOOD)
        assert list(filled.items()) == [
            ("type", "reviews"),
            ("stars", 3),
            ("column", "text"),
            ("dev_size", 0.1),
            ("path", "x"),
            ("lowercase", False),
        ]
        assert Reader.from_params(filled).given == Reader.from_params(GOOD).given

    def test_own_hints_win(self) -> None:
        assert check(SpeltOut, {"path": "x", "lowercase": False}) == []
        (problem,) = check(Tables, {"path": "x", "dev_size": None})
        assert (problem.path, problem.expected) == ("dev_size", "a number")

    def test_problems_of_inherited_keys(self) -> None:
        config = {"type": "reviews", "stars": 3, "lowercase": 1, "colunm": "a", "vocabulary": []}
        found = {each.path: each for each in check(Reader, config)}
        assert found.keys() == {"lowercase", "colunm", "vocabulary", "path"}
        assert found["lowercase"].expected == "true or false"
        assert found["colunm"].hint == "did you mean 'column'?"
        known = "a key of reviews: column, dev_size, lowercase, path, stars"
        assert found["colunm"].expected == known
        assert found["vocabulary"].what == "not to be configured"
        assert found["path"].what == "required key is missing"

    def test_a_misspelt_required_key_is_one_problem(self) -> None:
        (problem,) = check(Reader, {"type": "reviews", "stars": 3, "pth": "x"})
        assert problem.hint == "did you mean 'path'?"

    def test_what_is_handed_over_reaches_the_base(self) -> None:
        assert Reader.from_params(GOOD, vocabulary=("a",)).vocabulary == ("a",)

    def test_a_constructor_without_them_is_the_last(self) -> None:
        assert fill_defaults(Reader, {"type": "closed", "path": "x"}) == {
            "type": "closed",
            "path": "x",
            "lowercase": True,
        }
        (problem,) = check(Reader, {"type": "closed", "path": "x", "dev_size": 0.5})
        assert problem.what == "unknown key"

    def test_those_of_a_classmethod_take_nothing(self) -> None:
        assert fill_defaults(Reader, "stars") == {"type": "stars", "most": 5}
        (problem,) = check(Reader, {"type": "stars", "lowercase": True})
        assert problem.expected == "a key of stars: most"

    def test_the_next_constructor_is_that_of_super_in_a_diamond(self) -> None:
        class Root:
            def __init__(self, root: int = 0) -> None:
                self.seen = [root]

        class Left(Root):
            def __init__(self, left: int = 1, **others: Any) -> None:
                super().__init__(**others)
                self.seen.append(left)

        class Right(Root):
            def __init__(self, right: int = 2, **others: Any) -> None:
                super().__init__(**others)
                self.seen.append(right)

        class Both(Left, Right):
            pass

        assert list(arguments(Both)) == ["left", "right", "root"]
        assert build(Both, {"root": 5, "right": 6}).seen == [5, 6, 1]

    def test_beside_args_they_take_nothing(self) -> None:
        # they are not the base's here: LSTM itself says that the base's `mode` is "LSTM"
        assert arguments(torch.nn.LSTM) == {}

        class Encoder(torch.nn.Module, Reader):
            def __init__(self, dim: int, **options: Any) -> None:
                super().__init__(**options)

        assert list(arguments(Encoder)) == ["dim"]

    def test_what_has_no_key_is_left_out(self) -> None:
        class Base:
            def __init__(self, first: int = 1, /, second: int = 2) -> None: ...

        class Derived(Base):
            def __init__(self, **options: Any) -> None:
                super().__init__(**options)

        assert list(arguments(Derived)) == ["second"]


@pytest.mark.parametrize("hint", [(int, str), [int], ClassVar[int], Final, "NoSuchClass"])
@pytest.mark.parametrize("default", [None, 3])
def test_an_argument_whose_hint_is_no_type_takes_anything(hint: Any, default: Any) -> None:
    class Part:
        def __init__(self, size: Any = default) -> None:
            self.size = size

    Part.__init__.__annotations__["size"] = hint
    assert fill_defaults(Part, {}) == {"size": default}
    for value in (None, 1, "a"):
        assert build(Part, {"size": value}).size == value


BASE = """
from __future__ import annotations
from typing import Literal as OneOf
from sopa_plugin.registry import LocalPath, Registrable

class Source(Registrable):
    def __init__(self, path: LocalPath, empty: OneOf["error", "drop"] = "error") -> None:
        self.path, self.empty = path, empty
"""
DERIVED = """
from __future__ import annotations
from inherited_base import Source

OneOf = LocalPath = None  # other things than in the module of the base

@Source.register("files")
class Files(Source):
    def __init__(self, suffix: str = ".txt", **options) -> None:
        super().__init__(**options)
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    """A base class and an implementation, in modules of their own."""
    (tmp_path / "inherited_base.py").write_text(BASE)
    (tmp_path / "inherited_derived.py").write_text(DERIVED)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("inherited_derived").Source
    for name in ("inherited_base", "inherited_derived"):
        del sys.modules[name]


def test_hints_are_those_of_the_module_that_writes_them(
    source: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    filled = fill_defaults(source, {"type": "files", "path": "data"})
    assert filled["path"] == str(tmp_path / "data")
    (problem,) = check(source, {"type": "files", "path": "data", "empty": "dorp"})
    assert problem.expected == '"error" or "drop"'
    assert problem.hint == "did you mean 'drop'?"
