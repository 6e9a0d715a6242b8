"""From raw text to labels."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from sopa_plugin.benchmarks.bench import OURS, Bench, Wanted
from sopa_plugin.benchmarks.timing import Work
from sopa_plugin.benchmarks.workload import Workload

FASTTEXT = "fastText"
_ATTEMPTS = 50


def prediction(bench: Bench) -> None:
    """Labels of all sentences, from a list of strings, by the compiled model and by others."""
    workload = bench.workload
    texts = list(workload.texts)
    model = workload.classifier()
    matcher = model.to_matcher()
    work: dict[str, Work] = {
        OURS: lambda: matcher.predict(texts),
        f"{OURS}, not compiled": lambda: model.log_probabilities(texts),
    }
    note = "A list of strings in, labels out; soft patterns compiled to a table (`to_matcher`)."
    try:
        import fasttext
    except ImportError:
        note += " fastText is not installed here (`pip install fasttext`)."
    else:
        trained = _train(fasttext, workload)
        work[FASTTEXT] = lambda: trained.predict(texts)
    tokens = len(workload.documents.ids)
    wanted = [Wanted("raw text to label: fastText", FASTTEXT, 1)]
    bench.compare("Prediction from raw text", work, "word", tokens, wanted, note)


def _train(fasttext: ModuleType, workload: Workload) -> Any:
    """A fastText classifier with its default settings; its speed does not depend on how good."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.txt")
        lines = (
            f"__label__{label} {text}\n"
            for text, label in zip(workload.texts, workload.labels, strict=True)
        )
        file.write_text("".join(lines), encoding="utf-8")
        # fastText 0.9.2 leaves a few numbers as the memory was (with one thread, most of them), and
        # stops where they are none. Predicting takes one thread in any case.
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return fasttext.train_supervised(str(file), epoch=1, thread=2, verbose=0)
            except RuntimeError:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError
