"""Crop recordings to a box and pool pixels to larger ones, in events."""

from __future__ import annotations

from snnlib.data.checks import check_int
from snnlib.data.events import Events, check_events


class CropPool:
    """Move the box to the origin, leave out what is outside, and join `pool x pool` pixels to one.

    `x' = (x - left) // pool`, `y' = (y - top) // pool`; times and polarities stay. Picklable, as a `transform` before
    `ToFrames(sensor_size=transform.output_size)`.

    Args:
        box: `(top, left, height, width)` in pixels.
        pool: side of the square of pixels that becomes one.

    Attributes:
        output_size: `(height, width)` of what comes out, rounded up.

    Raises:
        TypeError: an argument of the wrong type; events that are no event array.
        ValueError: an argument out of range.

    Example:
        >>> from snnlib.data import as_events
        >>> transform = CropPool(box=(100, 200, 64, 64), pool=2)
        >>> events = as_events(t=[0, 1, 2], x=[200, 263, 264], y=[100, 163, 100], p=[0, 1, 1])
        >>> transform(events).tolist(), transform.output_size
        ([(0, 0, 0, 0), (1, 31, 31, 1)], (32, 32))
    """

    def __init__(self, box: tuple[int, int, int, int], pool: int = 1) -> None:
        if not isinstance(box, (tuple, list)) or len(box) != 4:
            raise TypeError(f"box: expected (top, left, height, width), got {box!r}")
        names = ("top", "left", "height", "width")
        self.box = tuple(
            check_int(f"box[{i}] ({names[i]})", box[i], 0 if i < 2 else 1, 2**15) for i in range(4)
        )
        self.pool = check_int("pool", pool, 1, 2**15)
        self.output_size = -(-self.box[2] // self.pool), -(-self.box[3] // self.pool)

    def __call__(self, events: Events) -> Events:
        events = check_events("events", events)
        top, left, height, width = self.box
        x, y = events["x"], events["y"]
        inside = (x >= left) & (x < left + width) & (y >= top) & (y < top + height)
        kept: Events = events[inside]
        kept["x"] = (kept["x"] - left) // self.pool
        kept["y"] = (kept["y"] - top) // self.pool
        return kept

    def __repr__(self) -> str:
        return f"CropPool(box={self.box}, pool={self.pool})"
