"""For all tests: trainings run on the CPU, where a seed decides them to the last bit.

What is for GPUs (tests/wfsa/test_cuda.py) names its device and takes the GPU where there is
one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

os.environ["ACCELERATE_USE_CPU"] = "1"


@pytest.fixture(autouse=True)
def levels_of_logging() -> Iterator[None]:
    """Puts back what a command, called in the tests' own process, has made of the log."""
    names = ("sopa_plugin", "sopa_plugin.comparisons")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
