"""Checks of headers that are read, and of events before they are written: order, ranges and the sensor."""

from __future__ import annotations

import numpy as np

from snnlib.data.events import Events, check_events, check_ordered
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import Header

LARGEST_SIDE = 2**15
# More than any field of a header needs; thousands of digits Python does not read at all.
_MOST_DIGITS = 9


def small_number(text: str) -> int | None:
    """Returns the number that a text of at most nine digits is; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def size_in_header(file: EventFile, width: str, height: str) -> tuple[int, int] | None:
    """Returns the sensor's `(height, width)` from the texts of a header; None where they are no numbers.

    Raises:
        EventFileError: a number outside 1..32768.
    """
    texts = height, width
    if not all(text.isascii() and text.isdigit() for text in texts):
        return None
    sides = [small_number(text) or 0 for text in texts]
    if not all(0 < side <= LARGEST_SIDE for side in sides):
        raise file.error(
            f"expected a sensor of 1..{LARGEST_SIDE} pixels each way, found {width[:20]}x{height[:20]}", 0
        )
    return sides[0], sides[1]


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
    check_ordered(events)
