"""`python -m sopa_plugin.export RUN model.onnx`: a trained classifier for other runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sopa_plugin.cli import add_model_options, check_output, make_parser, run_command
from sopa_plugin.errors import UserError, require
from sopa_plugin.files import write_file
from sopa_plugin.registry import import_plugins


def main(argv: Sequence[str] | None = None) -> None:
    """Parses arguments and exports."""
    parser = make_parser(
        "export",
        "Write a trained classifier as ONNX: input_ids and attention_mask [batch, tokens], as the "
        "tokenizer in the run's folder gives them, to logits [batch, labels].",
    )
    parser.add_argument("run", help="the folder of a finished run that was compiled")
    parser.add_argument("output", metavar="FILE", help="to be written; its name ends in .onnx")
    add_model_options(parser, device=None)
    args = parser.parse_args(argv)
    import_plugins(args.include_package)
    file = Path(args.output)
    if file.suffix != ".onnx":
        raise UserError(
            f"{file}: expected a name that ends in .onnx; `rules export` writes a model as rules"
        )
    check_output(file, "FILE", args.force)
    require("onnx", "exporting to ONNX", extra="onnx")
    from sopa_plugin.compiled import load_compiled
    from sopa_plugin.integrations.onnx import to_onnx

    compiled = load_compiled(args.run, args.accept_changed)
    if compiled is None:
        raise UserError(
            f"{args.run}: has no compiled.safetensors: only soft patterns over static vectors "
            "are compiled, and exported from that"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, to_onnx(compiled).SerializeToString())


if __name__ == "__main__":
    run_command(main)
