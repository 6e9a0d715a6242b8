"""The processes that train together."""

from __future__ import annotations

from accelerate import PartialState
from accelerate.utils import parse_flag_from_env


def processes() -> PartialState:
    """Which of how many processes this one is.

    Accelerate heeds `ACCELERATE_USE_CPU` only once it trains; left to itself before that, on a
    machine without a GPU, each of several processes would take itself for the only one.
    """
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
