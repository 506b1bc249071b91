"""Writes event files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from snnlib.data.checks import check_sensor_size
from snnlib.data.events import Events, check_events
from snnlib.data.formats.event_sink import Header
from snnlib.data.formats.registry import check_options, format_to_write
from snnlib.files.atomic import write_bytes_atomically

__all__ = ["write"]


def write(
    path: str | os.PathLike[str],
    events: Events,
    *,
    format: str | None = None,
    sensor_size: tuple[int, int] | None = None,
    **options: Any,
) -> None:
    """Writes events to a file, atomically: a crash leaves the old file or the new one.

    `read(path, origin=0)` returns equal events, for every format.

    Args:
        path: the file; its folder must exist. An existing file is replaced.
        events: events `[E]`, ordered by time.
        format: `"nmnist"`, `"aedat2"`, `"aedat3"`, `"evt2"`, `"evt21"`, `"evt3"`, `"dat"` or `"npy"`; default: by the
            suffix, if only one format has it.
        sensor_size: `(height, width)`, stored in the header if the format can; events outside raise an error.
        options: of the format: `camera=` (AEDAT 2.0).

    Raises:
        TypeError: `events` is not an event array, or an option of another format.
        ValueError: events that the format cannot hold; no or several formats for the suffix.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile, pathlib
        >>> from snnlib.data import as_events, read
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "a.raw")
        ...     write(file, as_events(t=[7], x=[639], y=[479], p=[1]), format="evt3", sensor_size=(480, 640))
        ...     events, header = read(file, origin=0)
        >>> events.tolist(), header.sensor_size
        ([(7, 639, 479, 1)], (480, 640))
    """
    check_events("events", events)
    chosen = format_to_write(Path(path).suffix, format)
    check_options(options, chosen.write_options, chosen.name)
    size = None if sensor_size is None else check_sensor_size("sensor_size", sensor_size)
    assert chosen.encode is not None
    write_bytes_atomically(path, chosen.encode(events, Header(chosen.name, sensor_size=size), options))
