"""Options of readers on the command line: `--reader-options unit=s`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from snnlib.data import EventFileError, EventFolder

HELP = (
    "Pass this option to the reader, for example columns=xypt, unit=ms, polarity=signed or camera=dvs128; repeat it "
    "for several. In a folder it is for the files whose format has it; .csv:unit=us is for files of that suffix alone."
)


def read_options(given: Sequence[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` texts as options of `snnlib.data.read`.

    Raises:
        EventFileError: a text that is no such pair, or a sensor size that is none.

    >>> read_options(["unit=ms", "sensor_size=34x34", ".csv:unit=us"])
    {'unit': 'ms', 'sensor_size': (34, 34), '.csv': {'unit': 'us'}}
    """
    options: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise EventFileError(f"--reader-options: expected NAME=VALUE, got {text!r}")
        suffix, _, inner = name.rpartition(":")
        if suffix and not suffix.startswith("."):
            raise EventFileError(f"--reader-options: expected .SUFFIX:NAME=VALUE, got {text!r}")
        chosen = options.setdefault(suffix, {}) if suffix else options
        chosen[inner] = {"true": True, "false": False}.get(value.lower(), value)
        if inner == "sensor_size":
            chosen[inner] = size_option(value, "--reader-options sensor_size")
    return options


def size_option(text: str, option: str) -> tuple[int, int]:
    """`HEIGHTxWIDTH` as a pair of numbers."""
    height, _, width = text.partition("x")
    if not (height.isdigit() and width.isdigit()):
        raise EventFileError(f"{option}: expected HEIGHTxWIDTH, got {text!r}")
    return int(height), int(width)


def folder_options(given: Sequence[str] | None) -> dict[str, Any]:
    """Returns the options as arguments of `snnlib.data.EventFolder`."""
    options = read_options(given)
    size = options.pop("sensor_size", None)
    return {"sensor_size": size, "read_options": options}


def open_folder(root: Path, options: Mapping[str, Any]) -> EventFolder:
    """All samples of a folder.

    Raises:
        EventFileError: an option that none of the files has; and as `snnlib.data.EventFolder`.
    """
    try:
        return EventFolder(root, None, read_options=dict(options))
    except TypeError as error:
        raise EventFileError(f"--reader-options: {error}") from error
