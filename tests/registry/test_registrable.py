"""Names: registering, looking up, defaults, constructors, dotted paths."""

from __future__ import annotations

import abc
from collections import OrderedDict

import pytest
import torch

from sopa_plugin.registry import ConfigError, Registrable, check, imported_only


class Shape(Registrable):
    default_implementation = "square"


@Shape.register("square")
class Square(Shape):
    def __init__(self, side: float = 1.0) -> None:
        self.side = side


@Shape.register("circle")
@Shape.register("disc", constructor="from_diameter")
class Circle(Shape):
    def __init__(self, radius: float) -> None:
        self.radius = radius

    @classmethod
    def from_diameter(cls, diameter: float) -> Circle:
        return cls(diameter / 2)


class BigSquare(Square):
    def __init__(self, side: float = 100.0) -> None:
        super().__init__(side)


class Drawing:
    class Frame(Square):
        """A class within a class."""


class Abstract(Shape, abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


class Module(torch.nn.Module, Registrable):
    pass


@Module.register("linear")
class Linear(Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(dim, 1)


class Function(Registrable):
    pass


@Function.register("double")
def doubled(number: int) -> list[int]:
    return [number, number]


class TestNames:
    def test_by_name_gives_the_class(self) -> None:
        assert Shape.by_name("circle") is Circle

    def test_the_default_is_listed_first_then_the_alphabet(self) -> None:
        assert Shape.list_available() == ["square", "circle", "disc"]

    def test_bases_do_not_share_names(self) -> None:
        assert Module.list_available() == ["linear"]

    def test_an_unknown_name_names_the_nearest_and_where_it_was_looked_for(self) -> None:
        with pytest.raises(ConfigError, match="did you mean 'circle'") as caught:
            Shape.by_name("cirlce")
        assert "one of circle, disc, square" in str(caught.value)
        assert "looked in sopa_plugin" in str(caught.value)

    def test_a_taken_name_is_refused_unless_exist_ok(self) -> None:
        class Base(Registrable):
            pass

        class First(Base):
            pass

        class Second(Base):
            pass

        Base.register("name")(First)
        Base.register("name")(First)  # the same class again is no conflict
        with pytest.raises(ConfigError, match="exist_ok"):
            Base.register("name")(Second)
        assert Base.by_name("name") is First
        Base.register("name", exist_ok=True)(Second)
        assert Base.by_name("name") is Second

    def test_a_constructor_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="no constructor 'from_nowhere'"):
            Shape.register("broken", constructor="from_nowhere")(Square)
        assert "broken" not in Shape.list_available()


class TestFromParams:
    def test_a_string_stands_for_its_type(self) -> None:
        assert type(Shape.from_params("square")) is Square

    def test_without_type_the_default_implementation_is_built(self) -> None:
        shape = Shape.from_params({"side": 3})
        assert type(shape) is Square
        assert shape.side == 3.0

    def test_without_type_or_default_the_choices_are_listed(self) -> None:
        (problem,) = check(Module, {"dim": 2})
        assert problem.path == "type"
        assert "one of linear" in problem.expected

    def test_a_registered_class_is_built_without_type(self) -> None:
        assert Circle.from_params({"radius": 2}).radius == 2.0
        assert type(Circle.from_params({"type": "circle", "radius": 2})) is Circle

    def test_a_class_is_not_built_by_the_name_of_a_sibling(self) -> None:
        with pytest.raises(ConfigError, match="no Circle is called 'square'"):
            Circle.from_params({"type": "square"})

    def test_the_hints_of_a_named_constructor_are_used(self) -> None:
        assert Shape.from_params({"type": "disc", "diameter": 4}).radius == 2.0
        (problem,) = check(Shape, {"type": "disc", "diameter": "4"})
        assert problem.path == "diameter"
        found = {each.path: each for each in check(Shape, {"type": "disc", "radius": 4})}
        assert found.keys() == {"radius", "diameter"}
        assert found["radius"].expected == "a key of disc: diameter"

    def test_modules_are_built_as_modules(self) -> None:
        assert Module.from_params({"type": "linear", "dim": 3}).layer.in_features == 3

    def test_a_function_can_be_registered(self) -> None:
        assert Function.from_params({"type": "double", "number": 2}) == [2, 2]
        assert "an integer" in check(Function, {"type": "double", "number": "2"})[0].expected

    def test_a_base_without_implementations_says_so(self) -> None:
        class Empty(Registrable):
            pass

        assert "none is registered" in check(Empty, {})[0].expected


class TestDottedPath:
    def test_it_names_a_subclass(self) -> None:
        name = f"{BigSquare.__module__}.BigSquare"
        shape = Shape.from_params({"type": name, "side": 7})
        assert type(shape).__qualname__ == "BigSquare"
        assert shape.side == 7.0

    def test_it_names_a_class_within_a_class_in_a_saved_file_too(self) -> None:
        params = {"type": f"{__name__}.Drawing.Frame", "side": 7}
        with imported_only():
            shape = Shape.from_params(params)
        assert type(shape).__qualname__ == "Drawing.Frame"

    @pytest.mark.parametrize(
        ("name", "what"),
        [
            ("collections.OrderedDict", "not a subclass of Shape"),
            ("no_such_package.Shape", "cannot be imported"),
            ("collections.NoSuchClass", "cannot be imported"),
            (f"{__name__}.Shape", "not a subclass of Shape"),
            (f"{__name__}.Abstract", "abstract"),
        ],
    )
    def test_anything_else_is_a_problem(self, name: str, what: str) -> None:
        (problem,) = check(Shape, {"type": name})
        assert problem.path == "type"
        assert what in problem.what

    def test_a_module_that_fails_while_imported_is_a_problem(self, tmp_path, monkeypatch) -> None:
        (tmp_path / "failing_part.py").write_text("1 / 0\n")
        monkeypatch.syspath_prepend(tmp_path)
        (problem,) = check(Shape, {"type": "failing_part.Part"})
        assert "ZeroDivisionError" in problem.hint

    def test_a_plain_class_takes_one_too(self) -> None:
        assert check(torch.nn.Module, {"type": "torch.nn.ReLU"}) == []
        (problem,) = check(torch.nn.Module, {"type": "relu"})
        assert problem.path == "type"


def test_type_must_be_a_string() -> None:
    (problem,) = check(Shape, {"type": OrderedDict(a=1)})
    assert (problem.path, problem.what) == ("type", "wrong type")
