"""`python -m sopa_plugin.experiments DESCRIPTION`: compares models, as tables and curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sopa_plugin.cli import (
    add_include_package,
    add_override,
    build_from_file,
    make_parser,
    run_command,
    whole_number,
)
from sopa_plugin.errors import require

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
        help="results go to DIR/results, where other experiments find them too, tables to "
        "DIR/<name of the description>; by default runs/experiments",
    )
    parser.add_argument(
        "--budget",
        help=f"sets the environment variable {BUDGET}, which the descriptions shipped with "
        "sopa_plugin read: small (their default) or paper",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(0),
        metavar="N",
        help="processes that train at the same time, each with one thread; by default one a GPU "
        "or, without any, one a core; 0 trains in this process",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--validate", action="store_true", help="check the description and stop")
    only.add_argument(
        "--report", action="store_true", help="write the tables of what is done and stop"
    )
    add_override(parser, "tuning.num_trials=4")
    add_include_package(parser)
    args = parser.parse_args(argv)
    if args.budget is not None:
        os.environ[BUDGET] = args.budget
    from sopa_plugin.comparisons import Description, Runner, write_report
    from sopa_plugin.comparisons.workers import default_workers

    packages = args.include_package
    description = build_from_file(Description, args.description, args.override, packages)
    if args.validate:
        print(f"{args.description}: no problems found")
        return
    if len(description.sizes) > 1:
        require("matplotlib.figure", "the curves of several sizes")  # not only when a cell is done
    folder = Path(args.serialization_dir)
    report = folder / Path(args.description).stem
    runner = Runner(description, folder, packages)
    write_report(description, runner.states, report)
    if not args.report:
        for _ in runner.run(default_workers() if args.workers is None else args.workers):
            write_report(description, runner.states, report)
    print((report / "table.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    run_command(main)
