"""Events of a neuromorphic camera as a NumPy structured array.

An event `(t, x, y, p)` says: at time `t` (microseconds) the pixel in column `x`, row `y` saw its brightness
rise (`p = 1`, ON) or fall (`p = 0`, OFF) by one contrast threshold. A recording is an array of events ordered
by `t`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from snnlib.checks import check_choice

__all__ = ["EVENT_DTYPE", "Events", "as_events"]

Events = npt.NDArray[Any]
"""A one-dimensional array of dtype `EVENT_DTYPE`, ordered by `t`."""

# int64 times: absolute unix microseconds (1.7e15) must fit. int16 coordinates reach every sensor sold so far.
EVENT_DTYPE: np.dtype[Any] = np.dtype([("t", np.int64), ("x", np.int16), ("y", np.int16), ("p", np.int8)])


TimeUnit = Literal["us", "ms", "s", "ns"]
PolarityCode = Literal["01", "signed"]

US_PER_UNIT = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_LARGEST_US = 2**63 - 1


def as_events(
    t: npt.ArrayLike,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    p: npt.ArrayLike,
    *,
    unit: TimeUnit = "us",
    origin: Literal["first"] | float | None = None,
    polarity: PolarityCode = "01",
) -> Events:
    """Makes an event array of dtype `EVENT_DTYPE` from four columns of equal length `[E]`.

    Args:
        t: times in `unit`, from any origin: integers, or floats if `unit` is given and not microseconds. Unordered
            times are sorted; the sort is stable, so events with equal times keep their order.
        x: columns, integers >= 0.
        y: rows, integers >= 0.
        p: polarity, see `polarity`.
        unit: of `t` and `origin`: `"us"` (default), `"ms"`, `"s"` or `"ns"`. Times become whole microseconds: floats
            are rounded to the nearest, integer nanoseconds are rounded down.
        origin: the time that becomes 0. Default None leaves the times unchanged; `"first"` takes the earliest event,
            as absolute time stamps (unix time, a camera's clock) need before `to_frames`; a number in `unit` is
            subtracted. The subtraction comes before any rounding, so absolute times lose no microsecond.
        polarity: `"01"` (default), 0 is OFF and 1 is ON, booleans count as 0 and 1; or `"signed"`, -1 is OFF and +1 is
            ON. The coding is not guessed from the values, which would be ambiguous in a recording of ON events only.

    Returns:
        A new array `[E]` of dtype `EVENT_DTYPE` with `t` never decreasing.

    Raises:
        TypeError: a column that does not hold integers; float times without a unit.
        ValueError: a column is not one-dimensional, lengths differ, or a value is out of range or not finite.

    Example:
        >>> events = as_events(t=[20, 10], x=[3, 4], y=[5, 6], p=[0, 1])
        >>> events["t"].tolist(), events["x"].tolist(), events["p"].tolist()
        ([10, 20], [4, 3], [1, 0])
        >>> seconds = as_events([1.7e9, 1.7e9 + 0.25], [0, 0], [0, 0], [-1, 1], unit="s", origin="first",
        ...                     polarity="signed")
        >>> seconds["t"].tolist(), seconds["p"].tolist()
        ([0, 250000], [0, 1])
    """
    return sort_by_time(unsorted_events((t, x, y, p), unit, origin, polarity))


def unsorted_events(
    columns: Sequence[npt.ArrayLike], unit: str = "us", origin: Any = None, polarity: str = "01"
) -> Events:
    """Makes events in the order of the columns t, x, y, p; options and errors as of `as_events`."""
    check_choice("unit", unit, *US_PER_UNIT)
    check_choice("polarity", polarity, "01", "signed")
    given = {name: np.asarray(value) for name, value in zip("txyp", columns, strict=True)}
    for name, column in given.items():
        _check_column(name, column, given["t"].size, unit)
    signed = polarity == "signed"
    _check_range("x", given["x"], 0, 2**15 - 1)
    _check_range("y", given["y"], 0, 2**15 - 1)
    _check_range(
        "p", given["p"], -1 if signed else 0, 1, "" if signed else '; polarity="signed" takes -1 and +1'
    )
    if signed and bool(np.any(given["p"] == 0)):
        index = int(np.flatnonzero(given["p"] == 0)[0])
        raise ValueError(f'p: expected -1 or +1 with polarity="signed", got 0 at event {index}')
    events = np.empty(given["t"].size, EVENT_DTYPE)
    events["t"] = _microseconds(given["t"], unit, origin)
    events["x"], events["y"] = given["x"], given["y"]
    events["p"] = given["p"] > 0
    return events


def channel_events(
    times: npt.NDArray[Any], channels: npt.NDArray[Any], count: int, origin: Any = None
) -> Events:
    """Events of a sensor with `count` channels and no picture, unsorted: x = channel, y = 0, p = 1.

    Args:
        times: seconds `[E]`.
        channels: numbers `[E]`.
        count: number of channels.
        origin: as in `as_events`.

    Raises:
        ValueError: a channel outside `0..count - 1`, or as `as_events`.
    """
    if channels.size and not 0 <= int(channels.min()) <= int(channels.max()) < count:
        raise ValueError(f"expected channels in 0..{count - 1}, found {channels.min()}..{channels.max()}")
    zeros = np.zeros(len(times), np.int64)
    return unsorted_events((times, channels.astype(np.int64), zeros, zeros + 1), "s", origin)


def _check_column(name: str, column: npt.NDArray[Any], length: int, unit: str) -> None:
    if column.ndim != 1:
        raise ValueError(f"{name}: expected one dimension [E], got shape {column.shape}")
    float_time = name == "t" and unit != "us"
    if column.size and column.dtype.kind not in ("iubf" if float_time else "iub"):
        hint = (
            "; float times need their unit, for example unit='s'"
            if name == "t" and column.dtype.kind == "f"
            else ""
        )
        kinds = "integers or floats" if float_time else "integers"
        raise TypeError(f"{name}: expected {kinds}, got dtype {column.dtype}{hint}")
    if column.size != length:
        raise ValueError(f"{name}: expected as many values as t, {length}, got {column.size}")


def _microseconds(t: npt.NDArray[Any], unit: str, origin: Any) -> npt.NDArray[np.int64]:
    """Whole microseconds from `origin`, or an error where one does not fit into int64."""
    start = _origin(t, origin)
    if t.size == 0:
        return np.zeros(0, np.int64)
    if t.dtype.kind == "f" or isinstance(start, float):
        wide = t.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(wide))
        if bad.size:
            raise ValueError(f"t: expected finite times, got {wide[bad[0]]} at event {bad[0]}")
        scaled = np.rint((wide - start) * US_PER_UNIT[unit])
        # 2**63 - 1 is no double: 2**63 itself must be refused.
        bad = np.flatnonzero(np.abs(scaled) >= 2.0**63)
        if bad.size:
            raise ValueError(_time_range(wide[bad[0]], int(bad[0]), unit))
        return np.asarray(scaled.astype(np.int64))
    # Python integers do not overflow: the extremes say whether int64 can.
    low, high = int(t.min()) - start, int(t.max()) - start
    factor = {"us": 1, "ms": 1_000, "s": 1_000_000, "ns": 1}[unit]
    for value, index in ((low, t.argmin()), (high, t.argmax())):
        if not -_LARGEST_US <= value * factor <= _LARGEST_US:
            raise ValueError(_time_range(t[index], int(index), unit))
    # Subtraction modulo 2**64 is exact where the result fits, whatever the parts.
    shifted = t.astype(np.int64) - np.int64((start + 2**63) % 2**64 - 2**63)
    return shifted // 1_000 if unit == "ns" else shifted * factor


def _origin(t: npt.NDArray[Any], origin: Any) -> Any:
    if origin is None:
        return 0
    if isinstance(origin, str):
        check_choice("origin", origin, "first")
        start = t.min().item() if t.size else 0
        return start if np.isfinite(start) else 0
    number = isinstance(origin, (int, float, np.integer, np.floating)) and not isinstance(origin, bool)
    if not number or not np.isfinite(origin):
        raise TypeError(f"origin: expected None, 'first' or a finite time in the unit of t, got {origin!r}")
    return origin.item() if isinstance(origin, np.generic) else origin


def _time_range(value: object, index: int, unit: str) -> str:
    return f"t: expected times within 2**63 microseconds of the origin, got {value} {unit} at event {index}"


def sort_by_time(events: Events) -> Events:
    """Return `events` itself where `t` never decreases, else a copy in stable time order."""
    t = events["t"]
    if bool(np.all(t[1:] >= t[:-1])):
        return events
    return np.asarray(events[np.argsort(t, kind="stable")])


def check_events(name: str, events: object) -> Events:
    """Raise unless `events` is a one-dimensional structured array with the fields of `EVENT_DTYPE`, all of integers."""
    if not isinstance(events, np.ndarray):
        raise TypeError(
            f"{name}: expected a NumPy structured array (see as_events), got {type(events).__name__}"
        )
    fields = events.dtype.names or ()
    missing = [field for field in ("t", "x", "y", "p") if field not in fields]
    if missing:
        raise TypeError(
            f"{name}: expected the fields t, x, y, p, got dtype {events.dtype} without {', '.join(missing)}"
        )
    # Cast to integers, times in seconds would all be 0.
    for field in ("t", "x", "y", "p"):
        if events.dtype[field].kind not in "iub":
            raise TypeError(
                f"{name}: expected integers in the field {field}, got dtype {events.dtype[field]}; as_events makes "
                "events of such columns, with the unit of their times"
            )
    if events.ndim != 1:
        raise ValueError(f"{name}: expected one dimension [E], got shape {events.shape}")
    return events


def check_ordered(events: object) -> Events:
    """Returns the events; raises as `check_events`, and ValueError where time falls from an event to the next."""
    checked = check_events("events", events)
    falls = np.flatnonzero(checked["t"][1:] < checked["t"][:-1])
    if falls.size:
        before, after = checked["t"][falls[0] : falls[0] + 2]
        raise ValueError(
            f"events: expected times that never decrease, got {before} then {after} at event {falls[0] + 1}"
        )
    return checked


def _check_range(name: str, column: npt.NDArray[Any], low: int, high: int, hint: str = "") -> None:
    bad = np.flatnonzero((column < low) | (column > high))
    if bad.size:
        index = int(bad[0])
        raise ValueError(f"{name}: expected {low}..{high}, got {int(column[index])} at event {index}{hint}")
