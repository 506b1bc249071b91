"""Arguments that several commands share, and the message on a missing extra."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from snnlib_command.extras import INSTALL, PACKAGES

RunArgument = Annotated[Path, typer.Argument(help="Folder of a run, as `snnlib train` printed it.")]
CheckpointOption = Annotated[
    Literal["last", "best"],
    typer.Option(help="Take the net after the last epoch, or after the best one on the validation set."),
]
RootOption = Annotated[Path | None, typer.Option(help="Read the data from another folder than the run's.")]


def need_extras() -> None:
    """Raise ImportError that says what to install, before a command that trains or tests begins."""
    for package in PACKAGES:
        try:
            __import__(package)
        except ImportError as error:
            raise ImportError(
                f"training needs the package {package}, which is not installed: {INSTALL}"
            ) from error
