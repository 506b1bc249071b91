"""Event streams: what a neuromorphic camera sends, as one NumPy structured array.

An event `(t, x, y, p)` says: at time `t` (microseconds) the pixel in column `x`, row `y` saw its brightness
rise (`p = 1`, ON) or fall (`p = 0`, OFF) by one contrast threshold. A recording is an array of events ordered
by `t`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Events = npt.NDArray[Any]
"""A one-dimensional array of dtype `EVENT_DTYPE`, ordered by `t`."""

# int64 times: absolute unix microseconds (1.7e15) must fit. int16 coordinates reach every sensor sold so far.
EVENT_DTYPE: np.dtype[Any] = np.dtype([("t", np.int64), ("x", np.int16), ("y", np.int16), ("p", np.int8)])


def as_events(t: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike, p: npt.ArrayLike) -> Events:
    """Make an event array of dtype `EVENT_DTYPE` from four columns of equal length `[E]`.

    Args:
        t: times in microseconds, integers, any origin. Times that are not in order are sorted; the sort is
            stable, so events with equal times keep their order.
        x: columns, integers >= 0.
        y: rows, integers >= 0.
        p: polarity, 0 (OFF) or 1 (ON); booleans count as 0 and 1.

    Returns:
        A new array `[E]` of dtype `EVENT_DTYPE` with `t` never decreasing.

    Raises:
        TypeError: a column does not hold integers (seconds as floats must be converted by the caller, who
            knows the unit).
        ValueError: a column is not one-dimensional, lengths differ, or a value is out of range.

    Example:
        >>> events = as_events(t=[20, 10], x=[3, 4], y=[5, 6], p=[0, 1])
        >>> events["t"].tolist(), events["x"].tolist(), events["p"].tolist()
        ([10, 20], [4, 3], [1, 0])
    """
    columns = {name: np.asarray(value) for name, value in (("t", t), ("x", x), ("y", y), ("p", p))}
    for name, column in columns.items():
        if column.ndim != 1:
            raise ValueError(f"{name} must be one-dimensional [E], got shape {column.shape}")
        if column.size and column.dtype.kind not in "iub":
            raise TypeError(f"{name} must hold integers, got dtype {column.dtype}")
        if column.size != columns["t"].size:
            raise ValueError(f"{name} must be as long as t ({columns['t'].size} events), got {column.size}")
    _check_range("t", columns["t"], -(2**63), 2**63 - 1)
    _check_range("x", columns["x"], 0, 2**15 - 1)
    _check_range("y", columns["y"], 0, 2**15 - 1)
    _check_range("p", columns["p"], 0, 1)
    events = np.empty(columns["t"].size, EVENT_DTYPE)
    for name, column in columns.items():
        events[name] = column
    return sort_by_time(events)


def sort_by_time(events: Events) -> Events:
    """Return `events` itself where `t` never decreases, else a copy in stable time order."""
    t = events["t"]
    if bool(np.all(t[1:] >= t[:-1])):
        return events
    return np.asarray(events[np.argsort(t, kind="stable")])


def check_events(name: str, events: object) -> Events:
    """Raise unless `events` is a one-dimensional structured array with the fields of `EVENT_DTYPE`."""
    if not isinstance(events, np.ndarray):
        raise TypeError(
            f"{name} must be a NumPy structured array (see as_events), got {type(events).__name__}"
        )
    fields = events.dtype.names or ()
    missing = [field for field in ("t", "x", "y", "p") if field not in fields]
    if missing:
        raise TypeError(
            f"{name} must have the fields t, x, y, p; {missing} missing from dtype {events.dtype}"
        )
    if events.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional [E], got shape {events.shape}")
    return events


def _check_range(name: str, column: npt.NDArray[Any], low: int, high: int) -> None:
    bad = np.flatnonzero((column < low) | (column > high))
    if bad.size:
        index = int(bad[0])
        raise ValueError(f"{name} must be in {low}..{high}, got {int(column[index])} at event {index}")
