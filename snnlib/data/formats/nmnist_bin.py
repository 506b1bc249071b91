"""The `.bin` event format of N-MNIST and N-Caltech101.

No header. Each event is one word of 5 bytes `b0 .. b4`:

    x = b0,   y = b1,   p = bit 7 of b2 (1 = ON),   t = (b2 & 0x7f) << 16 | b3 << 8 | b4

with t in microseconds (23 bit).

A word with y == 240 is an overflow word of the ATIS camera: it is no event, and every later time grows by
8192 us.

Source: G. Orchard, A. Jayawant, G. K. Cohen, N. Thakor, "Converting Static Image Datasets to Spiking
Neuromorphic Datasets Using Saccades", Frontiers in Neuroscience 9:437, 2015, and the authors' reader
`Read_Ndataset.m`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from snnlib.data.checks import check_sensor_size
from snnlib.data.events import Events, sort_by_time
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import check_writable
from snnlib.data.formats.event_file import EventFile, FileSource
from snnlib.data.formats.event_sink import EventSink, Header, Offsets
from snnlib.files.atomic import write_bytes_atomically

__all__ = ["encode_nmnist", "read_nmnist", "write_nmnist"]

NMNIST_SENSOR_SIZE = (34, 34)
EVENT_BYTES = 5
OVERFLOW_Y = 240
OVERFLOW_US = 8192
FIELD_MAX_US = 2**23 - 1
# x is one byte; rows from 240 on cannot be told from overflow words.
LARGEST_SENSOR = (OVERFLOW_Y, 256)
# 2.4 hours need 2**20 overflow words (5 MB); absolute unix times would need hundreds of gigabytes of them.
WRITE_LIMIT_US = 2**33


def read_nmnist(
    source: FileSource,
    *,
    strict: bool = True,
    sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE,
    name: str | None = None,
) -> Events:
    """Read one N-MNIST `.bin` recording.

    Overflow words are resolved and removed. Time is checked once: small backward steps (merged read-outs) are
    repaired by a stable sort. A backward step of more than half the 23-bit range is a wrapped clock without
    overflow words, which has no safe repair, and raises.

    Args:
        source: a path, the bytes themselves, or an open binary file.
        strict: `True` (default, because a torn file usually means a torn copy) raises where the length is no
            multiple of 5 bytes; `False` keeps the whole events and warns how many bytes were left.
        sensor_size: `(height, width)` in pixels; at most (240, 256), the format's own limit. Default:
            N-MNIST's.
        name: what to call the data in messages; default: the path.

    Returns:
        Events `[E]` of dtype `EVENT_DTYPE`, ordered by time; `E` may be 0.

    Raises:
        OSError: the file is absent or unreadable; the message names it.
        EventFileError: truncated (strict), a coordinate outside the sensor, or a wrapped clock; names the
            file, the byte offset and the event.

    Example:
        >>> read_nmnist(bytes([3, 4, 0x80, 0x01, 0x02])).tolist()
        [(258, 3, 4, 1)]
    """
    size = check_sensor_size("sensor_size", sensor_size, LARGEST_SENSOR)
    with EventFile(source, name, strict) as file:
        sink = EventSink(file, expected=file.left // EVENT_BYTES)
        header, chunks = _decode(file, sink, {})
        sink.begin(header, size)
        for _ in chunks:
            pass
    sink.warn_of_fall()
    return sort_by_time(sink.events())


def encode_nmnist(events: Events, *, sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE) -> bytes:
    """Encode events as N-MNIST `.bin` bytes; arguments and errors as in `write_nmnist`.

    Example:
        >>> from snnlib.data import as_events
        >>> encode_nmnist(as_events(t=[258], x=[3], y=[4], p=[1])).hex(" ")
        '03 04 80 01 02'
    """
    size = check_sensor_size("sensor_size", sensor_size, LARGEST_SENSOR)
    check_writable(events, Header("nmnist", sensor_size=size), WRITE_LIMIT_US, LARGEST_SENSOR)
    t = events["t"].astype(np.int64)
    # Overflow words before each event: as few as bring its time back into 23 bits.
    late = np.maximum(-((FIELD_MAX_US - t) // OVERFLOW_US), 0)
    place = np.arange(t.size) + late
    words = np.zeros((t.size + int(late[-1]) if t.size else 0, EVENT_BYTES), np.uint8)
    words[:, 1] = OVERFLOW_Y
    field_us = t - OVERFLOW_US * late
    words[place, 0], words[place, 1] = events["x"], events["y"]
    words[place, 2] = events["p"].astype(np.int64) << 7 | field_us >> 16
    words[place, 3], words[place, 4] = field_us >> 8 & 0xFF, field_us & 0xFF
    return words.tobytes()


def write_nmnist(
    path: str | os.PathLike[str], events: Events, *, sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE
) -> None:
    """Write events as an N-MNIST `.bin` file; a crash leaves the old file or the new one, never a part.

    `read_nmnist(path)` gives back equal events for every time below 2**33 us (2.4 hours): times above the
    format's 23 bits (8.39 s) are reached with overflow words.

    Args:
        path: the file; its folder must exist. An existing file is replaced atomically.
        events: events `[E]`, ordered by time.
        sensor_size: `(height, width)`; events outside are refused, never clipped.

    Raises:
        TypeError: `events` is not an event array.
        ValueError: an event lies outside the sensor or the time range, or times decrease.
        OSError: the file cannot be written; an older file then stays as it was.

    Example:
        >>> import tempfile, pathlib
        >>> from snnlib.data import as_events
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "a.bin")
        ...     write_nmnist(file, as_events(t=[1, 9_000_000], x=[0, 33], y=[2, 3], p=[0, 1]))
        ...     read_nmnist(file)["t"].tolist()
        [1, 9000000]
    """
    write_bytes_atomically(path, encode_nmnist(events, sensor_size=sensor_size))


def _decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    # The format has no header: cameras of any size wrote it.
    header = Header("nmnist")
    return header, _chunks(file, sink, header)


def _chunks(file: EventFile, sink: EventSink, header: Header) -> Iterator[Events]:
    added_us, before = 0, 0
    for words in file.words("u1", EVENT_BYTES):
        overflow = words[:, 1] == OVERFLOW_Y
        t = (words[:, 2] & 0x7F).astype(np.int64) << 16 | words[:, 3].astype(np.int64) << 8 | words[:, 4]
        t += added_us
        offsets: Offsets = file.records
        # Without overflow words, as most chunks are, no copy is made.
        kept: Any = slice(None)
        if overflow.any():
            kept = np.flatnonzero(~overflow)
            offsets = file.records.start + EVENT_BYTES * kept
            overflows = np.cumsum(overflow)
            t += OVERFLOW_US * overflows
            added_us += OVERFLOW_US * int(overflows[-1])
            header.skip("overflow words", int(overflows[-1]))
        t, events = t[kept], words[kept]
        if len(t) == 0:
            continue
        back = np.diff(t, prepend=before)
        if back.min() < -(FIELD_MAX_US // 2):
            at = int(back.argmin())
            raise file.error(
                f"expected rising times, found a fall from {t[at] - back[at]} to {t[at]} us (a 23-bit clock that "
                "wrapped without overflow words)",
                int(offsets[at]),
            )
        before = int(t[-1])
        yield sink.put(t, events[:, 0], events[:, 1], events[:, 2] >> 7, offsets)


def _encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    return encode_nmnist(events, sensor_size=header.sensor_size or LARGEST_SENSOR)


FORMAT = Format(
    "nmnist", "N-MNIST", (".bin",), None, _decode, _encode, clock="recording", smallest=EVENT_BYTES
)
