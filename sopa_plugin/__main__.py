"""`sopa-plugin COMMAND` and `python -m sopa_plugin COMMAND`: every command by its name."""

from __future__ import annotations

import importlib
import sys

from sopa_plugin import __version__
from sopa_plugin.cli import run_command
from sopa_plugin.errors import UserError

COMMANDS = {
    "init": "write a config for data of one's own, or from an example",
    "train": "train the model that a config describes",
    "evaluate": "figures of a trained model",
    "predict": "classify text, line by line",
    "explain": "what a model's patterns match, why a document got its label",
    "rules": "rules as patterns: what becomes of each, and where it fires",
    "export": "write a trained model as ONNX",
    "search": "search for the best hyperparameters",
    "experiments": "compare models on data sets, as tables and curves",
    "bench": "measure speed and memory",
}
"""What can be called, each a module (or a package's `__main__`) with a `main`."""


def main() -> None:
    """Calls the command that the first argument names; without any, lists them."""
    command, *rest = sys.argv[1:] or ["--help"]
    if command in ("-h", "--help"):
        print("usage: sopa-plugin COMMAND ...\n")
        print(*(f"  {name:<12} {what}" for name, what in COMMANDS.items()), sep="\n")
        print("\nsopa-plugin COMMAND --help says more.")
    elif command == "--version":
        print(f"sopa_plugin {__version__}")
    elif command in COMMANDS:
        module = importlib.import_module(f"sopa_plugin.{command}")
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"sopa_plugin.{command}.__main__")
        module.main(rest)
    else:
        raise UserError(f"no command '{command}': expected one of {', '.join(COMMANDS)}")


def script() -> None:
    """The console script `sopa-plugin`."""
    run_command(main)


if __name__ == "__main__":
    script()
