"""The processes that train together: what one does for all, and errors that all hear of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sopa_plugin.errors import UserError

if TYPE_CHECKING:
    from accelerate import PartialState

T = TypeVar("T")


def processes() -> PartialState:
    """Which of how many processes this one is.

    Accelerate heeds `ACCELERATE_USE_CPU` only once it trains; left to itself before that, on a
    machine without a GPU, each of several processes would take itself for the only one.
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))


def by_first(action: Callable[[], T]) -> T:
    """What `action` gives the first process, in all of them; so with its error."""
    from accelerate.utils import broadcast_object_list

    outcome = _outcome(action) if processes().is_main_process else (None, None)
    result, error = broadcast_object_list(list(outcome))
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def by_all(action: Callable[[], T]) -> T:
    """What `action` gives this process; the error that it raises in any, in all of them."""
    from accelerate.utils import gather_object

    result, error = _outcome(action)
    errors = gather_object([error])
    failed = [number for number, each in enumerate(errors) if each is not None]
    if not failed:
        return result  # type: ignore[return-value]
    error = errors[failed[0]]
    if len(failed) < len(errors):
        error = UserError(f"process {failed[0]} of {len(errors)}: {error}")
    raise error


def _outcome(action: Callable[[], T]) -> tuple[T | None, Any]:
    try:
        return action(), None
    except (UserError, OSError) as error:
        return None, error
