"""The errors that a command prints without a traceback."""

from __future__ import annotations


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
