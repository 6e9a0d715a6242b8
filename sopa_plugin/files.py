"""Files that are read and written whole, and noticed when they changed since."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sopa_plugin.errors import UserError, failing, shortened

DIGESTS = "digests.json"
"""In a saved model's folder: a digest (BLAKE2b, 128 bits) of each file that decides an answer."""
RUN_CONFIG = "experiment.json"
"""In a run's folder: its config with every default filled in."""
DEEPEST = 100
"""How many levels of lists and objects a config may have."""
_ANY_SIZE = 10_000  # an object of so many parts is built at once
_ASIDE = re.compile(r"\..+\.new-\d+")
_REMEDIES = {errno.ENOENT: "make its folder first"} | dict.fromkeys(
    (errno.ENOSPC, errno.EDQUOT), "make room there, or name a file elsewhere"
)


def shipped(name: str) -> Path:
    """The folder `configs` or `fixtures` that comes with this package: in it, in a clone beside."""
    package = Path(__file__).parent
    return package / name if (package / name).is_dir() else package.parent / name


@contextmanager
def written_aside(path: Path, then: str | None = None) -> Iterator[Path]:
    """For `with`: a path beside `path` to write a file at, which in the end takes its place.

    If that is not reached, what was at `path` stays and the new file goes. Several processes may
    write the same file at once: one of theirs stays, whole. Raises `UserError` where the system
    says that it cannot be written, and what to do then: `then`, or else by what the system says.
    """
    aside = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        yield aside
        os.replace(aside, path)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(aside)):
            elsewhere = "name a file in a folder where you may write"
            remedy = then or _REMEDIES.get(error.errno or 0, elsewhere)
            raise UserError(f"{path}: cannot be written ({error.strerror}); {remedy}") from error
        raise


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all; text in UTF-8."""
    with written_aside(path) as aside:
        aside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def is_same_file(path: str | Path, opened: BinaryIO) -> bool:
    """Whether `path` is the regular file that is open."""
    try:
        return Path(path).is_file() and os.path.samestat(os.stat(path), os.fstat(opened.fileno()))
    except OSError:  # something in memory
        return False


def is_left_aside(path: Path) -> bool:
    """Whether `written_aside` gave a file its name."""
    return _ASIDE.fullmatch(path.name) is not None and path.is_file()


def remove_left_aside(folder: Path, names: Container[str] | None = None) -> None:
    """Deletes the files in a folder that processes killed on this machine were writing.

    Only those that were to have one of `names`, where other machines may write others.
    """
    for each in folder.iterdir() if folder.is_dir() else ():
        name, _, process = each.name.rpartition(".new-")
        wanted = names is None or name[1:] in names
        if wanted and is_left_aside(each) and not _is_alive(int(process)):
            each.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # where a signal of no meaning would end it
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # but another user's
    return True


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """The object in a JSON file; `expected` says in the `UserError` what should be there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"no object, but {shortened(found)}")
    except (OSError, ValueError, RecursionError) as error:  # the last of nesting without end
        reason = error.strerror if isinstance(error, OSError) else f"not JSON: {error}"
        raise UserError(f"{path}: cannot be read ({reason}); expected {expected}") from error
    return found


