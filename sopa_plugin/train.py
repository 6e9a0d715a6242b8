"""`python -m sopa_plugin.train CONFIG`: trains the model that a config describes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sopa_plugin.cli import (
    add_config_options,
    check_files,
    make_parser,
    read_config,
    run_command,
)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and trains."""
    parser = make_parser(
        "train", "Train a model. On several devices: accelerate launch -m sopa_plugin.train ..."
    )
    parser.add_argument("config", help="a Jsonnet or JSON file")
    parser.add_argument(
        "-s",
        "--serialization-dir",
        metavar="DIR",
        help="output folder; by default runs/<name of the config>",
    )
    add_config_options(parser)
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("-f", "--force", action="store_true", help="replace the run that is in DIR")
    begin.add_argument(
        "-r",
        "--recover",
        action="store_true",
        help="continue the run that is in DIR, or begin it if there is none",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--validate", action="store_true", help="check the config, look for its files, and stop"
    )
    only.add_argument(
        "--print-config", action="store_true", help="print the config, defaults filled in, and stop"
    )
    args = parser.parse_args(argv)
    from sopa_plugin.training import Experiment, run_experiment

    given = args.config, args.override, args.include_package
    if args.validate:
        read_config(Experiment, *given, check_files)
        print(f"{args.config}: no problems found")
        return
    config = read_config(Experiment, *given)
    if args.print_config:
        print(json.dumps(config, indent=2))
    else:
        folder = args.serialization_dir or Path("runs", Path(args.config).stem)
        run_experiment(config, folder, args.force, args.recover)


if __name__ == "__main__":
    run_command(main)
