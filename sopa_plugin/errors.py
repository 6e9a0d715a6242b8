"""What a command says: errors without a traceback, log lines, text that no terminal obeys."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

HUB_HELP = (
    "; the Hugging Face Hub must be in reach (HF_HUB_OFFLINE unset, HF_TOKEN set for what is "
    "private, HF_ENDPOINT for a mirror), or have it in its cache (HF_HOME)"
)
"""What to do where something of the Hugging Face Hub cannot be had."""

_NO_PICTURE = [*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_NO_PICTURE += [*range(0xD800, 0xE000), 0xFFFE, 0xFFFF]
_VISIBLE = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}  # ␀ to ␟, ␡
_VISIBLE |= dict.fromkeys(_NO_PICTURE, 0xFFFD)


_LONGEST_LINE, _MOST_LINES = 1000, 200  # of a message; what it quotes may have megabytes


class UserError(Exception):
    """A mistake in what the user gave: says where it is, what was expected and what to do."""

    def __str__(self) -> str:
        return brief(super().__str__())


class TrainingFailed(UserError):
    """These settings cannot be trained on these data, and would fail again.

    No fault of files, packages or machines: a search goes on with the next trial.
    """


def require(module: str, what: str, extra: str | None = "experiments") -> ModuleType:
    """The module, imported; raises `UserError` naming the extra of this package that brings it.

    Arguments:
        module: as in `import`.
        what: wants it; the beginning of the message.
        extra: of sopa_plugin; None where it is installed with it by default.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].removeprefix("_")
        wanted = package if extra is None else f"'sopa_plugin[{extra}]'"
        raise UserError(f"{what} needs {package}: pip install {wanted} ({error})") from error


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


def counted(number: int, thing: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def first_line(error: Exception) -> str:
    """The first line of what a library or the system says."""
    said = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(said).partition("\n")[0]


@contextmanager
def failing(where: object, what: str, then: str = "") -> Iterator[None]:
    """Makes a `UserError` of whatever goes wrong meanwhile, as damaged files make it.

    It says where, what, its cause, and what to do then; one that is a `UserError` says where, too.
    """
    try:
        yield
    except UserError as error:
        if str(where) in str(error):
            raise
        raise UserError(f"{where}: {error}") from error
    except Exception as error:  # whatever libraries raise
        said = first_line(error)
        if not isinstance(error, OSError):
            said = f"{type(error).__name__}: {said}"
        raise UserError(f"{where}: {what} ({said}){then}") from error


def brief(message: str) -> str:
    """A message without the greater part of what it quotes at length."""
    lines = message.split("\n")
    shown = [
        each if len(each) <= _LONGEST_LINE else f"{each[: _LONGEST_LINE - 100]} … {each[-100:]}"
        for each in lines[:_MOST_LINES]
    ]
    if len(lines) > _MOST_LINES:
        shown.append(f"... and {len(lines) - _MOST_LINES} more lines")
    return "\n".join(shown)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head. What is in a field is not taken for its end."""
    head, *lines = (" | ".join(each.replace("|", r"\|") for each in row) for row in rows)
    return "\n".join(f"| {each} |" for each in [head, " | ".join(["---"] * len(rows[0])), *lines])


def visible(text: str, keep: str = "") -> str:
    """`text` without what a terminal would obey, a page would be turned round by or XML forbids.

    ␛ stands for ESC; other codes have no picture and become U+FFFD. The characters of `keep` stay.
    """
    kept = set(map(ord, keep))
    return text.translate({**_VISIBLE, **dict(zip(kept, kept, strict=True))} if kept else _VISIBLE)


def set_up_logging() -> None:
    """Logs this package to stderr, from the first process alone; silences others' bars."""
    # each retry of a missing network is a warning there; what it comes to is one error here
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Visible("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    first = os.environ.get("RANK", "0") == "0"
    logging.getLogger("sopa_plugin").setLevel(logging.INFO if first else logging.ERROR)
    # By these where they are yet to be imported, which not every command does.
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if "datasets" in sys.modules:
        sys.modules["datasets"].disable_progress_bars()
    if "transformers" in sys.modules:
        sys.modules["transformers"].utils.logging.disable_progress_bar()


def log_experiments_alone() -> None:
    """Logs no more than warnings of trainings, of which a command runs many, and their data."""
    logging.getLogger("sopa_plugin").setLevel(logging.WARNING)
    logging.getLogger("sopa_plugin.comparisons").setLevel(logging.INFO)


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(brief(super().format(record)), keep="\n\t")