def parse_json(text: str) -> Any:
    """What a config, or a value of one, says in JSON.

    Raises:
        ValueError: it is no JSON (`json.JSONDecodeError`), or it has a key twice in one object, a
            number that no float holds, NaN, or more levels than any config needs.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=unique_keys,
            parse_float=_finite,
            parse_int=_integer,
            parse_constant=_finite,
        )
    except RecursionError as error:
        raise ValueError("nested without end") from error
    level, depth = [value], 0
    while level := [item for each in level for item in _items(each)]:
        if (depth := depth + 1) > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
    return value


def plain(value: Any) -> Any:
    """A value as JSON can hold it: data classes as objects, sets sorted, tuples as lists.

    Numbers that are not finite become null.
    """
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return plain({each.name: getattr(value, each.name) for each in fields(value)})
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, Set)):
        return [plain(each) for each in (sorted(value) if isinstance(value, Set) else value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, each of whose keys comes once; else `ValueError`."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {shortened(twice)} is given twice in one object; keep one")
    return table


def _finite(written: str) -> float:
    if math.isfinite(number := float(written)):
        return number
    raise ValueError(f"{written[:40]} is no JSON number, or too large for one")


def _integer(written: str) -> int:
    if len(written) > 1000:
        raise ValueError(f"a number of {len(written)} digits is too large")
    return int(written)


def check_folder(folder: Path, expected: str) -> None:
    """Raises `UserError` where there is no such folder; `expected` says which is wanted."""
    if folder.is_dir():
        return
    here = "" if folder.is_absolute() else f" (the current folder is {Path.cwd()})"
    what = "is a file, not a folder" if folder.exists() else f"no such folder{here}"
    raise UserError(f"{folder}: {what}; {expected}")


def write_digests(folder: Path, files: Iterable[Path]) -> None:
    """Notes what `files` of a folder hold, beside those that are noted already."""
    noted = digests_of(folder) | {file.name: _digest(file) for file in files}
    write_file(folder / DIGESTS, json.dumps(noted, indent=1) + "\n")


def check_digests(folder: Path) -> None:
    """Reads every file that `write_digests` noted; one that is gone is missed by who needs it.

    Raises:
        UserError: one holds something else now, or cannot be read.
    """
    for name, digest in digests_of(folder).items():
        file = folder / Path(name).name  # never outside the folder
        if file.exists() and _digest(file) != digest:
            raise UserError(
                f"{file}: changed since training: damaged, or edited? Train again or take another "
                "copy; if it was meant, give --accept-changed"
            )


def digests_of(folder: Path) -> dict[str, str]:
    """What `write_digests` noted in a folder, by the names of its files."""
    file = folder / DIGESTS
    if not file.exists():
        return {}
    return read_json(file, "the digest of each of a model's files")


def identity_of(folder: Path) -> dict[str, str]:
    """What tells a saved model from others: the digests of its files, noted or not."""
    kinds = (".json", ".safetensors")
    files = (each for each in sorted(folder.iterdir()) if each.suffix in kinds and each.is_file())
    return digests_of(folder) or {each.name: _digest(each) for each in files}


def _digest(file: Path) -> str:
    with failing(file, "cannot be read"), file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def check_labels(labels: Any, where: str) -> None:
    """Raises `UserError` where what a saved file has for names of classes are none."""
    names = [each for each in labels if isinstance(each, str)] if isinstance(labels, list) else []
    if not names or len(set(names)) < len(labels):
        raise UserError(f"{where}: expected names of classes, found {shortened(labels)}")


def check_sizes(config: Any, shapes: Iterable[Iterable[int]], where: str) -> None:
    """Compares the sizes in a saved config with its weights, before anything so large is made.

    Arguments:
        config: of the parts of a model, as JSON.
        shapes: of the weights.
        where: the config is, for the message.

    Raises:
        UserError: a number is larger than any dimension of the weights.
    """
    largest = max((size for shape in shapes for size in shape), default=0)

    def check(value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            for key, each in value.items():
                check(int(key[:30]) if key.isdecimal() else None, f"{path}.{key}")
                if key == "config" and isinstance(each, Mapping):  # of another library's model
                    sizes = ("layer", "num_labels")  # others are made on the meta device
                    each = {n: size for n, size in each.items() if any(s in n for s in sizes)}
                check(each, f"{path}.{key}")
        elif isinstance(value, list):
            for number, each in enumerate(value):
                check(each, f"{path}.{number}")
        elif isinstance(value, int) and value > max(largest, _ANY_SIZE):
            raise UserError(
                f"{path}: expected a size of the weights, of which the largest is {largest}, found "
                f"{value}; damaged, or of another model?"
            )

    check(config, where)
