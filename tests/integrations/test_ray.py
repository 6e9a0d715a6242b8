"""Ray Data, on a Ray that is started here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from sopa_plugin import BatchPredictor, predict_texts

ray: Any = pytest.importorskip("ray", reason="needs ray")
pytest.importorskip("ray.data", reason="needs ray[data]")

TEXTS = ["a good film", "bad , bad film", "", None, "unheard-of"] * 20


@pytest.fixture(scope="module", autouse=True)
def started() -> Iterator[None]:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def run(small_model: Path) -> Path:
    return small_model


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_actors_answer_shards(form: str, run: Path, tmp_path: Path) -> None:
    shards, answers = tmp_path / "shards", tmp_path / "answers"
    shards.mkdir()
    texts = [text if form == "parquet" else text or "none" for text in TEXTS]
    for number in range(4):
        some, file = texts[number::4], shards / f"{number}.{form}"
        if form == "csv":
            file.write_text("text\n" + "".join(f'"{text}"\n' for text in some))
        elif form == "json":
            file.write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
        else:
            parquet.write_table(pyarrow.table({"text": some}), file)
    read, written = (getattr(ray.data, f"read_{form}") for _ in range(2))
    rows = read(str(shards)).map_batches(
        BatchPredictor, fn_constructor_args=[run], batch_size=16, concurrency=2
    )
    getattr(rows, f"write_{form}")(str(answers))
    found = {row["text"]: row for row in written(str(answers)).take_all()}
    kinds = list(dict.fromkeys(texts))
    for text, expected in zip(kinds, predict_texts(run, [t or "" for t in kinds]), strict=True):
        assert found[text]["label"] == expected["label"]
        for label, share in expected["probabilities"].items():
            assert found[text][f"probability_{label}"] == pytest.approx(share, abs=1e-6)
    assert sum(1 for _ in written(str(answers)).iter_rows()) == len(texts)


def test_tasks_answer_batches(run: Path) -> None:
    rows = ray.data.from_items([{"text": text, "label": 1} for text in ("good", "bad film")])
    found = rows.map_batches(BatchPredictor(run)).take_all()
    assert [row["predicted_label"] for row in found] == [
        each["label"] for each in predict_texts(run, ["good", "bad film"])
    ]
