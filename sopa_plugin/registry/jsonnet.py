"""Config files: Jsonnet, with environment variables by `std.native('env')`, or plain JSON.

```jsonnet
{path: std.native('env')('SOPA_SST', 'fixtures/sst'), batch_size: std.native('env')('BATCH', 150)}
```
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sopa_plugin.registry.overrides import apply_overrides
from sopa_plugin.registry.problems import ConfigError, found, nearest

_LOCATION = re.compile(r"\t(\S.*?:\d+(?::[\d-]+)?)(?:\t|$)")  # a line of Jsonnet's stack trace
_SUFFIXES = (".jsonnet", ".json")
_ABSENT = re.compile(r"couldn't open import")


def load_config(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), kind: Any = Any
) -> dict[str, Any]:
    """The object that a config file holds; imports in it are relative to the file.

    Arguments:
        path: a Jsonnet file, or one ending in `.json`, which is read without Jsonnet.
        overrides: `a.b=value`, applied by `apply_overrides`.
        kind: the class or type hint of the config, which says what may be overridden.

    Raises `ConfigError` naming the file and line for a missing file, a wrong syntax, an import
    that is not there.
    """
    file = Path(path)
    text = _read(file)
    config = _from_json(file, text) if file.suffix == ".json" else _from_jsonnet(file, text)
    if not isinstance(config, dict):
        raise ConfigError(f"{file}: expected an object, {{...}}; found {found(config)}")
    return apply_overrides(kind, config, overrides) if overrides else config


def _read(file: Path) -> str:
    if not file.is_file():
        what = "is a folder, not a config file" if file.is_dir() else "no such config file"
        looked = [] if file.is_absolute() else [f"the current folder is {os.getcwd()}"]
        near = _nearest_file(file)
        advice = [f"did you mean '{near}'?"] if near is not None else []
        raise ConfigError("; ".join([f"{file}: {what}", *looked, *advice]))
    data = file.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8; save the file as UTF-8") from error


def _nearest_file(file: Path) -> Path | None:
    """What may have been meant: beside a file that is not there, or in a folder one level below."""
    folder = next((each for each in file.parents if each.is_dir()), None)
    if folder is None:  # it is the current folder or the root
        return None
    beside, below = sorted(folder.glob("*")), sorted(folder.glob("*/*"))
    there = [each for each in [*beside, *below] if each.suffix in _SUFFIXES and each.is_file()]
    for each in there:
        if each.stem == file.stem:
            return each
    close = nearest(
        str(file.relative_to(folder)), [str(each.relative_to(folder)) for each in there]
    )
    return folder / close if close is not None else None


def _from_json(file: Path, text: str) -> Any:
    try:
        return json.loads(
            text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}:{error.colno}"
        raise ConfigError(f"{where}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error}") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key '{twice}' is given twice in one object; keep one")
    return table


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _from_jsonnet(file: Path, text: str) -> Any:
    try:
        import _jsonnet
    except ImportError as error:
        raise ConfigError(
            f"{file}: reading Jsonnet needs the package jsonnet: pip install jsonnet, "
            "or give the config as .json"
        ) from error
    try:
        # jsonnet 0.22 takes two parameter names of several letters for one: so ('n', 'd')
        answer = _jsonnet.evaluate_snippet(
            str(file), text, native_callbacks={"env": (("n", "d"), environment)}
        )
    except RuntimeError as error:
        raise ConfigError(_message(file, str(error))) from error
    return json.loads(answer)


def environment(name: str, default: Any) -> Any:
    """The environment variable `name`, or `default` where it is unset or empty.

    Where the default is a number or truth value, so is the variable; else it is a string.
    """
    value = os.environ.get(name, "")
    if not value or default is None or isinstance(default, str):
        return value or default
    try:
        parsed = json.loads(value, parse_constant=_refuse_constant)
    except ValueError:
        parsed = None
    # Jsonnet has one type of number, so 3 may stand for 3.5
    wanted = bool if isinstance(default, bool) else int | float
    if not isinstance(parsed, wanted) or isinstance(parsed, bool) != isinstance(default, bool):
        words = "true or false" if isinstance(default, bool) else "a number"
        raise ValueError(f"environment variable {name}: expected {words}, found '{value}'")
    return parsed


def _message(file: Path, error: str) -> str:
    """Jsonnet's error on one line, its innermost location first."""
    first, *trace = error.rstrip("\n").split("\n")
    kind, _, what = first.partition(" ERROR: ")
    what = what or kind
    if kind == "STATIC":  # `file:line:column: what`
        return what
    locations = [match[1] for match in map(_LOCATION.match, trace) if match]
    advice = "; imports are relative to the file that has them" if _ABSENT.search(what) else ""
    return f"{locations[0] if locations else file}: {what}{advice}"
