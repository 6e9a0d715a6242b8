"""Damaged and odd inputs: a data set that is right, or one error of ours, and nothing else."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from sopa_plugin.data.readers import AmazonReader, DatasetReader, RocReader, SstReader, TextReader
from sopa_plugin.errors import UserError

ROWS = [(f'a {n} "b", c', ("pos", "neg")[n % 2]) for n in range(12)]
SPLITS = ("train", "dev", "test")
HEADER = "id,RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding\n"
PIECES = [
    b"", b"\n", b"\r", b"\r\n", b'"', b'""', b",", b";", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf",
    b"\xc3\xa9", b"\xe2\x80\xa8", b"\\ud800", b"[" * 5000, b"{", b"}", b"(", b")", b"-1", b"-100",
    b"007", b"1e400", b"nan", b"null", b"9" * 5000, b" " * 50, b"x" * 3000,
]  # fmt: skip


def csv(folder: Path) -> DatasetReader:
    lines = "".join('"' + text.replace('"', '""') + f'",{label}\n' for text, label in ROWS)
    for split in SPLITS:
        (folder / f"{split}.csv").write_text("text,label\n" + lines)
    return TextReader(str(folder))


def tsv(folder: Path) -> DatasetReader:
    for split in SPLITS:
        lines = "".join(f"{n}\t{text}\t{label}\tx\n" for n, (text, label) in enumerate(ROWS))
        (folder / f"{split}.tsv.gz").write_bytes(
            gzip.compress(f"n\ttext\tlabel\t\n{lines}".encode())
        )
    return TextReader(str(folder), empty_text="drop")


def json_lines(folder: Path) -> DatasetReader:
    for split in SPLITS:
        lines = (json.dumps({"text": text, "label": label, "n": 1}) for text, label in ROWS)
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    return TextReader(str(folder))


def table() -> Dataset:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["pos", "neg"])})
    columns = {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}
    return Dataset.from_dict(columns, features=features)


def parquet(folder: Path) -> DatasetReader:
    for split in SPLITS:
        table().to_parquet(folder / f"{split}.parquet")
    return TextReader(str(folder))


def stored(folder: Path) -> DatasetReader:
    DatasetDict(dict.fromkeys(SPLITS, table())).save_to_disk(folder)
    return TextReader(str(folder))


def class_folders(folder: Path) -> DatasetReader:
    for split in SPLITS:
        for n, (text, label) in enumerate(ROWS):
            path = folder / split / label / f"{n}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return TextReader(str(folder))


def trees(folder: Path) -> DatasetReader:
    for split in SPLITS:
        (folder / f"{split}.txt").write_text("(3 (2 a) (2 b))\n(1 (2 c))\n" * 4)
    return SstReader(str(folder))


def lines(folder: Path) -> DatasetReader:
    for split in SPLITS:
        (folder / f"{split}.txt").write_text("1 a b\n0 c\n" * 4)
    return SstReader(str(folder))


def reviews(folder: Path) -> DatasetReader:
    (folder / "x-train.txt.tok").write_text("good\nbad\n" * 8)
    (folder / "x-train.cat").write_text("2\n1\n" * 8)
    return AmazonReader(str(folder))


def stars(folder: Path) -> DatasetReader:
    lines = [json.dumps({"reviewText": f"t {n}", "overall": n % 5 + 1.0}) for n in range(20)]
    (folder / "reviews.json").write_text("\n".join(lines))
    return AmazonReader(str(folder))


def stories(folder: Path) -> DatasetReader:
    for split in ("val", "test"):
        rows = "".join(f'{n},"a, b",c,{n % 2 + 1}\n' for n in range(10))
        (folder / f"{split}.csv").write_text(HEADER + rows)
    return RocReader(str(folder))


def mutate(content: bytes, draw: random.Random) -> bytes:
    """The content with one to three cuts, doublings, flips or odd pieces put in."""
    for _ in range(draw.randint(1, 3)):
        start, stop = sorted(draw.randint(0, len(content)) for _ in range(2))
        change = draw.randint(0, 4)
        if change == 0:
            content = content[:start]
        elif change == 1:
            content = content[:start] + content[stop:]
        elif change == 2:
            content = content[:stop] + content[start:stop] + content[stop:]
        elif change == 3 and content:
            at = draw.randrange(len(content))
            content = (
                content[:at] + bytes([content[at] ^ 1 << draw.randint(0, 7)]) + content[at + 1 :]
            )
        else:
            content = content[:start] + draw.choice(PIECES) + content[start:]
    return content


ROUNDS = [25, pytest.param(1000, marks=pytest.mark.campaign)]


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize(
    "write",
    [csv, tsv, json_lines, parquet, stored, class_folders, trees, lines, reviews, stars, stories],
)
def test_a_data_set_or_one_error(
    write: Callable[[Path], DatasetReader],
    rounds: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    draw = random.Random(0)
    folder = tmp_path / "data"
    folder.mkdir()
    reader = write(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    kept = {path: path.read_bytes() for path in files}
    names = set(reader.read()["train"].features["label"].names)
    refusals: list[str] = []
    for _ in range(rounds):
        path = draw.choice(files)
        packed = path.suffix == ".gz" and draw.random() < 0.8
        content = gzip.decompress(kept[path]) if packed else kept[path]
        content = mutate(content, draw)
        path.write_bytes(gzip.compress(content) if packed else content)
        try:
            loaded = reader.read()
        except UserError as error:
            refusals.append(str(error))
        else:
            for data in loaded.values():
                found = data[:]
                assert len(data)
                assert all(isinstance(text, str) for text in found["text"])
                assert max(found["label"]) < len(loaded["train"].features["label"].names)
                assert all(found["text"])
        path.write_bytes(kept[path])
    shutil.rmtree(folder)
    assert names
    assert refusals
    assert max(map(len, refusals)) < 2000
