"""`python -m sopa_plugin.predict RUN < LINES`: classifies new text, line by line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from sopa_plugin.api import Predictor, load_predictor, probabilities
from sopa_plugin.cli import (
    add_accept_changed,
    add_device,
    add_include_package,
    check_output,
    make_parser,
    run_command,
)
from sopa_plugin.errors import UserError
from sopa_plugin.files import written_aside
from sopa_plugin.registry import import_plugins

if TYPE_CHECKING:
    from sopa_plugin.data.stream import Format


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and predicts."""
    parser = make_parser(
        "predict",
        "Classify text: a document a line in, a line of JSON with its label and the probabilities "
        "of all classes out, in the same order. A blank line of text is a document with no token "
        "and has its answer too.",
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
    add_accept_changed(parser)
    args = parser.parse_args(argv)
    import_plugins(args.include_package)
    with ExitStack() as files:
        source = _open_input(args.input, files)
        _check_output(args.output, source, args.force)
        model = load_predictor(args.run, args.device, args.accept_changed)
        predict_stream(model, source, _open_output(args.output, files), args.format)


def predict_stream(
    model: Predictor, source: BinaryIO, output: TextIO, format: Format = "auto"
) -> None:
    """Classifies each line of `source`; writes one line of JSON for it to `output`.

    What has been read is answered at once, so memory does not grow with the input and a slow writer
    need not wait.

    Arguments:
        model: a trained model.
        source: UTF-8 lines: plain text, or JSON objects with a key `text`.
        output: gets `label` and `probabilities {label: p}` for each line, after the line's `text`
            or, of a JSON object, after all its keys; a key of it that is called so itself becomes
            `input_label` or `input_probabilities`.
        format: what a line holds (see `sopa_plugin.data.stream.read_documents`).
    """
    from sopa_plugin.data.stream import read_documents

    for records in read_documents(source, format):
        for answer in _predict(model, records) if records else ():
            output.write(json.dumps(answer, ensure_ascii=False) + "\n")
        output.flush()


def _predict(model: Predictor, records: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each of the `records` with its `label` and `probabilities` added."""
    for record, row in zip(
        records, probabilities(model, [each["text"] for each in records]), strict=True
    ):
        label = model.labels[int(row.argmax())]
        answer = {
            "label": label,
            "probabilities": dict(zip(model.labels, row.tolist(), strict=True)),
        }
        yield {**_renamed(record, answer), **answer}


def _renamed(record: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """The record with `input_` before keys that are taken, as often as it takes."""
    renamed: dict[str, Any] = {key: each for key, each in record.items() if key not in taken}
    for key in taken:
        if key in record:
            name = f"input_{key}"
            while name in record:
                name = f"input_{name}"
            renamed[name] = record[key]
    return renamed


def _open_input(path: str | None, files: ExitStack) -> BinaryIO:
    if path is None:
        if sys.stdin is None:
            raise UserError("the standard input is closed; name a file with -i")
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
    """The standard output, or a file that takes its place only once it is whole."""
    if path is None:
        if sys.stdout is None:
            raise UserError("the standard output is closed; name a file with -O")
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        return sys.stdout
    try:
        file = Path(path)
        if file.is_file() or not file.exists():  # no pipe or device, which stays what it is
            file = files.enter_context(written_aside(file.resolve()))
        return files.enter_context(file.open("w", encoding="utf-8", newline="\n"))
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


def _is_same_file(path: str, source: BinaryIO) -> bool:
    try:
        return Path(path).is_file() and os.path.samestat(os.stat(path), os.fstat(source.fileno()))
    except OSError:  # a source in memory
        return False


if __name__ == "__main__":
    run_command(main)
