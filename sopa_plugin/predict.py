"""`python -m sopa_plugin.predict RUN < LINES`: classifies new text, line by line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, TextIO

from sopa_plugin.cli import (
    add_device,
    add_include_package,
    check_output,
    choose_device,
    run_command,
)
from sopa_plugin.compiled import load_matcher
from sopa_plugin.errors import UserError
from sopa_plugin.prediction import Predictor, predict_stream
from sopa_plugin.registry import import_plugins


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and predicts."""
    parser = argparse.ArgumentParser(
        prog="python -m sopa_plugin.predict",
        description="Classify text: a document a line in, a line of JSON with its label and the "
        "probabilities of all classes out, in the same order. A blank line of text is a document "
        "with no token and has its answer too.",
    )
    parser.add_argument("run", help="the folder of a finished run, or of any saved model")
    parser.add_argument("-i", "--input", metavar="FILE", help="read this file instead of stdin")
    parser.add_argument("-O", "--output", metavar="FILE", help="write this file instead of stdout")
    parser.add_argument("-f", "--force", action="store_true", help="replace the FILE that is there")
    parser.add_argument(
        "--format",
        choices=("auto", "text", "json"),
        default="auto",
        help='what a line holds: text, or JSON as in {"text": "..."}; by default JSON if the '
        "first line does",
    )
    add_device(parser, "the compiled model on the CPU or, without one, a GPU if there is one")
    add_include_package(parser)
    args = parser.parse_args(argv)
    import_plugins(args.include_package)
    with ExitStack() as files:
        source = _open_input(args.input, files)
        _check_output(args.output, source, args.force)
        model = _load(args.run, args.device)
        predict_stream(model, source, _open_output(args.output, files), args.format)


def _load(run: str, device: str | None) -> Predictor:
    """The model on its device or, unless another device than the CPU is wanted, its matcher."""
    matcher = load_matcher(run) if device in (None, "cpu") else None
    if matcher is not None:
        return matcher
    device = choose_device(device)
    from sopa_plugin.models import load_model  # and transformers, which takes seconds

    model = load_model(run)
    model.to_device(device)
    return model


def _open_input(path: str | None, files: ExitStack) -> BinaryIO:
    if path is None:
        return sys.stdin.buffer
    try:
        return files.enter_context(Path(path).open("rb"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _check_output(path: str | None, source: BinaryIO, force: bool) -> None:
    if path is None:
        return
    if _is_same_file(path, source):
        raise UserError(f"{path}: is the input, which would be lost; name another file with -O")
    check_output(Path(path), "-O", force)


def _open_output(path: str | None, files: ExitStack) -> TextIO:
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        return sys.stdout
    try:
        return files.enter_context(Path(path).open("w", encoding="utf-8", newline="\n"))
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


def _is_same_file(path: str, source: BinaryIO) -> bool:
    try:
        return Path(path).is_file() and os.path.samestat(os.stat(path), os.fstat(source.fileno()))
    except OSError:  # a source in memory
        return False


if __name__ == "__main__":
    run_command(main)
