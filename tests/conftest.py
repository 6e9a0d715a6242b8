"""For all tests: trainings run on the CPU, where a seed decides them to the last bit.

What is for GPUs (tests/wfsa/test_cuda.py) names its device and takes the GPU where there is
one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("any machine", deadline=None)  # also a busy one
hypothesis.settings.load_profile("any machine")

os.environ["ACCELERATE_USE_CPU"] = "1"


@pytest.fixture(autouse=True)
def levels_of_logging() -> Iterator[None]:
    """Puts back what a command, called in the tests' own process, has made of the log."""
    names = ("sopa_plugin", "sopa_plugin.comparisons")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an untrained classifier of five patterns over six words."""
    import torch

    from sopa_plugin.data.tokenizers import make_tokenizer
    from sopa_plugin.models import Model

    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("run")
    model = Model.from_params(
        {
            "embedder": {"type": "static", "embedding_dim": 4},
            "encoder": {"type": "sopa", "patterns": {"3": 3, "2": 2}},
        },
        tokenizer=make_tokenizer(["a", "good", "bad", "film", ",", "not"]),
        labels=["bad", "good"],
    )
    model.save(folder)
    return folder
