"""`python -m sopa_plugin.bench`: measures soft patterns beside their alternatives."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sopa_plugin.cli import make_parser, run_command, whole_number
from sopa_plugin.errors import UserError

SECTIONS = (
    "training", "kernel", "prediction", "reading", "epoch", "memory", "growth", "scale", "gpu",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and measures."""
    count = whole_number(1)
    parser = make_parser(
        "bench",
        "Measure soft patterns beside their reference loop, a convolution, a BiLSTM and fastText "
        "(where installed), one after the other in every round. SOPA_SST names the real sentences "
        "to measure on; without it, they are generated in the shape of SST.",
    )
    parser.add_argument(
        "sections",
        nargs="*",
        default=SECTIONS,
        metavar="SECTION",
        help=f"what to measure: {', '.join(SECTIONS)}; by default everything",
    )
    parser.add_argument("--rounds", type=count, default=7, help="how often (default: 7)")
    parser.add_argument(
        "--batches",
        type=count,
        default=4,
        help="batches of 150 sentences in a measurement (default: 4)",
    )
    parser.add_argument(
        "--sentences",
        type=count,
        default=6920,
        help="sentences to train on (default: 6920, SST)",
    )
    parser.add_argument("--threads", type=count, default=1, help="how many to use (default: 1)")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: processor time, which is steadier on a busy machine (default: wall)",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        default="runs/growth.png",
        help="where section growth saves its picture (default: runs/growth.png)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, times in seconds")
    options = vars(parser.parse_args(argv))
    unknown = [name for name in options["sections"] if name not in SECTIONS]
    if unknown:
        raise UserError(f"no section '{unknown[0]}': expected some of {', '.join(SECTIONS)}")
    from sopa_plugin.benchmarks import run_benchmarks

    as_json = options.pop("json")
    report = run_benchmarks(**options)
    print(json.dumps(report.as_json(), indent=2) if as_json else report)


if __name__ == "__main__":
    run_command(main)
