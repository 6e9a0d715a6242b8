"""`python -m sopa_plugin.evaluate RUN [DATA ...]`: figures of a trained model."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sopa_plugin.cli import add_model_options, check_output, choose_device, make_parser, run_command
from sopa_plugin.files import written_aside
from sopa_plugin.registry import import_plugins

if TYPE_CHECKING:
    from sopa_plugin.models import Model

logger = logging.getLogger("sopa_plugin.evaluate")  # also where it is run as `__main__`


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and evaluates; prints a line of JSON for each set of data."""
    parser = make_parser(
        "evaluate", "Evaluate a trained model: a line of JSON for each set of data."
    )
    parser.add_argument("run", help="the folder of a finished run, or of any saved model")
    parser.add_argument(
        "data",
        nargs="*",
        help="files, folders or Hub ids in the format of the run's own data (of a folder, its "
        "test set), or files with columns text and label; by default the run's own dev and test "
        "sets",
    )
    parser.add_argument(
        "--split",
        action="append",
        choices=("train", "dev", "test"),
        help="a set of the run's own; may be given several times; by default dev and test",
    )
    parser.add_argument(
        "--errors",
        metavar="FILE",
        help="write each wrong document here as a line of JSON, the surest first",
    )
    parser.add_argument(
        "--faithfulness",
        action="store_true",
        help="also how faithful explanations of 100 documents of each set are, beside gradients, "
        "leaving out single words and random spans",
    )
    add_model_options(parser)
    args = parser.parse_args(argv)
    from sopa_plugin.training import evaluate_run

    import_plugins(args.include_package)
    if args.data and args.split:
        parser.error("--split names a set of the run's own: give either that or DATA")
    splits = args.split or ("dev", "test")
    with ExitStack() as files:
        errors = None
        if args.errors is not None:
            check_output(Path(args.errors), "--errors", args.force)
            aside = files.enter_context(written_aside(Path(args.errors).resolve()))
            errors = files.enter_context(aside.open("w", encoding="utf-8"))
        device, also = choose_device(args.device), _faithfulness if args.faithfulness else None
        for metrics in evaluate_run(
            args.run, args.data, device, args.accept_changed, splits, errors, also
        ):
            print(json.dumps(metrics), flush=True)


def _faithfulness(model: Model, texts: Sequence[str]) -> dict[str, Any]:
    from sopa_plugin.interpret.explainer import Explainer
    from sopa_plugin.interpret.faithfulness import measure
    from sopa_plugin.interpret.subject import ModelSubject

    found = measure(Explainer(ModelSubject.of(model)), "", texts)
    logger.info("%s", found)
    return {"faithfulness": found.to_dict()}


if __name__ == "__main__":
    run_command(main)
