"""Reads event files of any known format, whole or window by window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from snnlib.checks import check_choice
from snnlib.data.checks import check_int
from snnlib.data.events import Events, sort_by_time
from snnlib.data.formats.base import Format
from snnlib.data.formats.event_file import EventFile, FileSource
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.formats.registry import (
    BY_SUFFIX,
    HEADLESS,
    check_named,
    check_options,
    find_format,
    named_format,
)

__all__ = ["EventWindows", "Recording", "iter_events", "read"]

Outside = Literal["error", "drop"]
Origin = Literal["auto", "first"] | int

# Merged read-outs step back by some microseconds; events may come this late when a file is streamed.
SLACK_US = 10_000
# A file that makes more empty windows than this in a row is damaged, or the window is in the wrong unit.
EMPTY_WINDOWS = 1_000_000


class Recording(NamedTuple):
    """Result of `read`.

    Args:
        events: events `[E]` of dtype `EVENT_DTYPE`, ordered by time.
        header: facts from the file's header.
    """

    events: Events
    header: Header


def read(
    source: FileSource,
    *,
    format: str | None = None,
    strict: bool = False,
    sensor_size: tuple[int, int] | None = None,
    outside: Outside = "error",
    origin: Origin = "auto",
    name: str | None = None,
    **options: Any,
) -> Recording:
    """Reads an event file of any known format.

    Formats: N-MNIST `.bin`; AEDAT 2.0, 3.1 and 4; Prophesee DAT, EVT 2.0, 2.1 and 3.0; NumPy, CSV, MATLAB and HDF5
    event arrays. The format is recognised by the first bytes, else by the suffix.

    Rows count from the top and columns from the left, polarity is 0 or 1, times are microseconds; each format's module
    states the file's own conventions.

    Args:
        source: a path, the bytes themselves, or an open binary file that can seek.
        format: name of the format (`"evt3"`, ...), if it cannot be recognised.
        strict: whether a truncated file raises an error; by default its complete records are read, with a warning.
        sensor_size: `(height, width)`, if missing or wrong in the file.
        outside: events outside the sensor raise (`"error"`, default) or are left out and counted in `header.skipped`
            (`"drop"`); they are never clipped. Without a sensor size there is nothing to check against.
        origin: the time that becomes 0. `"auto"`: the first event in formats whose times are a camera's clock or unix
            time (AEDAT, EVT, HDF5), and the file's own 0 in other formats; `"first"`: the first event; a number: this
            time on the file's clock, so 0 leaves the times unchanged. `header.start_us` says what was subtracted.
        name: what to call the data in messages; default: the path.
        options: of the format, for example `camera=` (AEDAT 2.0), `columns=`, `unit=`, `polarity=` (arrays, text),
            `group=` (HDF5).

    Returns:
        `(events, header)`.

    Raises:
        EventFileError: the file is of no known format, damaged, or (strict) truncated; names file and byte offset.
        OSError: the file cannot be read.
        ImportError: a package for this format is missing; the message names it.
        TypeError, ValueError: an option of another format; an argument out of range.

    Warns:
        UserWarning: the file is truncated; time falls back by more than 0.1 s (the events are sorted); all that the
            file holds was skipped.

    Example:
        >>> events, header = read(bytes([3, 4, 0x80, 0x01, 0x02]), format="nmnist")
        >>> events.tolist(), header.format
        ([(258, 3, 4, 1)], 'nmnist')
    """
    with EventFile(source, name, strict) as file:
        chosen = _check(file, format, outside, origin, options)
        sink = EventSink(
            file,
            drop_outside=outside == "drop",
            expected=file.left // chosen.smallest,
            origin=_given_origin(origin, chosen),
        )
        header, chunks = chosen.decode(file, sink, options)
        sink.begin(header, sensor_size)
        for _ in chunks:
            pass
    events = sink.events()
    sink.warn_of_fall()
    sink.warn_of_skipped()
    if len(events):
        header.start_us = sink.origin or 0
    if sink.largest_fall:
        events = sort_by_time(events)
        early = int(events["t"][0])
        if early and _given_origin(origin, chosen) is None:
            # The first event of the file was not the earliest.
            events["t"] -= early
            header.start_us += early
    return Recording(events, header)


class EventWindows:
    """Iterator over the events of a file in consecutive time windows, read on demand; see `iter_events`."""

    def __init__(self, sink: EventSink, chunks: Iterator[Events], window_us: int, origin: int | None) -> None:
        self.header = sink.header
        self._sink, self._file, self._window_us = sink, sink.file, window_us
        self._windows = self._cut(chunks, origin)

    def __iter__(self) -> Iterator[Events]:
        return self._windows

    def __next__(self) -> Events:
        return next(self._windows)

    def _cut(self, chunks: Iterator[Events], origin: int | None) -> Iterator[Events]:
        window_us, header = self._window_us, self.header
        pending: list[Events] = []
        # Number of the next window, and the latest time seen.
        following = latest = told = 0
        started = False
        with self._file:
            for events in chunks:
                if len(events) == 0:
                    continue
                times = events["t"].copy()
                if not started:
                    started = True
                    first = int(times.min())
                    header.start_us = first if origin is None else origin
                    following = min((first - header.start_us) // window_us, 0)
                times -= header.start_us
                early = int(times.min())
                if early < following * window_us:
                    raise self._file.error(
                        f"expected times that fall back by less than {SLACK_US} us, found {early} us after the window "
                        f"up to {following * window_us} us was given; snnlib.data.read sorts the whole file"
                    )
                if self._sink.largest_fall > told:
                    told = self._sink.largest_fall
                    self._sink.warn_of_fall()
                latest = max(latest, int(times.max()))
                events["t"] = times
                pending.append(events)
                ready = (latest - SLACK_US) // window_us
                if ready > following:
                    joined = sort_by_time(np.concatenate(pending))
                    yield from self._emit(joined, following, ready)
                    pending = [joined[np.searchsorted(joined["t"].copy(), ready * window_us) :]]
                    following = ready
            self._sink.warn_of_skipped()
            if pending and len(joined := sort_by_time(np.concatenate(pending))):
                yield from self._emit(joined, following, int(joined["t"][-1]) // window_us + 1)

    def _emit(self, events: Events, first: int, end: int) -> Iterator[Events]:
        window_us = self._window_us
        times = np.ascontiguousarray(events["t"])
        at, number = 0, first
        while number < end:
            upto = int(times[at]) // window_us if at < len(events) else end
            if upto - number > EMPTY_WINDOWS:
                raise self._file.error(
                    f"expected no pause longer than {EMPTY_WINDOWS} windows of {window_us} us, found one after "
                    f"{number * window_us} us; a damaged time, or window_us is too small"
                )
            to = at + int(np.searchsorted(times[at:], (number + 1) * window_us))
            yield events[at:to].copy()
            at, number = to, number + 1


def iter_events(
    source: FileSource,
    window_us: int,
    *,
    format: str | None = None,
    strict: bool = False,
    sensor_size: tuple[int, int] | None = None,
    outside: Outside = "error",
    origin: Origin = "auto",
    name: str | None = None,
    **options: Any,
) -> EventWindows:
    """Reads an event file window by window, in constant memory.

    Window k holds the events of `k * window_us <= t < (k + 1) * window_us`, ordered by time; windows without events are
    empty arrays. Binary formats, `.npy`, CSV and HDF5 are streamed; `.npz` and MATLAB files are read whole.

    Args:
        source: as in `read`, as are all options but `window_us`.
        window_us: length of a window in microseconds.

    Returns:
        An iterator of event arrays `[E]`; its `header` is available at once, `header.start_us` after the first window.

    Raises:
        EventFileError: as in `read`; also if time falls back by more than 10 ms before a window that was already
            returned (`read` sorts such files), or if more than a million windows are empty.

    Warns:
        UserWarning: as `read`, if time falls back within events that were not returned yet.

    Example:
        >>> from snnlib.data import as_events, encode_nmnist
        >>> data = encode_nmnist(as_events([5, 12, 31], [0, 1, 2], [0, 0, 0], [1, 1, 0]))
        >>> [events["t"].tolist() for events in iter_events(data, window_us=10, format="nmnist")]
        [[5], [12], [], [31]]
    """
    window_us = check_int("window_us", window_us, 1)
    file = EventFile(source, name, strict)
    try:
        chosen = _check(file, format, outside, origin, options)
        sink = EventSink(file, grows=False, drop_outside=outside == "drop")
        header, chunks = chosen.decode(file, sink, options)
        sink.begin(header, sensor_size)
    except BaseException:
        file.__exit__()
        raise
    return EventWindows(sink, chunks, window_us, _given_origin(origin, chosen))


def _check(
    file: EventFile, format: str | None, outside: str, origin: object, options: dict[str, Any]
) -> Format:
    check_choice("outside", outside, "error", "drop")
    if isinstance(origin, str):
        check_choice("origin", origin, "auto", "first")
    else:
        check_int("origin", origin, -(2**62), 2**62)
    chosen = find_format(file) if format is None else named_format(format)
    if format in HEADLESS + BY_SUFFIX:
        check_named(file, chosen)
    check_options(options, chosen.options, chosen.name)
    return chosen


def _given_origin(origin: object, chosen: Format) -> int | None:
    """The time that becomes 0; None for that of the first event."""
    if isinstance(origin, int):
        return origin
    return None if origin == "first" or chosen.clock == "camera" else 0
