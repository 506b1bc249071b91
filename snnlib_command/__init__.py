"""The `snnlib` command up to its first import of torch: help, version, and what to install.

It lies beside snnlib, whose import brings torch: help and version take a tenth of a second and need no other package.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

from snnlib_command.extras import INSTALL, PACKAGES

# Names and first sentences of the commands in `snnlib.app.cli`.
COMMANDS = {
    "train": "Train a spiking net and write a report that shows what it learned.",
    "eval": "Test a trained net: accuracy, confusion and spike rates on the test set.",
    "profile": "Count what a trained net does with its test set: operations, sparsity, memory and energy per layer.",
    "predict": "Classify files with a trained net: one line per file, heart beat or step, fields separated by tabs.",
    "doctor": "Print versions, the machine, and which backend every op takes and why.",
    "data": "Look at event files, change their format, make pictures of them.",
    "nir": "Look at NIR graphs, and at what importers of other libraries make of them.",
    "export": "Write the net of a run as a C program, a NIR graph, an ONNX graph or a file for Loihi.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a command whose packages are missing says what to install, with exit code 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("--help", "-h", "help"):
        print(_help())
    elif given[0] == "--version":
        # Imported here: it takes longer than all that help needs.
        from importlib.metadata import version  # noqa: PLC0415

        print(f"snnlib {version('snnlib')}")
    else:
        _run(given)


def _help() -> str:
    width = max(map(len, COMMANDS))
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    return "\n".join(
        [
            "Spiking neural networks for event data: train, test, predict.",
            "",
            "Usage: snnlib COMMAND [OPTIONS]",
            "",
            *(f"  {name:{width}}  {text}" for name, text in COMMANDS.items()),
            "",
            f"Commands other than doctor need {', '.join(missing)}; to install what is missing: {INSTALL}"
            if missing
            else "To begin: snnlib train",
            "Options of a command: snnlib COMMAND --help. Version: snnlib --version",
        ]
    )


def _run(arguments: list[str]) -> None:
    # Threads that wait for each other sleep soon, as torch's OpenMP reads when it is loaded. By default they spin for
    # milliseconds, which takes the processor from whatever else the machine does, and from those they wait for.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        from snnlib.app import cli  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "snnlib":
            raise
        if arguments == ["doctor"]:
            from snnlib.inspect.environment import print_report  # noqa: PLC0415

            print_report()
            return
        print(
            f"error: the command needs the package {error.name}, which is not installed: {INSTALL}",
            file=sys.stderr,
        )
        sys.exit(2)
    cli.main(arguments)
