"""`python -m sopa_plugin.predict RUN -i FILE`: classifies new texts, of lines or of a table."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sopa_plugin.api import Predictor, load_predictor, probabilities
from sopa_plugin.cli import (
    add_input,
    add_model_options,
    check_output,
    make_parser,
    open_input,
    run_command,
    whole_number,
)
from sopa_plugin.data.sources import format_of
from sopa_plugin.errors import UserError, listed, visible
from sopa_plugin.files import (
    check_folder,
    identity_of,
    is_same_file,
    read_json,
    remove_left_aside,
    write_file,
    written_aside,
)
from sopa_plugin.registry import import_plugins

if TYPE_CHECKING:
    import argparse

    from sopa_plugin.data.stream import DocumentStream

logger = logging.getLogger("sopa_plugin.predict")  # also where `python -m` calls it __main__


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and predicts."""
    parser = make_parser(
        "predict",
        "Classify texts. Of a document a line comes a line of JSON with its label and the "
        "probabilities of all classes; of CSV, TSV, JSON lines and Parquet the same rows in the "
        "same format, with both beside what they have. An answer whose name a row has already is "
        "called predicted_label, and so on. A text that is empty is a document with no token and "
        "has its answer too.",
    )
    parser.add_argument("run", help="the folder of a finished run, or of any saved model")
    parser.add_argument(
        "-i", "--input", metavar="FILE", help="read this file, or all of a folder, not stdin"
    )
    parser.add_argument(
        "-O",
        "--output",
        metavar="FILE",
        help="write this file instead of stdout; for a folder, a folder with an answer to each "
        "file, of which those that are there are not made again",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="answer N blocks of the input at the same time, on as many cores; the answers are the "
        "same, but wait for the blocks behind them (default: 1)",
    )
    add_input(parser, "--format")
    add_model_options(parser, "the compiled model on the CPU, else a GPU if there is one")
    args = parser.parse_args(argv)
    import_plugins(args.include_package)
    check_folder(Path(args.run), "give the folder of a finished run")
    if args.input and Path(args.input).is_dir():
        predict_shards(args, Path(args.input))
        return
    with ExitStack() as files:
        source, documents = files.enter_context(open_input(args, args.input))
        _check_output(args.output, source, documents.form, args.force)
        model = load_predictor(args.run, args.device, args.accept_changed)
        if args.output is not None:
            output = Path(args.output).resolve()
            remove_left_aside(output.parent, [output.name])
        predict_stream(model, documents, _open_output(args.output, files), args.workers)


def predict_stream(
    model: Predictor, documents: DocumentStream, output: BinaryIO, workers: int = 1
) -> None:
    """Writes the `documents` with their answers to `output`.

    Memory does not grow with the input. By one worker what has been read is answered at once, so a
    slow writer need not wait. A terminal is shown the characters that it would obey.
    """
    shown = output.isatty()
    for written in documents.answered(partial(probabilities, model), model.labels, workers):
        if shown:
            text = written.decode(errors="replace").replace("\r\n", "\n")
            written = visible(text, keep="\n\t").encode()
        output.write(written)
        output.flush()


def predict_shards(args: argparse.Namespace, source: Path) -> None:
    """Answers every file of a folder that is text or a table, in a folder of answers.

    An answer takes its name only once it is whole and is not made again, so that the same command
    goes on where it was killed. Of several processes (`RANK` of `WORLD_SIZE`) each takes its share.
    """
    if args.output is None or Path(args.output).resolve() == source.resolve():
        raise UserError(f"{source}: is a folder; name another one for the answers with -O")
    target = Path(args.output)
    inside = [each for each in sorted(source.iterdir()) if each.name[0] != "."]
    shards = [each for each in inside if each.is_file() and format_of(each.name)]
    answers: dict[Path, Path] = {}
    for each in shards:
        # that to text ends in .jsonl
        name = re.sub(r"(\.txt)(\.gz)?$", r"\1.jsonl\2", each.name, flags=re.IGNORECASE)
        other = answers.setdefault(target / name, each)
        if other != each:
            raise UserError(f"{each}: its answers would be called as those to {other}; rename one")
    if not answers:
        raise UserError(f"{source}: no file in it ends in .csv, .tsv, .jsonl, .parquet or .txt")
    if others := [each.name for each in inside if each not in shards]:
        logger.warning(
            "%s: %d files and folders are left out, by their suffix neither tables nor text: %s",
            *(source, len(others), listed(others, 3)),
        )
    asked = {"model": identity_of(Path(args.run)), "text_column": args.text_column}
    noted = target / ".sopa_plugin.json"
    if noted.exists() and not args.force and read_json(noted, "what was asked") != asked:
        raise UserError(f"{target}: has answers of another model or column; name another with -O")
    model: Predictor | None = None
    share = list(answers)[_share()]
    remove_left_aside(target, {answer.name for answer in share})
    for answer in share:
        if answer.is_file() and not args.force:
            continue
        if model is None:
            model = load_predictor(args.run, args.device, args.accept_changed)
            target.mkdir(parents=True, exist_ok=True)
            write_file(noted, json.dumps(asked))
        with ExitStack() as files:
            _, documents = files.enter_context(open_input(args, str(answers[answer])))
            predict_stream(model, documents, _open_output(str(answer), files), args.workers)


def _share() -> slice:
    """Which of the files are this process's."""
    rank, processes = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if rank.isdecimal() and processes.isdecimal() and int(rank) < int(processes):
        return slice(int(rank), None, int(processes))
    raise UserError(
        "RANK and WORLD_SIZE: expected which process this is, from 0, and of how many, found "
        f"{rank!r} and {processes!r}"
    )


def _check_output(path: str | None, source: BinaryIO, form: str, force: bool) -> None:
    if path is None:
        return
    if format_of(path) not in (None, "text", form):
        raise UserError(
            f"{path}: the answers are written as {form}, as the input is; let the name end so"
        )
    if is_same_file(path, source):
        raise UserError(f"{path}: is the input, which would be lost; name another file with -O")
    check_output(Path(path), "-O", force)


def _open_output(path: str | None, files: ExitStack) -> BinaryIO:
    """The standard output, or a file that takes its place only once it is whole."""
    if path is None:
        if sys.stdout is None:
            raise UserError("the standard output is closed; name a file with -O")
        return sys.stdout.buffer
    file = Path(path)
    if file.is_file() or not file.exists():  # no pipe or device, which stays what it is
        file = files.enter_context(written_aside(file.resolve()))
    opened = gzip.open if path.lower().endswith(".gz") else open
    return files.enter_context(opened(file, "wb"))  # type: ignore[return-value]


if __name__ == "__main__":
    run_command(main)
