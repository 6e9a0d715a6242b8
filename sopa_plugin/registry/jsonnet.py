"""Config files: Jsonnet, with environment variables by `std.native('env')`, or plain JSON.

```jsonnet
{path: std.native('env')('SOPA_SST', 'fixtures/sst'), batch_size: std.native('env')('BATCH', 150)}
```
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sopa_plugin.errors import require, shortened
from sopa_plugin.files import parse_json, shipped
from sopa_plugin.registry.hints import is_hub_id
from sopa_plugin.registry.overrides import apply_overrides
from sopa_plugin.registry.params import Walk
from sopa_plugin.registry.problems import ConfigError, Problem, did_you_mean, found, nearest

logger = logging.getLogger(__name__)

_LOCATION = re.compile(r"\t(\S.*?:\d+(?::[\d-]+)?)(?:\t|$)")  # a line of Jsonnet's stack trace
_NOT_LEXED = re.compile(r"(.*):(\d+):(\d+): Could not lex the character code \d+")
_SUFFIXES = (".jsonnet", ".json")
_ENV = "std.native('env') takes the variable's name and a default: text, a number, true or false"
_ADVICE = {
    "couldn't open import": "looked for beside the file that has it, in the current folder and "
    "among the shipped configs",
    "native extensions can only take primitives": _ENV,
    "function parameter d not bound": _ENV,
    "only functions can be called, got null": "the one std.native is 'env'",
    "undefined external variable": "std.native('env')('NAME', default) reads the environment",
    "overflow": "the number is too large",
}
_MOST_MEMORY = 2**30  # of the evaluation of a config, and
_MOST_SECONDS = 60  # of the processor, and
_MOST_TEXT = 2**26  # of what comes out of it


def load_config(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), kind: Any = Any
) -> dict[str, Any]:
    """The object that a config file holds.

    An import is looked for beside the file that has it, in the current folder and among the shipped
    configs. A relative path (`LocalPath`) that is not there from the current folder but from the
    config's own is replaced by that, and the log says so; likewise a file of the embedded sample.

    Arguments:
        path: a Jsonnet file, or one ending in `.json`, which is read without Jsonnet.
        overrides: `a.b=value`, applied by `apply_overrides`.
        kind: the class or type hint of the config, which says what may be overridden and which of
            its values are paths.

    Raises `ConfigError` naming the file and line for a missing file, a wrong syntax, an import
    that is not there, a config that needs more than a gigabyte to evaluate.
    """
    file = Path(path)
    text = _read(file)
    loaded = _from_json(file, text) if file.suffix == ".json" else _from_jsonnet(file, text)
    if not isinstance(loaded, dict):
        raise ConfigError(f"{file}: expected an object, {{...}}; found {found(loaded)}")
    config: dict[str, Any] = apply_overrides(kind, loaded, overrides) if overrides else loaded
    for where, (written, _) in Walk(kind, config).local_paths.items():
        located = _located(written, file.parent)
        if located != written:
            logger.info("%s: no %s in the current folder; found as %s", where, written, located)
            config = apply_overrides(kind, config, [f"{where}={json.dumps(located)}"])
    return config


def _located(written: str, folder: Path) -> str:
    places = [written, os.path.join(folder, written)] if written else []
    if Path(written).parts[:1] == ("fixtures",):  # the embedded sample
        places.append(os.path.join(shipped("fixtures").parent, written))
    return next(filter(_is_there, places), written)


def _is_there(path: str) -> bool:
    """Whether there is such a file or folder, or files whose names begin so, as readers take it."""
    folder, name = os.path.split(path)
    with suppress(OSError, ValueError):
        return os.path.exists(path) or any(
            each.startswith(name) for each in os.listdir(folder or ".") if name
        )
    return False


def missing_files(kind: Any, config: Any) -> list[Problem]:
    """A problem for each local file or folder that a config names and that is not there."""
    problems = []
    for where, (path, may_be_on_hub) in Walk(kind, config).local_paths.items():
        if not (_is_there(path) or "://" in path or (may_be_on_hub and is_hub_id(path))):
            folder, name = os.path.split(path)
            hint = f"looked in {os.getcwd()} and beside the config"
            with suppress(OSError, ValueError):
                hint = did_you_mean(name, os.listdir(folder or ".")) or hint
            problems.append(Problem(where, "no such file or folder", "", found(path), hint))
    return problems


def _read(file: Path) -> str:
    if not file.is_file():
        what = "is a folder, not a config file" if file.is_dir() else "no such config file"
        looked = [] if file.is_absolute() else [f"the current folder is {os.getcwd()}"]
        near = _nearest_file(file)
        advice = [f"did you mean '{near}'?"] if near is not None else []
        raise ConfigError("; ".join([f"{file}: {what}", *looked, *advice]))
    return _decoded(file)


def _decoded(file: Path) -> str:
    data = file.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8; save the file as UTF-8") from error
    before, nul, _ = text.partition("\0")
    if nul:
        line = before.count("\n") + 1
        raise ConfigError(f"{file}:{line}: a NUL character; damaged, or no text file?")
    return text


def _nearest_file(file: Path) -> Path | None:
    """What may have been meant: beside a file that is not there, or in a folder one level below."""
    folder = next((each for each in file.parents if each.is_dir()), None)
    if folder is None:  # it is the current folder or the root
        return None
    beside, below = sorted(folder.glob("*")), sorted(folder.glob("*/*"))
    there = [each for each in [*beside, *below] if each.suffix in _SUFFIXES and each.is_file()]
    by_stem = {each.stem: each for each in reversed(there)}  # one beside before one below
    return by_stem.get(nearest(file.stem, by_stem) or "")


def _from_json(file: Path, text: str) -> Any:
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}:{error.colno}"
        strange = _strange(text[error.pos :])
        raise ConfigError(f"{where}: not JSON: {strange or error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error}") from error


def _strange(rest: str) -> str:
    """What is wrong with the first character of `rest`, where no config can have it; else ""."""
    character = rest[:1]
    if character.isascii():
        return ""
    kind = unicodedata.category(character)
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "no character").lower()
    if kind in ("Zs", "Cf", "Zl", "Zp"):
        return f"an invisible character ({name}, {code}); delete it, or write a plain space"
    plain = {"Pi": '"', "Pf": '"', "Ps": '"', "Pd": "-"}.get(kind)
    advice = f"write {plain}" if plain else "such characters stand in quotes only"
    return f"{character} ({name}, {code}) outside of quotes; {advice}"


def _from_jsonnet(file: Path, text: str) -> Any:
    _jsonnet = require("_jsonnet", f"{file}: Jsonnet (not JSON)", extra=None)

    def evaluate() -> tuple[str, str]:
        # jsonnet 0.22 takes two parameter names of several letters for one: so ('n', 'd')
        native = {"env": (("n", "d"), environment)}
        try:
            answer = _jsonnet.evaluate_snippet(
                str(file), text, import_callback=_imported, native_callbacks=native
            )
        except RuntimeError as error:
            return "", str(error)
        if len(answer) > _MOST_TEXT:
            return "", f"makes a config of {len(answer)} characters, which is too much"
        return answer, ""

    answer, fault = _bounded(evaluate)
    if fault:
        raise ConfigError(_message(file, fault))
    try:
        return parse_json(answer)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from error


def _imported(folder: str, name: str) -> tuple[str, bytes]:
    """Jsonnet's import, of a file that is read as a config is."""
    places = [Path(folder, name), Path(name), shipped("configs") / name]
    file = next((each for each in places if each.exists()), places[0])
    try:
        return str(file), _decoded(file).encode()
    except OSError as error:
        raise ValueError(error.strerror) from error
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _bounded(evaluate: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """The answer and the fault of `evaluate`, in a child that may take so much memory only.

    Jsonnet ends the process where memory does.
    """
    if sys.platform == "win32":
        return evaluate()
    import faulthandler
    import resource

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # which ends here whatever happens
        try:
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where Jsonnet says that it gives up
            if sys.platform == "linux":
                used = int(Path("/proc/self/statm").read_text().split()[0])
                limit = used * os.sysconf("SC_PAGESIZE") + _MOST_MEMORY
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            answer = json.dumps(evaluate()).encode()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(answer)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            written = pipe.read()
        return tuple(json.loads(written)) if written else ("", "needs too much memory or time")
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def environment(name: str, default: Any) -> Any:
    """The environment variable `name`, or `default` where it is unset or empty.

    Where the default is a number or truth value, so is the variable; else it is a string.
    """
    if not isinstance(name, str):
        raise ValueError(_ENV)
    value = os.environ.get(name, "")
    if not value or default is None or isinstance(default, str):
        return value or default
    try:
        parsed = parse_json(value)
    except ValueError:
        parsed = None
    # Jsonnet has one type of number, so 3 may stand for 3.5
    wanted = bool if isinstance(default, bool) else int | float
    if not isinstance(parsed, wanted) or isinstance(parsed, bool) != isinstance(default, bool):
        words = "true or false" if isinstance(default, bool) else "a number"
        raise ValueError(f"environment variable {name}: expected {words}, found {shortened(value)}")
    return parsed


def _message(file: Path, error: str) -> str:
    """Jsonnet's error on one line, its innermost location first."""
    first, *trace = error.rstrip("\n").split("\n")
    kind, _, what = first.partition(" ERROR: ")
    what = what or kind
    if match := _NOT_LEXED.fullmatch(what):
        source, line, column = match[1], int(match[2]), int(match[3])
        written = _decoded(Path(source)).encode().split(b"\n")[line - 1][column - 1 :]
        what = f"{source}:{line}:{column}: {_strange(written.decode('utf-8', 'ignore'))}"
    advice = "".join(f"; {each}" for said, each in _ADVICE.items() if said in what)
    if file.suffix not in (*_SUFFIXES, ".libsonnet"):
        advice += "; expected a config, in Jsonnet"
    if kind == "STATIC":  # `file:line:column: what`
        return what + advice
    locations = [match[1] for match in map(_LOCATION.match, trace) if match]
    return f"{locations[0] if locations else file}: {what}{advice}"
