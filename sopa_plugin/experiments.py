"""`python -m sopa_plugin.experiments DESCRIPTION`: compares models, as tables and curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sopa_plugin.cli import (
    add_config_options,
    add_storage,
    make_parser,
    read_config,
    run_command,
    whole_number,
)
from sopa_plugin.errors import log_experiments_alone, require
from sopa_plugin.registry import build

BUDGET = "SOPA_BUDGET"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and runs what is missing."""
    parser = make_parser(
        "experiments",
        "Compare models on data sets: tune, train, and write tables and curves. What is done "
        "already is not done again; an interrupted experiment goes on.",
    )
    parser.add_argument("description", help="a Jsonnet or JSON file")
    parser.add_argument(
        "-s",
        "--serialization-dir",
        metavar="DIR",
        default="runs/experiments",
        help="results go to DIR/studies.log, where other experiments find them too, tables to "
        "DIR/<name of the description>; by default runs/experiments",
    )
    add_storage(parser, "share the work")
    parser.add_argument(
        "--budget",
        help=f"sets the environment variable {BUDGET}, which the descriptions shipped with "
        "sopa_plugin read: small (their default) or paper",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(0),
        metavar="N",
        help="how many runs are made at the same time, each with one thread, in processes of their "
        "own if there are several; by default one a GPU or, without any, one a core; 0 uses this "
        "process with all its threads",
    )
    parser.add_argument(
        "--redo",
        action="append",
        default=[],
        metavar="CELL",
        help="forget what is known of a cell, as sst.dan.all or 'sst.*', and run it again; may be "
        "given several times",
    )
    parser.add_argument(
        "--into",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="also bring this experiment's tables in a Markdown file up to date, which stand there "
        "between lines as <!-- table.accuracy --> and <!-- end -->; may be given several times",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--validate", action="store_true", help="check the description and stop")
    only.add_argument(
        "--report", action="store_true", help="write the tables of what is done and stop"
    )
    add_config_options(parser, "tuning.num_trials=4")
    args = parser.parse_args(argv)
    if args.budget is not None:
        os.environ[BUDGET] = args.budget
    require("optuna", "an experiment")
    from sopa_plugin.comparisons import Description, Runner, write_report
    from sopa_plugin.comparisons.report import keep_in
    from sopa_plugin.comparisons.runner import default_workers

    log_experiments_alone()
    packages = args.include_package
    description = read_config(Description, args.description, args.override, packages, build)
    if args.validate:
        print(f"{args.description}: no problems found")
        return
    if description.has_curve:
        require("matplotlib.figure", "the curves")  # not only when a cell is done
    folder, source = Path(args.serialization_dir), Path(args.description)
    report = folder / source.stem
    runner = Runner(description.plans(), folder, args.storage, packages)
    for each in args.redo:
        runner.redo(each)
    write_report(description, runner.cells, report)
    if not args.report:
        workers = default_workers() if args.workers is None else args.workers
        for _ in runner.run(workers):
            write_report(description, runner.cells, report)
    for each in args.into:
        keep_in(each, source, description, runner.cells)
    print((report / "table.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    run_command(main)
