"""What the command modules share: options, errors without a traceback, logging."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from sopa_plugin.errors import UserError
from sopa_plugin.registry import ConfigError

INTERRUPTED = 130  # what a shell makes of Ctrl-C


def run_command(main: Callable[[], None]) -> NoReturn:
    """Calls `main` and leaves with its exit status: 0, 1 for a user's mistake, 2 for a config's."""
    try:
        set_up_logging()
        main()
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()
        _leave_process_group()
    except ConfigError as error:
        _leave(2, f"error: {error}")
    except UserError as error:
        if not error.shared and os.environ.get("LOCAL_RANK", "0") != "0":
            print(f"error in process {os.environ.get('RANK')}: {error}", file=sys.stderr)
        _leave(1, f"error: {error}")
    except KeyboardInterrupt:
        _leave(INTERRUPTED, "interrupted")
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(1, "")
    except OSError as error:  # a full disk, a folder that is not to be written in
        if error.errno is None:  # a library's own, not the system's
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        _leave(1, f"error: {where}{error.strerror}")
    sys.exit(0)


def _leave(status: int, message: str) -> NoReturn:
    # every machine says what is wrong with it, but not every process of it
    if message and os.environ.get("LOCAL_RANK", "0") == "0":
        print(message, file=sys.stderr)
    sys.exit(status)


def _leave_process_group() -> None:
    """Parts from the other processes, which torch would else complain about."""
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def is_first_process() -> bool:
    """Whether this is the only process, or the first of those that a launcher started."""
    return os.environ.get("RANK", "0") == "0"


def set_up_logging() -> None:
    """Logs this package to stderr, from the first process alone; silences others' bars."""
    # each retry of a missing network is a warning there; what it comes to is one error here
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    level = logging.INFO if is_first_process() else logging.ERROR
    logging.getLogger("sopa_plugin").setLevel(level)
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


def add_include_package(parser: argparse.ArgumentParser) -> None:
    """`--include-package`, which commands that read configs have."""
    parser.add_argument(
        "--include-package",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="import a package whose parts the config uses; may be given several times",
    )


def add_accept_changed(parser: argparse.ArgumentParser) -> None:
    """`--accept-changed`, which commands that load a trained model have."""
    parser.add_argument(
        "--accept-changed",
        action="store_true",
        help="use a model whose files were changed after training",
    )


def add_override(
    parser: argparse.ArgumentParser, example: str = "trainer.optimizer.lr=0.01"
) -> None:
    """`-o a.b=value`, which commands that read configs have; `example` is one for its help."""
    parser.add_argument(
        "-o",
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"change the config, as in -o {example}; may be given several times",
    )


def check_output(path: Path, option: str, force: bool) -> None:
    """Raises `UserError` where an output file, named by `option`, would replace another."""
    if path.is_file() and not force:
        raise UserError(
            f"{path}: the output file exists already; choose another with {option}, or replace it "
            "with --force"
        )


def add_device(parser: argparse.ArgumentParser, default: str = "a GPU if there is one") -> None:
    """`--device`, which commands that use a trained model have; its help says the `default`."""
    parser.add_argument(
        "--device", default=None, help=f"cpu, cuda, cuda:1, ...; by default {default}"
    )


def choose_device(device: str | None) -> str:
    """The device asked for, or the best there is."""
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {device}: {str(error).splitlines()[0]}") from error
    return device
