"""Event Stream `.es`, version 2, DVS events.

    "Event Stream", 3 version bytes, type (1 = DVS), uint16 width, uint16 height; then bytes
    0xFF           time += 127 us
    0xFE           reset: nothing
    dt << 1 | on, uint16 x, uint16 y      an event dt us later, dt < 127; all little-endian

Rows count upwards in the file and are turned to count from the top.

A word's length depends on its first byte, so 0xFF and 0xFE bytes decide where events begin: runs of them are visited
one by one, and everything between two runs is decoded as an array.

Source: A. Marcireau, "Event Stream" specification, version 2.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import check_writable
from snnlib.data.formats.event_file import CHUNK, Array, EventFile
from snnlib.data.formats.event_sink import EventSink, Header

MAGIC = b"Event Stream"
DVS = 1
KINDS = {0: "generic", 1: "DVS", 2: "ATIS", 3: "display", 4: "colour"}
EVENT_BYTES = 5
OVERFLOW, RESET = 0xFF, 0xFE
OVERFLOW_US = 127
# Overflow bytes of a pause of 2.4 hours take 68 MB.
WRITE_LIMIT_US = 2**33


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the header; events come by chunks."""
    head = file.read(20)
    if not head.startswith(MAGIC):
        raise file.error(f"expected {MAGIC!r}, found {head[:12]!r}", 0)
    if len(head) < 16:
        raise file.error(f"truncated: expected 16 bytes of header, found {len(head)}", 0)
    if head[12] != 2:
        raise file.error(
            f"expected Event Stream version 2, found version {head[12]}.{head[13]}.{head[14]}", 12
        )
    if head[15] != DVS:
        raise file.error(
            f"expected DVS events (type 1), found {KINDS.get(head[15], 'unknown')} (type {head[15]})", 15
        )
    if len(head) < 20:
        raise file.error(
            f"truncated: expected the sensor's width and height, found {len(head) - 16} bytes", 16
        )
    width, height = (int(value) for value in np.frombuffer(head, "<u2", 2, 16))
    if not (0 < width <= 2**15 and 0 < height <= 2**15):
        raise file.error(f"expected a sensor of 1..32768 pixels each way, found {width}x{height}", 16)
    header = Header("es", f"{head[12]}.{head[13]}.{head[14]}", (height, width))
    return header, _chunks(file, sink, header, height)


def _chunks(file: EventFile, sink: EventSink, header: Header, height: int) -> Iterator[Events]:
    now, rest = 0, b""
    while True:
        data = rest + file.read(EVENT_BYTES * CHUNK)
        if len(data) == len(rest):
            break
        data_array = np.frombuffer(data, np.uint8)
        starts, overflows, end = _event_starts(data_array, header)
        rest = data[end:]
        if len(starts):
            words = data_array[starts[:, None] + np.arange(EVENT_BYTES)]
            t = now + np.cumsum((words[:, 0] >> 1) + OVERFLOW_US * overflows[:-1])
            now = int(t[-1])
            x, y = words[:, 1:].copy().view("<u2").astype(np.int64).T
            yield sink.put(t, x, height - 1 - y, words[:, 0] & 1)
        now += OVERFLOW_US * int(overflows[-1])
    if rest:
        file.truncated(f"an event of {EVENT_BYTES} bytes, found {len(rest)} bytes", file.size - len(rest))


def _event_starts(data: Array, header: Header) -> tuple[Array, Array, int]:
    """Where events begin, overflow bytes before each (and after the last), and how many bytes they all take."""
    special = np.flatnonzero(data >= RESET)
    # Runs of such bytes; a run that begins inside an event is special from the event's end on.
    first = np.flatnonzero(np.diff(special, prepend=-2) != 1)
    overflows_before = np.cumsum(data[special] == OVERFLOW)
    runs: list[Array] = []
    # Number of events before each run of overflow bytes, and its length.
    at: list[int] = []
    lengths: list[int] = []
    place = events = resets = 0
    last = np.append(first[1:], len(special))[: len(first)] - 1
    for start, end, number in zip(
        special[first].tolist(), (special[last] + 1).tolist(), last.tolist(), strict=True
    ):
        begin = max(place, place + -(-(start - place) // EVENT_BYTES) * EVENT_BYTES)
        if begin >= end:
            # All of it coordinates of an event.
            continue
        runs.append(np.arange(place, begin, EVENT_BYTES))
        events += len(runs[-1])
        count = end - begin
        overflows = int(
            overflows_before[number] - (overflows_before[number - count] if number >= count else 0)
        )
        at.append(events)
        lengths.append(overflows)
        resets += count - overflows
        place = end
    runs.append(np.arange(place, len(data) - EVENT_BYTES + 1, EVENT_BYTES))
    events += len(runs[-1])
    header.skip("reset bytes", resets)
    counts = np.zeros(events + 1, np.int64)
    np.add.at(counts, np.array(at, np.int64), np.array(lengths, np.int64))
    return np.concatenate(runs), counts, place + EVENT_BYTES * len(runs[-1])


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write events whose times are below 2**33 microseconds."""
    check_writable(events, header, WRITE_LIMIT_US, (2**15, 2**15))
    size = header.sensor_size or (int(events["y"].max(initial=0)) + 1, int(events["x"].max(initial=0)) + 1)
    steps = np.diff(events["t"].astype(np.int64), prepend=0)
    overflows, rest = np.divmod(steps, OVERFLOW_US)
    ends = np.cumsum(overflows + EVENT_BYTES)
    data = np.full(int(ends[-1]) if len(ends) else 0, OVERFLOW, np.uint8)
    words = np.empty((len(events), EVENT_BYTES), np.uint8)
    words[:, 0] = rest << 1 | events["p"]
    rows = size[0] - 1 - events["y"].astype(np.int64)
    words[:, 1:] = np.stack((events["x"], rows), 1).astype("<u2").view(np.uint8)
    data[(ends - EVENT_BYTES)[:, None] + np.arange(EVENT_BYTES)] = words
    sensor = np.array([size[1], size[0]], "<u2").tobytes()
    return MAGIC + bytes((2, 0, 0, DVS)) + sensor + data.tobytes()


FORMAT = Format(
    "es",
    "Event Stream",
    (".es",),
    lambda head: head.startswith(MAGIC),
    decode,
    encode,
    clock="recording",
    smallest=5,
)
