"""`Registrable`: classes found by name, as in AllenNLP (`@Seq2VecEncoder.register("sopa")`)."""

from __future__ import annotations

import functools
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from sopa_plugin.registry.plugins import looked_in
from sopa_plugin.registry.problems import ConfigError, Problem, did_you_mean

Target = TypeVar("Target", bound=Callable[..., Any])
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True)
class Registration:
    """A class (or function) that a config can name, and how it is called."""

    name: str
    target: Callable[..., Any]
    constructor: str | None = None

    @property
    def make(self) -> Callable[..., Any]:
        """What is called to build the part, and whose type hints its config is checked by."""
        if self.constructor is None:
            return self.target
        return getattr(self.target, self.constructor)  # type: ignore[no-any-return]


_registry: dict[type, dict[str, Registration]] = {}


class Registrable:
    """Mixin of base classes whose implementations a config names by `type`.

    A base class inherits it directly (`class Seq2VecEncoder(nn.Module, Registrable)`), and its
    implementations register under it. A subclass may define
    `check_params(cls, params: dict) -> Iterable[str | tuple[str, str]]`, which yields messages or
    `(key, message)` for what type hints cannot say (one argument ruling out another). It gets
    every argument as `fill_defaults` writes it, and reads nothing. An argument that does not fit
    its hint has its default there, or is absent: a `KeyError` then ends the check of that part.

    A constructor that takes `**kwargs` (and no `*args`) and hands them on to `super().__init__`
    need not repeat the arguments of the base: a config may give them all, by the hints and
    defaults of the base. It names those that have another hint or default here; one that itself
    sets an argument of the base spells out the others instead.

    A constructor called from Python raises `ValueError` for an argument that its hint rules out by
    a `Bound` or a `Literal`; of other types it checks nothing.

    Attributes:
        default_implementation: the name used where a config gives no `type`.
        handed_over: constructor arguments that the builder supplies (dimensions, labels,
            vocabulary); a config never gives them.
        also_accepts: classes of other libraries whose subclasses a dotted `type` may name too
            (`torch.optim.RAdam`); implementations registered by name may be anything callable.
    """

    default_implementation: ClassVar[str | None] = None
    handed_over: ClassVar[frozenset[str]] = frozenset()
    also_accepts: ClassVar[tuple[type, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if inspect.isfunction(vars(cls).get("__init__")):
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]

    @classmethod
    def register(
        cls, name: str, constructor: str | None = None, exist_ok: bool = False
    ) -> Callable[[Target], Target]:
        """Decorator that makes a class known under `name` as an implementation of this base.

        Arguments:
            name: what a config gives as `type`.
            constructor: a classmethod to build with, instead of the class itself.
            exist_ok: replace what had this name before; else that is a `ConfigError`.

        The class of another library is registered by a call: `Optimizer.register("adam")(Adam)`.
        """
        names = _registry.setdefault(cls, {})

        def decorate(target: Target) -> Target:
            before = names.get(name)
            if before is not None and before.target is not target and not exist_ok:
                raise ConfigError(
                    f"cannot register {_full_name(target)} as the {cls.__name__} '{name}': "
                    f"the name belongs to {_full_name(before.target)}; "
                    "take another, or pass exist_ok=True to replace it"
                )
            if constructor is not None and not callable(getattr(target, constructor, None)):
                raise ConfigError(f"{_full_name(target)} has no constructor '{constructor}'")
            names[name] = Registration(name, target, constructor)
            return target

        return decorate

    @classmethod
    def by_name(cls, name: str) -> type[Self]:
        """The implementation of that name, or at that dotted path; `ConfigError` if none is."""
        registration = _registry.get(cls, {}).get(name) or lookup(cls, name, "")
        if isinstance(registration, Problem):
            raise ConfigError([registration])
        return registration.target  # type: ignore[return-value]

    @classmethod
    def list_available(cls) -> list[str]:
        """The registered names in alphabetical order, but the default first."""
        return sorted(choices(cls), key=lambda name: (name != cls.default_implementation, name))

    @classmethod
    def from_params(cls, params: str | Mapping[str, Any], /, **handed_over: Any) -> Self:
        """Checks `params` and builds the implementation they name; a string is its `type`.

        Raises `ConfigError` with every problem of `params`.
        """
        from sopa_plugin.registry.build import build  # build reads this registry

        return build(cls, params, **handed_over)  # type: ignore[no-any-return]


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that first checks what it is given by the bounds and literals of its hints."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def checked(self: Any, /, *args: Any, **kwargs: Any) -> None:
        from sopa_plugin.registry.resolve import refused

        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:  # which `init` says better
            given = {}
        for problem in refused(init, given):
            advice = f"; {problem.hint}" if problem.hint else ""
            raise ValueError(
                f"{problem.path}: expected {problem.expected}, found {problem.found}{advice}"
            )
        init(self, *args, **kwargs)

    return checked


def choices(kind: type) -> dict[str, Registration]:
    """What can stand where `kind` is asked for, by name."""
    return {
        name: registration
        for base in reversed(kind.__mro__)
        for name, registration in _registry.get(base, {}).items()
        if base is kind or _is_subclass(registration.target, kind)
    }


def is_base(kind: type) -> bool:
    """Whether `kind` is a base class, to be chosen from by `type`, not a part itself."""
    return kind in _registry or Registrable in kind.__bases__


def registration_of(kind: type) -> Registration:
    """How `kind` itself is built: as it was registered, if it was; by its `__init__` first."""
    own = [each for each in choices(kind).values() if each.target is kind]
    return min(own, key=lambda each: each.constructor or "", default=Registration("", kind))


def lookup(kind: type, name: str, path: str) -> Registration | Problem:
    """The implementation of `kind` with that name or dotted path, or what is wrong with it."""
    known = choices(kind)
    if name in known:
        return known[name]
    if DOTTED.fullmatch(name):
        return _import(kind, name, path)
    advice = "give its package with --include-package if it is your own"
    return Problem(
        path,
        f"no {kind.__name__} is called '{name}'",
        expected="one of " + (", ".join(sorted(known)) or "(none is registered)"),
        found=f'"{name}"',
        hint=" ".join(
            filter(None, [did_you_mean(name, known), f"(looked in {looked_in()}; {advice})"])
        ),
    )


def _import(kind: type, name: str, path: str) -> Registration | Problem:
    expected = f"the dotted path of a subclass of {kind.__name__}, or a registered name"
    try:
        target = pkgutil.resolve_name(name)
    except Exception as error:  # a module may raise anything while it is imported
        reason = f"{type(error).__name__}: {error}"
        return Problem(path, f"'{name}' cannot be imported", expected, f'"{name}"', reason)
    accepted = (kind, *getattr(kind, "also_accepts", ()))
    if target in accepted or not any(_is_subclass(target, each) for each in accepted):
        what = f"'{name}' is not a subclass of {kind.__name__}"
        return Problem(path, what, expected, f'"{name}"', "name another class, or derive it")
    if inspect.isabstract(target):
        what = f"'{name}' is abstract and cannot be built"
        return Problem(path, what, expected, f'"{name}"', "name one of its subclasses")
    return Registration(name, target, registration_of(target).constructor)


def _is_subclass(target: object, kind: type) -> bool:
    return isinstance(target, type) and issubclass(target, kind)


def _full_name(target: object) -> str:
    return f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', target)}"
