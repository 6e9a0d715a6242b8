"""What the commands share: parsers and options, errors without a traceback, exit statuses.

A command is a module with `main(argv)`, which parses arguments, imports what does the work and
calls it. So the help of a command imports nothing heavy.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from sopa_plugin.data.sources import FORMATS, encoding_problem, format_of
from sopa_plugin.errors import UserError, brief, failing, set_up_logging, visible
from sopa_plugin.files import RUN_CONFIG, read_json
from sopa_plugin.registry import (
    ConfigError,
    check,
    fill_defaults,
    import_plugins,
    load_config,
    missing_files,
)
from sopa_plugin.registry.hints import arguments

if TYPE_CHECKING:
    from sopa_plugin.data.stream import DocumentStream

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
        _fail(2, str(error))
    except UserError as error:
        _fail(1, str(error))
    except ModuleNotFoundError as error:
        package = _required_package(error.name or "")
        if package is None:  # another's fault
            raise
        everything = "pip install sopa_plugin, for all that is left out"
        _fail(1, f"this needs {package}: pip install {package} (or {everything})")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that is not to be written in
        if error.errno is None:  # a library's own, not the system's
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        _fail(1, f"{where}{error.strerror}")
    sys.exit(0)


def _required_package(module: str) -> str | None:
    """The package that has a module, if it is one that this package is installed with."""
    name = module.partition(".")[0]
    package = {"sklearn": "scikit-learn"}.get(name, name)
    with suppress(PackageNotFoundError):  # a copy that is not installed
        for requirement in requires("sopa_plugin") or ():
            if ";" not in requirement and re.split(r"[^\w-]", requirement)[0] == package:
                return package
    return None


def _fail(status: int, message: str) -> NoReturn:
    """Ends this process; of several on this machine that have the same to say, one says it."""
    if _is_first_to_say(message):
        rank = os.environ.get("RANK", "0")
        what = "error" if rank == "0" else f"error in process {rank}"
        print(visible(brief(f"{what}: {message}"), keep="\n\t"), file=sys.stderr)
    sys.exit(status)


def _is_first_to_say(message: str) -> bool:
    theirs = os.environ.get("TORCHELASTIC_ERROR_FILE")  # of torch's launcher, in its own folder
    if not theirs:
        return True
    said = hashlib.sha256(message.encode("utf-8", "surrogatepass")).hexdigest()
    try:
        Path(theirs).parents[1].joinpath(f"said-{said}").touch(exist_ok=False)
    except OSError as error:
        return not isinstance(error, FileExistsError)
    return True


def _leave_process_group() -> None:
    """Parts from the other processes, which torch would else complain about."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def make_parser(command: str, description: str) -> argparse.ArgumentParser:
    """The parser of a command, named in its help as it was called."""
    script, before = Path(sys.argv[0]), "python -m sopa_plugin."
    if script.stem == "sopa-plugin":
        before = "sopa-plugin "
    elif script.parts[-2:] == ("sopa_plugin", "__main__.py"):
        before = "python -m sopa_plugin "
    return argparse.ArgumentParser(prog=before + command, description=description)


def add_config_options(
    parser: argparse.ArgumentParser, example: str = "trainer.optimizer.lr=0.01"
) -> None:
    """What commands that read configs have; `example` is an override for the help."""
    parser.add_argument(
        "-o",
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"change the config, as in -o {example}; may be given several times",
    )
    _add_include_package(parser)


def add_model_options(
    parser: argparse.ArgumentParser, device: str | None = "a GPU if there is one"
) -> None:
    """What commands that use a trained model and write a file have.

    In words, `device` is where the model runs by default; None where that is not to be chosen.
    """
    parser.add_argument("-f", "--force", action="store_true", help="replace the FILE that is there")
    if device is not None:
        parser.add_argument("--device", help=f"cpu, cuda, cuda:1, ...; by default {device}")
    _add_include_package(parser)
    parser.add_argument(
        "--accept-changed",
        action="store_true",
        help="use a model whose files were changed after training",
    )


def _add_include_package(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--include-package",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="import a package whose parts the config uses; may be given several times",
    )


