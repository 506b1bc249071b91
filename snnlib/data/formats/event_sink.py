"""Where decoders of event files put what they find: a header, and events in order and in range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snnlib.checks import warn_caller
from snnlib.data.checks import check_sensor_size
from snnlib.data.events import EVENT_DTYPE, Events, sort_by_time
from snnlib.data.formats.event_file import Array, EventFile, EventFileError

__all__ = ["Header"]

_SPARE_PLACES = 64
# Largest `(height, width)` that coordinates of events can hold.
_LARGEST = (2**15, 2**15)
Offsets = Sequence[int] | Array
# A fall of time by more than this is no merged read-out but a clock that was reset, or recordings joined.
LARGE_FALL_US = 100_000


@dataclass
class Header:
    """Facts of a recording from the header of its file.

    Args:
        format: the format's name, like `"evt3"`.
        version: the version as the file writes it.
        sensor_size: `(height, width)` in pixels; None where the file does not say.
        start_us: time of the recording's t = 0 on the file's own clock (the camera's, or unix time), in microseconds.
        camera: the camera or chip as the file names it; "" where it does not.
        fields: further entries of the file's header.
        skipped: words or bytes that gave no event, counted by kind. It is filled while the events are read.
    """

    format: str
    version: str = ""
    sensor_size: tuple[int, int] | None = None
    start_us: int = 0
    camera: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, kind: str, count: int) -> None:
        """Count words that gave no event."""
        if count:
            self.skipped[kind] = self.skipped.get(kind, 0) + count


class EventSink:
    """Where decoders put events; checks order and ranges on the way, while the columns are in the cache.

    Args:
        file: the file that is read, for errors.
        grows: True keeps all events in one array (`events`); False gives fresh memory each time, for streaming.
        drop_outside: whether events outside the sensor are left out, and counted, instead of raising.
        expected: places to reserve.
        origin: time on the file's clock that is subtracted from all times; None for that of the first event.

    Attributes:
        header: of the file, set before the first `put`; its sensor size bounds the coordinates.
        origin: as given, or found.
        largest_fall: by how many microseconds time falls back at most, and `fall_at` the event where it does.
    """

    header: Header
    # Size of the sensor that the file itself names.
    named: tuple[int, int] | None = None

    def __init__(
        self,
        file: EventFile,
        grows: bool = True,
        drop_outside: bool = False,
        expected: int = 0,
        origin: int | None = 0,
    ) -> None:
        self.file, self.grows, self.drop_outside, self.origin = file, grows, drop_outside, origin
        self.largest_fall = self.fall_at = self.count = 0
        self._last: int | None = None
        # The few more are what compiled decoders ask for before they know that the file ends.
        self._all = np.empty(expected + _SPARE_PLACES if grows else 0, EVENT_DTYPE)

    def begin(self, header: Header, sensor_size: tuple[int, int] | None) -> None:
        """Take the header of the file, with another sensor size where one is given."""
        self.header, self.named = header, header.sensor_size
        if sensor_size is not None:
            header.sensor_size = check_sensor_size("sensor_size", sensor_size)

    @property
    def sensor_size(self) -> tuple[int, int]:
        """`(height, width)` within which events must lie."""
        return self.header.sensor_size or _LARGEST

    def put(self, t: Array, x: Array, y: Array, p: Array, offsets: Offsets = ()) -> Events:
        """Keep the events of four columns `[n]` of integers; the view of them that is returned is the caller's.

        `offsets` are the byte offsets at which the events begin, where the decoder knows them.

        Raises:
            EventFileError: a coordinate outside the sensor (or above 32767), or a polarity other than 0 and 1.
        """
        if len(t) == 0:
            return np.empty(0, EVENT_DTYPE)
        height, width = self.sensor_size
        if not (_all_below(x, width) and _all_below(y, height) and _all_below(p, 2)):
            t, x, y, p = self._only_inside(t, x, y, p, offsets)
            if len(t) == 0:
                return np.empty(0, EVENT_DTYPE)
        self._look_at_order(t)
        events = self.places(len(t), len(t))[: len(t)]
        self.count += len(t)
        if self.origin is None:
            self.origin = int(t[0])
        events["t"] = t.astype(np.int64) - self.origin if self.origin else t
        events["x"], events["y"], events["p"] = x, y, p
        return events

    def warn_of_fall(self) -> None:
        """Warn where time fell by more than 0.1 s among the events so far, which are about to be sorted."""
        _warn_of_fall(self.file.name, self.largest_fall, self.fall_at)

    def warn_of_skipped(self) -> None:
        """Warn where the whole file gave no event, as one of another format does."""
        if self.header.skipped and not self.count:
            found = ", ".join(f"{count} {kind}" for kind, count in self.header.skipped.items())
            warn_caller(f"{self.file.name}: no events, {found}: is the file of format {self.header.format}?")

    def events(self) -> Events:
        """All events so far."""
        return self._all[: self.count]

    def places(self, least: int, usual: int) -> Events:
        """Places for the next events: at least `least`; where each call gets fresh ones, `usual` if that is more."""
        if not self.grows:
            return np.empty(max(least, usual), EVENT_DTYPE)
        if self.count + least > len(self._all):
            # As many as the rest of the file will need if it goes on like this.
            read = max(self.file.size - self.file.left, 1)
            wanted = max(self.count + least, self.count * self.file.size // read, len(self._all) * 3 // 2)
            larger = np.empty(wanted + _SPARE_PLACES, EVENT_DTYPE)
            larger[: self.count] = self._all[: self.count]
            self._all = larger
        return self._all[self.count :]

    def save(self, state: Any) -> None:
        """Tell a compiled decoder where the sink stands."""
        state["origin_known"], state["origin"] = self.origin is not None, self.origin or 0
        state["count"], state["last"] = self.count, self._last or 0
        state["largest_fall"], state["fall_at"] = self.largest_fall, self.fall_at

    def load(self, state: Any) -> int:
        """Take over what a compiled decoder did, and say how many events it put into its places."""
        before, self.count = self.count, int(state["count"])
        if self.count:
            self.origin, self._last = int(state["origin"]), int(state["last"])
        self.largest_fall, self.fall_at = int(state["largest_fall"]), int(state["fall_at"])
        return self.count - before

    def _look_at_order(self, t: Array) -> None:
        first = int(t[0]) if self._last is None else self._last
        if int(t[0]) < first or bool((t[1:] < t[:-1]).any()):
            steps = np.diff(t.astype(np.int64), prepend=first)
            if -int(steps.min()) > self.largest_fall:
                self.largest_fall, self.fall_at = -int(steps.min()), self.count + int(steps.argmin())
        self._last = int(t[-1])

    def _only_inside(
        self, t: Array, x: Array, y: Array, p: Array, offsets: Offsets
    ) -> tuple[Array, Array, Array, Array]:
        height, width = self.sensor_size
        # Flipped coordinates may have wrapped below 0 as unsigned numbers.
        x, y, p = (column.astype(np.int64) for column in (x, y, p))
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height) & (p >= 0) & (p <= 1)
        if not self.drop_outside:
            bad = int(np.flatnonzero(~inside)[0])
            self.count += bad
            offset = int(offsets[bad]) if len(offsets) else None
            raise self.outside_error(int(x[bad]), int(y[bad]), int(p[bad]), offset)
        self.header.skip("events outside the sensor", int((~inside).sum()))
        return t[inside], x[inside], y[inside], p[inside]

    def outside_error(self, x: int, y: int, p: int, offset: int | None = None) -> EventFileError:
        """The error of an event outside the sensor, the next after those that were put."""
        height, width = self.sensor_size
        found = ", ".join(f"{name}={_signed(value)}" for name, value in (("x", x), ("y", y), ("p", p)))
        own = self.named not in (None, self.header.sensor_size)
        sensor = f" of a sensor of {self.named} pixels (height, width), as the file says" if own else ""
        return self.file.error(
            f"expected events with x in 0..{width - 1}, y in 0..{height - 1} and p in 0..1, found {found} at event "
            f"{self.count}{sensor}; outside='drop' leaves such events out",
            offset,
        )


def in_order(events: Events, name: str) -> Events:
    """Returns the events sorted by time, with the warning of `EventSink.warn_of_fall`; `name` stands in it."""
    steps = np.diff(events["t"])
    if len(steps):
        _warn_of_fall(name, -int(steps.min()), int(steps.argmin()) + 1)
    return sort_by_time(events)


def _warn_of_fall(name: str, fall: int, at: int) -> None:
    if fall > LARGE_FALL_US:
        warn_caller(
            f"{name}: time falls back by {fall} us at event {at} (a clock that was reset, or recordings joined); the "
            "events are sorted by time"
        )


def _signed(coordinate: int) -> str:
    """A coordinate for a message: flipped ones below 0 have become large unsigned numbers."""
    return str(coordinate - 2**32 if 2**31 <= coordinate < 2**32 else coordinate)


def _all_below(column: Array, limit: int) -> bool:
    return int(column.max()) < limit and (column.dtype.kind == "u" or int(column.min()) >= 0)
