"""What the readers of event files share: the header they return, the file they read, the room they fill."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from snnlib.data.events import EVENT_DTYPE, Events

Array = npt.NDArray[Any]
FileSource = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO

# Events (or words) that are decoded at once: their columns stay in a core's second-level cache.
CHUNK = 1 << 15
# The longest line of a text header; jAER's preferences have lines of some hundred bytes.
LONGEST_LINE = 1 << 16
_SPARE_PLACES = 64


class EventFileError(ValueError):
    """An event file, archive or folder does not hold what its format promises; the message says where."""


@dataclass
class Header:
    """What a file says about its recording.

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


class EventFile:
    """An open event file: reads with a position, and errors that name file and offset.

    Args:
        source: a path, the bytes themselves, or an open binary file that can seek.
        name: what to call the data in messages; default: the path.
        strict: whether a truncated file raises (True) or warns and keeps its whole records (False).
    """

    def __init__(self, source: FileSource, name: str | None = None, strict: bool = False) -> None:
        self.strict = strict
        self.path: Path | None = None
        self._own = True
        self._file: BinaryIO
        if isinstance(source, (bytes, bytearray, memoryview)):
            self.name, self._file = name or f"<{len(source)} bytes>", io.BytesIO(source)
        elif isinstance(source, (str, os.PathLike)):
            self.path = Path(source)
            # Opening a pipe waits for its writer, and a device may never end.
            if self.path.exists() and not self.path.is_file():
                raise EventFileError(f"{source}: expected a regular file, got a folder, pipe or device")
            self.name, self._file = name or os.fspath(source), self.path.open("rb")
        elif hasattr(source, "read") and hasattr(source, "seek"):
            self.name, self._file = name or str(getattr(source, "name", "<open file>")), source
            self._own = False
        else:
            raise TypeError(
                f"source: expected a path, bytes or an open binary file, got {type(source).__name__}"
            )
        self.size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._file.close()

    @property
    def suffix(self) -> str:
        """The name's suffix in lower case, like `".raw"`."""
        return Path(self.name).suffix.lower()

    @property
    def left(self) -> int:
        """Bytes after the position."""
        return self.size - self._file.tell()

    def tell(self) -> int:
        """The position in bytes."""
        return self._file.tell()

    def seek(self, offset: int) -> None:
        """Go to a position."""
        self._file.seek(offset)

    def read(self, count: int) -> bytes:
        """At most `count` bytes; never more memory than the file has bytes."""
        return self._file.read(min(count, max(self.left, 0)))

    def peek(self, count: int) -> bytes:
        """The next bytes, without moving on."""
        place = self.tell()
        data = self.read(count)
        self.seek(place)
        return data

    def opened(self) -> BinaryIO:
        """The binary file itself, for libraries that read it."""
        return self._file

    def text_header(self, mark: bytes, ends: Callable[[str], bool]) -> list[str]:
        """The lines at the beginning that start with `mark` and are text, without line ends.

        Stops after a line for which `ends` holds. A line with control characters is the beginning of the data, whose
        first byte happens to equal `mark`.
        """
        lines: list[str] = []
        while self.peek(1) == mark:
            place = self.tell()
            line = self._file.readline(LONGEST_LINE)
            body = line.rstrip(b"\r\n")
            if not line.endswith(b"\n") or any(byte < 0x20 and byte != 0x09 for byte in body):
                self.seek(place)
                break
            lines.append(body.decode("utf-8", errors="replace"))
            if ends(lines[-1]):
                break
        return lines

    def words(
        self, dtype: str, columns: int = 1, chunk: int = CHUNK, *, reuse: bool = False
    ) -> Iterator[Array]:
        """The rest of the file as arrays `[n]` or `[n, columns]`; a part of a record at the end is a truncation.

        With `reuse` all arrays share their memory, which the next one overwrites.
        """
        size = np.dtype(dtype).itemsize * columns
        buffer = bytearray(min(size * chunk, max(self.left, 0))) if reuse else None
        while True:
            data = self.read(size * chunk) if buffer is None else self._read_into(buffer)
            whole = len(data) // size
            if len(data) % size:
                self.truncated(
                    f"a record of {size} bytes, found {len(data) % size} bytes",
                    self.tell() - len(data) % size,
                )
            if whole:
                words = np.frombuffer(data, dtype, whole * columns)
                yield words if columns == 1 else words.reshape(whole, columns)
            if len(data) < size * chunk:
                return

    def _read_into(self, buffer: bytearray) -> memoryview:
        view = memoryview(buffer)
        count = 0
        # A user's file object may give less than there is.
        while count < len(buffer) and (more := self._file.readinto(view[count:])):  # type: ignore[attr-defined]
            count += more
        return view[:count]

    def error(self, text: str, offset: int | None = None) -> EventFileError:
        """An error at a byte offset, default the position."""
        return EventFileError(f"{self.name}: byte offset {self.tell() if offset is None else offset}: {text}")

    def truncated(self, text: str, offset: int | None = None) -> None:
        """Raise (strict) or warn that the file ends early."""
        error = self.error(f"truncated: expected {text}", offset)
        if self.strict:
            raise EventFileError(f"{error} (strict=False keeps the whole records)")
        warnings.warn(f"{error}; what was left is not read", stacklevel=2)


