"""Which files of a folder belong together as train, dev and test."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sopa_plugin.errors import UserError

SPLITS = ("train", "dev", "test")
_SPLIT_WORD = re.compile(
    r"(?<![a-z])(train(?:ing)?|dev(?:elopment)?|val(?:id|idation)?|test)(?![a-z])", re.IGNORECASE
)
_SHARD = re.compile(r"-\d+-of-\d+")
# what `datasets` writes beside the data
_NOTES = {"dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"}
Wanted = Callable[[Path], bool]
Files = dict[str, list[Path]]


def canonical_split(word: str) -> str:
    """`training` is train, `valid` and `validation` are dev; other words stay as they are."""
    lower = word.lower()
    for split, beginning in (("train", "train"), ("dev", "dev"), ("dev", "val")):
        if lower.startswith(beginning):
            return split
    return lower


def canonical_splits(found: Mapping[str, Any]) -> dict[str, Any]:
    """train, dev and test of what is there by other words for them."""
    named = {canonical_split(name): each for name, each in found.items()}
    return {split: named[split] for split in SPLITS if split in named}


def split_of(name: str) -> str | None:
    """`train`, `dev` or `test`, if the name has exactly one word for one of them."""
    words = _SPLIT_WORD.findall(name)
    return canonical_split(words[0]) if len(words) == 1 else None


def is_stored(path: Path) -> bool:
    """Whether a path is a folder that `save_to_disk` wrote."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def entries(folder: Path) -> list[Path]:
    """What is in a folder, in order, but for what is hidden."""
    try:
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError:  # one that may not be looked into, say
        return []


def find_files(path: Path, wanted: Wanted, may_lack_split: Wanted | None = None) -> Files:
    """The files of each split of the one data set that a path means; none, if there is none.

    A data set is files whose names differ in the word for the split and the suffix only. A folder
    means the data set in it or in one of its folders; the beginning of file names
    (`sst/stsa.binary`) the one whose names begin so; a file the one that it belongs to, where it is
    chosen before others of its split.

    Arguments:
        wanted: whether a file, or folder, can be a split.
        may_lack_split: which files are a training set even if no split is in their name.

    Raises:
        UserError: there are several data sets, or several files for one split.
    """
    folders = [path] if path.is_dir() else [path.parent]
    if path.is_dir():
        folders += [each for each in entries(path) if each.is_dir()]
    groups: dict[tuple[Path, str], Files] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        for file in entries(folder):
            if file.name in _NOTES or not wanted(file):
                continue
            if split := split_of(file.name):
                groups[folder, _without_split(file.name)][split].append(file)
            elif may_lack_split and may_lack_split(file) and not _SPLIT_WORD.search(file.name):
                groups[folder, file.name]["train"].append(file)
    sets = [files for files in groups.values() if "train" in files] or list(groups.values())
    if not path.is_dir():
        named = [files for files in sets if any(path in each for each in files.values())]
        sets = (
            named or []
            if path.is_file()
            else [files for files in sets if _first(files).name.startswith(path.name)]
        )
    if len(sets) > 1:
        choices = "".join(f"\n  {_choice(files, groups, path)}" for files in sets)
        raise UserError(f"{path}: holds {len(sets)} data sets; set the path to one of:{choices}")
    found = sets[0] if sets else {}
    return {split: _one_set(found[split], split, path) for split in SPLITS if split in found}


def _one_set(files: list[Path], split: str, path: Path) -> list[Path]:
    """The file of a split, or its shards; the one that is named before others."""
    if path in files:
        return [path]
    if len(files) > 1 and not all(_SHARD.search(file.name) for file in files):
        raise UserError(
            f"{files[0].parent}: both {files[0].name} and {files[1].name} could be the {split} "
            "set; keep one of them there."
        )
    return files


def _without_split(name: str) -> str:
    """What the files of one data set share: train.csv and test.tsv.gz belong together."""
    before, _, after = _SPLIT_WORD.split(_SHARD.sub("", name), maxsplit=1)
    return f"{before}\n{after.removesuffix('.gz').rpartition('.')[0]}"


def _first(files: Mapping[str, list[Path]]) -> Path:
    return next(files[split][0] for split in SPLITS if split in files)


def _choice(
    files: Mapping[str, list[Path]], groups: Mapping[tuple[Path, str], Files], path: Path
) -> str:
    """What to write as path for one of several data sets, and its files."""
    first = _first(files)
    alone = sum(folder == first.parent for folder, _ in groups) == 1
    beginning = _SPLIT_WORD.split(first.name)[0].rstrip("._- ")
    if alone and first.parent != path:
        choice = first.parent
    else:
        choice = first.parent / beginning if beginning else first
    names = ", ".join(file.name for each in files.values() for file in each)
    return f"{choice}  ({names})"
