"""The commands of `snnlib`, and how one ends where something went wrong; `snnlib_command` starts it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

import typer

from snnlib.app.data_cli import app as data_app
from snnlib.app.errors import CheckpointError, ConfigError
from snnlib.app.export_cli import app as export_app
from snnlib.app.nir_cli import app as nir_app
from snnlib.app.run_cli import evaluate, predict, profile_run
from snnlib.app.train_cli import train
from snnlib.app.training.config import DEFAULTS
from snnlib.data import EventFileError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

app.command()(train)
app.command("eval")(evaluate)
app.command("profile")(profile_run)
app.command()(predict)
app.add_typer(data_app, name="data")
app.add_typer(nir_app, name="nir")
app.add_typer(export_app, name="export")


@app.command()
def doctor() -> None:
    """Print versions, the machine, and which backend every op takes and why."""
    from snnlib.inspect.environment import print_report  # noqa: PLC0415

    print_report()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; wrong input ends with one line and exit code 2.

    A run that diverged ends with exit code 1. With the environment variable SNNLIB_DEBUG set, errors keep their
    traceback.
    """
    standard = warnings.formatwarning
    # Prints a single line, without the place in the code that raised the warning.
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        app(args=arguments, prog_name="snnlib")
    except (ConfigError, CheckpointError, EventFileError, OSError, ImportError) as error:
        if os.environ.get("SNNLIB_DEBUG"):
            raise
        text = str(error)
        options = {*DEFAULTS, "out", "resume", "recipe", "checkpoint"}
        if isinstance(error, ConfigError) and error.field in options:
            text = f"--{error.field.replace('_', '-')}: {error.text}"
        print(f"error: {text}", file=sys.stderr)
        sys.exit(2)
    finally:
        warnings.formatwarning = standard
