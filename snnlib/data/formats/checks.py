"""Checks before events are written: order, ranges and the sensor."""

from __future__ import annotations

import numpy as np

from snnlib.data.events import Events, check_events
from snnlib.data.formats.base import Header


def check_writable(events: Events, header: Header, time_limit: int, largest: tuple[int, int]) -> None:
    """Raise ValueError unless a format can hold the events.

    Args:
        events: events `[E]`, ordered by time.
        header: its `sensor_size` bounds the coordinates where it is known.
        time_limit: the first time in microseconds that the format cannot hold.
        largest: `(height, width)` that the format can hold.
    """
    check_events("events", events)
    height, width = header.sensor_size or largest
    if height > largest[0] or width > largest[1]:
        raise ValueError(
            f"sensor_size: expected at most {largest} for format {header.format}, got {header.sensor_size}"
        )
    for field, limit in (("x", width), ("y", height), ("p", 2), ("t", time_limit)):
        column = events[field]
        bad = np.flatnonzero((column < 0) | (column >= limit))
        if bad.size:
            hint = "; subtract the first time from absolute times" if field == "t" else ""
            raise ValueError(
                f"events: expected field {field} in 0..{limit - 1} for format {header.format}, got "
                f"{column[bad[0]]} at event {bad[0]}{hint}"
            )
    falls = np.flatnonzero(np.diff(events["t"]) < 0)
    if falls.size:
        number = int(falls[0]) + 1
        raise ValueError(
            f"events: expected times that never decrease, got {events['t'][number - 1]} then {events['t'][number]} "
            f"at event {number}"
        )
