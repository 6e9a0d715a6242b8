"""`python -m sopa_plugin.search SPACE`: finds the best hyperparameters of a config."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from sopa_plugin.cli import (
    add_config_options,
    add_storage,
    check_files,
    make_parser,
    read_config,
    run_command,
    whole_number,
)
from sopa_plugin.errors import log_experiments_alone, require
from sopa_plugin.registry import build, import_plugins, load_config


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and searches."""
    parser = make_parser(
        "search",
        "Search for the best hyperparameters. The same command again goes on with an interrupted "
        "search, or, at the same time, shares the work of a running one.",
    )
    parser.add_argument("space", help="a Jsonnet or JSON file: base, parameters, num_trials, ...")
    parser.add_argument(
        "-s",
        "--serialization-dir",
        metavar="DIR",
        help="output folder, shared by all processes that search; by default "
        "runs/search/<name of the space>",
    )
    parser.add_argument(
        "--base", metavar="CONFIG", help="search around this config instead of the space's own"
    )
    parser.add_argument(
        "--num-trials", type=whole_number(1), metavar="N", help="how many configs are tried"
    )
    add_storage(parser, "search together")
    parser.add_argument(
        "--workers",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="processes to start, each with one thread; by default this one alone, with all cores",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="log every epoch of trials that run in this process, not only a line for each trial",
    )
    parser.add_argument("--validate", action="store_true", help="check the space and stop")
    add_config_options(parser, "base.trainer.num_epochs=30")
    args = parser.parse_args(argv)
    require("optuna", "a search")
    from sopa_plugin.comparisons import Search, run_search, write_search_report
    from sopa_plugin.training import Experiment

    if not args.verbose:
        log_experiments_alone()
    packages = args.include_package
    import_plugins(packages)
    base = load_config(args.base, kind=Experiment) if args.base else None
    changes = [f"base={json.dumps(base)}"] if base else []
    changes += [f"num_trials={args.num_trials}"] if args.num_trials else []
    changes += args.override
    if args.validate:
        read_config(Search, args.space, changes, packages, check_files)
        print(f"{args.space}: no problems found")
        return
    require("matplotlib.pyplot", "the pictures of a search")  # not only when all is done
    search = read_config(Search, args.space, changes, packages, build)
    name = Path(args.space).stem + (f"-{Path(args.base).stem}" if args.base else "")
    folder = Path(args.serialization_dir or Path("runs", "search", name))
    workers = args.workers if args.workers > 1 else 0
    study = run_search(search, folder, args.storage, workers, packages)
    write_search_report(study, folder)
    best = study.complete[0]
    print((folder / "trials.md").read_text(encoding="utf-8"))
    print(f"best: trial {best.number}, dev {search.metric[1:]} {best.value:.4f}")
    included = [f"--include-package={each}" for each in packages]
    command = [str(folder / "best.json"), "-s", f"runs/{name}-best", *included]
    print(f"train it: python -m sopa_plugin.train {shlex.join(command)}")


if __name__ == "__main__":
    run_command(main)
