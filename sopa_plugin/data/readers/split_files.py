"""Which files of a folder belong together as train, dev and test."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sopa_plugin.errors import UserError

SPLITS = ("train", "dev", "test")
_SPLIT_WORD = re.compile(
    r"(?<![a-z])(train(?:ing)?|dev(?:elopment)?|val(?:id|idation)?|test)(?![a-z])", re.IGNORECASE
)
# what `datasets` writes beside the data
_NOTES = {"dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"}
Wanted = Callable[[Path], bool]


@dataclass
class Form:
    """One data set: files whose names differ in the word for the split and the suffix only.

    Attributes:
        choice: what a user writes as path to get this one.
        files: split to file or folder.
        clash: what is wrong with it, if two files could be one split; else "".
    """

    choice: Path
    files: dict[str, Path] = field(default_factory=dict)
    clash: str = ""


def canonical_split(word: str) -> str:
    """`training` is train, `valid` and `validation` are dev; other words stay as they are."""
    lower = word.lower()
    for split, beginning in (("train", "train"), ("dev", "dev"), ("dev", "val")):
        if lower.startswith(beginning):
            return split
    return lower


def split_of(name: str) -> str | None:
    """`train`, `dev` or `test`, if the name has exactly one word for one of them."""
    words = _SPLIT_WORD.findall(name)
    return canonical_split(words[0]) if len(words) == 1 else None


def find_forms(
    folder: Path,
    wanted: Wanted,
    may_lack_split: Wanted | None = None,
    named: Path | None = None,
) -> list[Form]:
    """Every data set among the wanted entries of a folder that has at least a train file.

    A file with no split in its name is a data set of its own where `may_lack_split` says so. Of two
    files that could be the same split, the one that is `named` is.
    """
    groups: dict[tuple[str, ...], dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _NOTES or not wanted(path):
            continue
        split = split_of(path.name)
        if split is not None:
            groups[_name_without_split(path.name)][split].append(path)
        elif may_lack_split and may_lack_split(path) and not _SPLIT_WORD.search(path.name):
            groups[(path.name,)]["train"].append(path)
    return [_form(paths, named) for paths in groups.values() if "train" in paths]


def _form(paths: Mapping[str, list[Path]], named: Path | None) -> Form:
    files = {
        split: named if named in paths[split] else paths[split][0]
        for split in SPLITS
        if split in paths
    }
    clash = ""
    for split, (first, *others) in paths.items():
        if others and named not in (first, *others):
            clash = (
                f"{first.parent}: both {first.name} and {others[0].name} could be the {split} set; "
                "keep one of them there."
            )
    return Form(_choice(files["train"]), files, clash)


def choose_form(path: Path, forms: Iterable[Form], expected: str) -> Form:
    """The only form; none or several of them are an error that says what there is to choose.

    So is one with two files for a split.
    """
    found = list(forms)
    if not found:
        raise UserError(f"{path}: no data set found there; expected {expected}.")
    if len(found) > 1:
        choices = "".join(
            f"\n  {form.choice}  ({', '.join(file.name for file in form.files.values())})"
            for form in found
        )
        raise UserError(f"{path}: holds {len(found)} data sets; set the path to one of:{choices}")
    if found[0].clash:
        raise UserError(found[0].clash)
    return found[0]


def forms_at(path: Path, wanted: Wanted, may_lack_split: Wanted | None = None) -> list[Form]:
    """The forms that a path can mean.

    A folder: those in it, and in its folders. The beginning of file names (`sst/stsa.binary`):
    those whose names begin so. A train file: the one that it belongs to.
    """
    if path.is_dir():
        forms = find_forms(path, wanted, may_lack_split)
        for folder in sorted(each for each in path.iterdir() if each.is_dir()):
            inner = find_forms(folder, wanted, may_lack_split)
            forms += [replace(inner[0], choice=folder)] if len(inner) == 1 else inner
        return forms
    if not path.parent.is_dir():
        return []
    forms = find_forms(path.parent, wanted, may_lack_split, named=path)
    exact = [form for form in forms if path in (form.choice, form.files["train"])]
    if exact or path.is_file():
        return exact
    return [form for form in forms if form.files["train"].name.startswith(path.name)]


def _name_without_split(name: str) -> tuple[str, ...]:
    """What the files of one data set share: train.csv and test.tsv.gz belong together."""
    before, _, after = _SPLIT_WORD.split(name, maxsplit=1)
    return before, after.removesuffix(".gz").rpartition(".")[0]


def _choice(train: Path) -> Path:
    """The beginning of the name up to the word for the split, where there is one to write."""
    beginning = _SPLIT_WORD.split(train.name)[0].rstrip("._- ")
    return train.parent / beginning if beginning else train
