"""`python -m sopa_plugin.evaluate RUN [DATA ...]`: figures of a trained model."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sopa_plugin.cli import (
    add_accept_changed,
    add_device,
    add_include_package,
    choose_device,
    make_parser,
    run_command,
)
from sopa_plugin.registry import import_plugins


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and evaluates; prints a line of JSON for each set of data."""
    parser = make_parser(
        "evaluate", "Evaluate a trained model: a line of JSON for each set of data."
    )
    parser.add_argument("run", help="the folder of a finished run")
    parser.add_argument(
        "data",
        nargs="*",
        help="files, folders or Hub ids in the format of the run's own data (of a folder, its "
        "test set); by default the run's own dev and test sets",
    )
    add_device(parser)
    add_include_package(parser)
    add_accept_changed(parser)
    args = parser.parse_args(argv)
    from sopa_plugin.training import evaluate_run

    import_plugins(args.include_package)
    for metrics in evaluate_run(
        args.run, args.data, choose_device(args.device), args.accept_changed
    ):
        print(json.dumps(metrics), flush=True)


if __name__ == "__main__":
    run_command(main)
