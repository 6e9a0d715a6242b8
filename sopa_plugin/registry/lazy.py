"""`Lazy[T]`: a part whose config is checked at once and which is built later."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A part that its owner builds, once it knows what to hand over.

    As a type hint (`optimizer: Lazy[Optimizer]`) it is checked with the rest of the config; the
    owner then calls `optimizer.construct(params=model.parameters())`. As a default it reads
    `optimizer: Lazy[Optimizer] = Lazy(Optimizer, "adam")`.

    Arguments:
        kind: the class, or base class, of the part.
        params: its config; a string is its `type`.
        path: where it is in the whole config, for messages.
    """

    def __init__(
        self, kind: type[T], params: str | Mapping[str, Any] | None = None, path: str = ""
    ) -> None:
        self.kind = kind
        self.params: dict[str, Any] = (
            {"type": params} if isinstance(params, str) else copy.deepcopy(dict(params or {}))
        )
        self._path = path

    def construct(self, **handed_over: Any) -> T:
        """A new part; raises `ConfigError` if the config is wrong or a value is refused."""
        from sopa_plugin.registry.build import build_at  # build makes Lazy objects

        return build_at(self._path, self.kind, self.params, handed_over)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Lazy({getattr(self.kind, '__name__', self.kind)}, {self.params!r})"