class Room:
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

    def put(self, t: Array, x: Array, y: Array, p: Array) -> Events:
        """Keep the events of four columns `[n]` of integers; the view of them that is returned is the caller's.

        Raises:
            EventFileError: a coordinate outside the sensor (or above 32767), or a polarity other than 0 and 1.
        """
        if len(t) == 0:
            return np.empty(0, EVENT_DTYPE)
        height, width = self.header.sensor_size or (2**15, 2**15)
        if not (_all_below(x, width) and _all_below(y, height) and _all_below(p, 2)):
            t, x, y, p = self._only_inside(t, x, y, p, height, width)
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
        """Tell a compiled decoder where the room stands."""
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
        self, t: Array, x: Array, y: Array, p: Array, height: int, width: int
    ) -> tuple[Array, Array, Array, Array]:
        # Flipped coordinates may have wrapped below 0 as unsigned numbers.
        x, y, p = (column.astype(np.int64) for column in (x, y, p))
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height) & (p >= 0) & (p <= 1)
        if not self.drop_outside:
            bad = int(np.flatnonzero(~inside)[0])
            self.count += bad
            raise self.outside_error(int(x[bad]), int(y[bad]), int(p[bad]))
        self.header.skip("events outside the sensor", int((~inside).sum()))
        return t[inside], x[inside], y[inside], p[inside]

    def outside_error(self, x: int, y: int, p: int) -> EventFileError:
        """The error of an event outside the sensor, the next after those that were put."""
        height, width = self.header.sensor_size or (2**15, 2**15)
        return self.file.error(
            f"expected events with x in 0..{width - 1}, y in 0..{height - 1} and p in 0..1, found "
            f"{', '.join(f'{name}={_signed(value)}' for name, value in (('x', x), ('y', y), ('p', p)))} at event "
            f"{self.count}; outside='drop' leaves such events out"
        )


def _signed(coordinate: int) -> str:
    """A coordinate for a message: flipped ones below 0 have become large unsigned numbers."""
    return str(coordinate - 2**32 if 2**31 <= coordinate < 2**32 else coordinate)


def _all_below(column: Array, limit: int) -> bool:
    return int(column.max()) < limit and (column.dtype.kind == "u" or int(column.min()) >= 0)


@dataclass(frozen=True)
class Format:
    """One event format.

    Args:
        name: short name, as in `read(path, format=name)`.
        title: the name that people use.
        suffixes: of its files, in lower case.
        detect: whether the first bytes of a file (up to 4096) are of this format; None where it has no magic.
        decode: `(file, room, options) -> (header, chunks)`; chunks are views of the room, times on the file's clock.
        encode: `(events, header, options) -> bytes`; None where there is no writer.
        options: names and meanings of the options that `decode` takes.
        write_options: likewise for `encode`.
        clock: `"recording"` where times count from the recording's start, `"camera"` where they count from another
            moment, so that `read` moves them to 0.
        smallest: fewest bytes of an event in a usual file, for the first guess of memory.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    detect: Callable[[bytes], bool] | None
    decode: Callable[[EventFile, Room, dict[str, Any]], tuple[Header, Iterator[Events]]]
    encode: Callable[[Events, Header, dict[str, Any]], bytes] | None = None
    options: dict[str, str] = field(default_factory=dict)
    write_options: dict[str, str] = field(default_factory=dict)
    clock: str = "camera"
    smallest: int = 4


class Unwrapper:
    """Makes the times of a clock of `period` steps count on: a fall by more than half of it is a wrap."""

    def __init__(self, period: int) -> None:
        self.period = period
        self._last: int | None = None
        self._base = 0

    def __call__(self, times: Array) -> Array:
        """Times `[n]` of unsigned integers that count on from those of earlier calls."""
        if times.size == 0:
            return times
        half = self.period // 2
        first = int(times[0]) if self._last is None else self._last
        self._last = int(times[-1])
        # The extremes say whether there can be a wrap; almost no chunk has one.
        if max(int(times.max()), first) - min(int(times.min()), first) <= half:
            return times.astype(np.int64) + self._base if self._base else times
        wide = times.astype(np.int64)
        falls = np.diff(wide, prepend=first)
        turns = self._base // self.period + np.cumsum((falls < -half).astype(np.int64) - (falls > half))
        # A rise can step back over a wrap only where one came before; else it is a long pause.
        turns -= np.minimum(np.minimum.accumulate(turns), 0)
        wide += self.period * turns
        self._base = self.period * int(turns[-1])
        return wide
