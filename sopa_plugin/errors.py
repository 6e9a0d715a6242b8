"""The errors that a command prints without a traceback, and how they quote what a user gave."""

from __future__ import annotations

from collections.abc import Iterable

HUB_HELP = (
    "The Hugging Face Hub must be in reach (HF_HUB_OFFLINE unset, HF_TOKEN set for what is "
    "private, HF_ENDPOINT for a mirror), or have it in its cache (HF_HOME)"
)
"""What to say when something of the Hugging Face Hub cannot be had."""


class UserError(Exception):
    """A mistake in what the user gave: says where it is, what was expected and what to do.

    Attributes:
        shared: whether all of several processes have it, of which one says it.
    """

    shared = False


class TrainingFailed(UserError):
    """These settings cannot be trained on these data, and would fail again.

    No fault of files, packages or machines: a search goes on with the next trial.
    """


def shortened(value: object, limit: int = 60) -> str:
    """A value as Python writes it, cut where it is long."""
    text = value if isinstance(value, str) else repr(value)
    cut = text if len(text) <= limit else text[:limit] + "…"
    return repr(cut) if isinstance(value, str) else cut


def listed(values: Iterable[object], limit: int = 20) -> str:
    """Values as Python writes them, with commas; the first of many."""
    found = list(values)
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(map(shortened, found[:limit])) + more