def add_input(parser: argparse.ArgumentParser, option: str) -> None:
    """How a file of documents is read, which `open_input` does; `option` says its format."""
    parser.add_argument(
        option,
        dest="input_format",
        choices=FORMATS,
        help="what the input is: a document a line (text), or a table; by default what its suffix "
        "says, else JSON lines if the first line is an object",
    )
    parser.add_argument(
        "--text-column", metavar="NAME", help="of tables, by default that of the run's own data"
    )
    parser.add_argument(
        "--encoding", help="by default that of the run's own data, of plain text UTF-8"
    )


@contextmanager
def open_input(
    args: argparse.Namespace, path: str | None
) -> Iterator[tuple[BinaryIO, DocumentStream]]:
    """A file that is open, or stdin, and its documents, read as the options of `add_input` say."""
    from sopa_plugin.data.stream import open_documents

    path = None if path == "-" else path
    name = path or "input"
    if path is None and sys.stdin is None:
        raise UserError("the standard input is closed; name a file with -i")
    form = args.input_format or format_of(name)
    if args.text_column and form in (None, "text"):
        raise UserError(f"{name}: --text-column is for tables; say by its format that it is one")
    if args.encoding and (problem := encoding_problem(args.encoding)):
        raise UserError(f"--encoding: {problem}")
    file = Path(args.run, RUN_CONFIG)
    params = read_json(file, "the config of a run").get("dataset") if file.exists() else None
    layout = dict(params) if isinstance(params, dict) else {}
    if form in (None, "text"):  # what a terminal or an editor writes
        layout.pop("encoding", None)
    layout |= {key: each for key, each in vars(args).items() if each}
    keys = ("text_column", "encoding", "column_names")
    with ExitStack() as files:
        with failing(name, "cannot be read"):
            source = files.enter_context(Path(path).open("rb")) if path else sys.stdin.buffer
        given = {key: layout[key] for key in keys if layout.get(key)}
        yield source, files.enter_context(open_documents(source, name, form, **given))


def choose_device(device: str | None) -> str:
    """The device asked for, or the best there is."""
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    with failing(f"--device {device}", "cannot be used"):
        torch.empty(0, device=device)
    return device


def check_output(path: Path, option: str, force: bool) -> None:
    """Raises `UserError` where an output file, named by `option`, would replace another.

    And where it is a folder.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it")
    if path.is_file() and not force:
        raise UserError(
            f"{path}: the output file exists already; name another ({option}), or replace it "
            "with --force"
        )


def whole_number(at_least: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number."""

    def parse(text: str) -> int:
        try:
            if (number := int(text)) >= at_least:
                return number
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"expected a whole number from {at_least}, found {text!r}")

    return parse


def add_storage(parser: argparse.ArgumentParser, together: str) -> None:
    """Where studies are kept; machines that give the same storage work `together`."""
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="an Optuna storage (sqlite:///FILE, postgresql://...) instead of DIR/studies.log; "
        f"machines that give the same one {together}, each with a DIR of its own",
    )


_KEYS = {
    "train": {"dataset", "model"},
    "search": {"base", "parameters"},
    "experiments": {"title", "data", "models"},
}
"""What the config of each command cannot do without."""


def read_config(
    kind: Any,
    path: str,
    overrides: Sequence[str],
    packages: Sequence[str],
    make: Callable[[Any, dict[str, Any]], Any] = fill_defaults,
) -> Any:
    """What `make` gives of a `kind` and the config of a file.

    Raises:
        ConfigError: every problem of it, with the name of the file.
        UserError: it is for another command.
    """
    import_plugins(packages)
    config = load_config(path, overrides, kind)
    for command, keys in _KEYS.items():
        if keys <= config.keys() and not keys & arguments(kind).keys():
            raise UserError(f"{path}: this is for another command: sopa-plugin {command} {path}")
    try:
        return make(kind, config)
    except ConfigError as error:
        raise ConfigError(error.problems, source=path) from error


def check_files(kind: Any, config: dict[str, Any]) -> None:
    """Checks a config, and looks for the files that it names."""
    if problems := check(kind, config) + missing_files(kind, config):
        raise ConfigError(problems)
