"""What `python -m sopa_plugin.bench` measures: soft patterns beside their alternatives."""

from __future__ import annotations

import logging
import os
import platform
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from sopa_plugin import __version__
from sopa_plugin.benchmarks.growth import check_picture, growth, memory, scale
from sopa_plugin.benchmarks.measuring import CLOCKS, Bench, Report, use_threads
from sopa_plugin.benchmarks.sections import epoch, gpu, kernel, prediction, reading, training
from sopa_plugin.benchmarks.workload import TRAIN, make_workload
from sopa_plugin.errors import counted

logger = logging.getLogger(__name__)

SECTIONS: dict[str, Callable[[Bench], None]] = {
    each.__name__: each
    for each in (training, kernel, prediction, reading, epoch, memory, growth, scale, gpu)
}


def run_benchmarks(
    sections: Sequence[str] = tuple(SECTIONS),
    rounds: int = 7,
    batches: int = 4,
    sentences: int = TRAIN,
    threads: int = 1,
    clock: str = "wall",
    plot: str | Path | None = None,
) -> Report:
    """Measures soft patterns beside their alternatives.

    Arguments:
        sections: names of what to measure (`SECTIONS`).
        rounds: how often everything is measured.
        batches: batches of 150 sentences in one measurement.
        sentences: at most how many to train on.
        threads: how many threads torch and the kernel may use.
        clock: `wall`, or `cpu` for the time of all threads of this process, which is steadier on
            a machine that others use, too.
        plot: where to save the picture of how costs grow, if section `growth` is measured.

    Raises:
        UserError: the picture could not be saved there; nothing has been measured then.
    """
    picture = Path(plot) if plot is not None and "growth" in sections else None
    if picture is not None and find_spec("matplotlib") is None:
        logger.warning("no picture: it needs matplotlib (pip install 'sopa_plugin[experiments]')")
        picture = None
    if picture is not None:
        check_picture(picture)
    workload = make_workload(sentences)
    report = Report(f"{describe_machine(threads)} Text: {workload.what}.")
    bench = Bench(workload, rounds, batches, CLOCKS[clock], picture, report)
    with use_threads(threads):
        for name in sections:
            logger.info("measuring: %s", name)
            torch.manual_seed(1)
            SECTIONS[name](bench)
    return report


def describe_machine(threads: int) -> str:
    """What was measured, on which machine, in one line."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text() if info.is_file() else "")
    name = found[1] if found else platform.processor() or platform.machine()
    cores = f"{name}, {os.cpu_count()} cores"
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    python = f"Python {platform.python_version()}"
    used = counted(threads, "thread")
    return f"sopa_plugin {__version__}, torch {torch.__version__}, {python}; {cores}{gpu}; {used}."
