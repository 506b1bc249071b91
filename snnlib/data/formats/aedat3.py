"""AEDAT 3.1: `#` lines up to `#!END-HEADER`, then packets of events.

A packet is a little-endian header of 28 bytes (uint16 type, uint16 source; uint32 event size, time offset, overflow,
capacity, number, valid), then `capacity` events. Polarity events (type 1) have two uint32:

    data   bit 0 valid, p = bit 1, y = bits 16..2, x = bits 31..17;   t = time | overflow << 31, in microseconds

Other packets are counted as skipped. Where the header says that all events are valid but no event has its valid bit
set, the header is believed. Rows count from the top.

Source: inivation, "AEDAT 3.1 file format".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import check_writable
from snnlib.data.formats.event_file import CHUNK, Array, EventFile, joined
from snnlib.data.formats.event_sink import EventSink, Header

MAGIC = b"#!AER-DAT3"
PACKET_BYTES = 28
# Times stay below 2**62 microseconds.
LARGEST_OVERFLOW = 2**31
INVALID = "invalid events"
POLARITY = 1
EVENT_BYTES = 8
PACKET_NAMES = {0: "special", 1: "polarity", 2: "frame", 3: "motion (6 axes)", 4: "motion (9 axes)"}
SENSORS = {"dvs128": (128, 128), "davis240": (180, 240), "davis346": (260, 346), "davis640": (480, 640)}


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the header; events come by chunks."""
    lines = file.text_header(b"#", lambda line: line.startswith("#!END-HEADER"))
    if not lines or not lines[0].startswith("#!AER-DAT3.1"):
        raise file.error(f"expected #!AER-DAT3.1, found {lines[0][:20] if lines else 'no header'!r}", 0)
    if not lines[-1].startswith("#!END-HEADER"):
        raise file.error("expected #!END-HEADER at the end of the header lines")
    fields = dict(line.lstrip("#").partition(":")[::2] for line in lines[1:-1])
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    if fields.get("Format", "RAW") != "RAW":
        raise file.error(f"expected packets in format RAW, found {fields['Format']!r}", 0)
    camera = next((value for key, value in fields.items() if key.startswith("Source")), "")
    size = next((size for name, size in SENSORS.items() if camera.lower().startswith(name)), None)
    header = Header("aedat3", lines[0][9:].strip(), size, camera=camera, fields=fields)
    return header, _chunks(file, sink, header)


def _chunks(file: EventFile, sink: EventSink, header: Header) -> Iterator[Events]:
    for words in joined(_packets(file, header)):
        data = words[:, 0].copy()
        yield sink.put(words[:, 1], data >> 17, data >> 2 & 0x7FFF, data >> 1 & 1)


def _packets(file: EventFile, header: Header) -> Iterator[Array]:
    """Yields data and time `[n, 2]` of the valid polarity events, at most CHUNK of a packet at once."""
    while file.left:
        yield from _packet(file, header)


def _packet(file: EventFile, header: Header) -> Iterator[Array]:
    head = file.read(PACKET_BYTES)
    place = file.tell() - len(head)
    if len(head) < PACKET_BYTES:
        file.truncated(f"a packet header of {PACKET_BYTES} bytes, found {len(head)} bytes", place)
        return
    kind = int.from_bytes(head[:2], "little")
    size, _, overflow, capacity, number, valid = np.frombuffer(head, "<u4", 6, 4).tolist()
    if number > capacity or valid > number:
        raise file.error(
            f"expected a packet with valid <= number <= capacity, found {valid}, {number}, {capacity}", place
        )
    end = file.tell() + size * capacity
    if kind == POLARITY:
        if size != EVENT_BYTES:
            raise file.error(f"expected polarity events of {EVENT_BYTES} bytes, found {size} bytes", place)
        if overflow >= LARGEST_OVERFLOW:
            raise file.error(f"expected a time overflow below {LARGEST_OVERFLOW}, found {overflow}", place)
        for words in _valid_words(file, header, number, believed=valid == number):
            # The usual words, without an overflow, stay in 32 bits.
            yield words + np.array([0, overflow << 31]) if overflow else words
    else:
        header.skip(f"{PACKET_NAMES.get(kind, f'type {kind}')} events", number)
    if end > file.size:
        found = file.size - place - PACKET_BYTES
        file.truncated(f"a packet of {size * capacity} bytes, found {found} bytes", place)
    file.seek(min(end, file.size))


def _valid_words(file: EventFile, header: Header, number: int, believed: bool) -> Iterator[Array]:
    while number and file.left >= EVENT_BYTES:
        data = file.read(min(number, CHUNK, file.left // EVENT_BYTES) * EVENT_BYTES)
        words = np.frombuffer(data, "<u4").reshape(-1, 2)
        number -= len(words)
        bits = words[:, 0] & 1
        given = int(bits.sum())
        if given < len(words) and not (given == 0 and believed):
            header.skip(INVALID, len(words) - given)
            words = words[bits == 1]
        if len(words):
            yield words


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write packets of at most 4096 events, times below 2**62 microseconds."""
    check_writable(events, header, 2**62, (2**15, 2**15))
    t = events["t"].astype(np.int64)
    words = np.empty((len(events), 2), "<u4")
    x, y, p = (events[field].astype(np.uint32) for field in "xyp")
    words[:, 0] = x << 17 | y << 2 | p << 1 | 1
    words[:, 1] = t & 0x7FFFFFFF
    size = header.sensor_size
    camera = next((name.upper() for name, known in SENSORS.items() if known == size), "unknown")
    text = ["#!AER-DAT3.1", "#Format: RAW", f"#Source 1: {header.camera or camera}", "#!END-HEADER"]
    parts = [("\r\n".join(text) + "\r\n").encode()]
    # A packet has one overflow and at most 4096 events.
    overflow = t >> 31
    starts = np.unique(
        np.concatenate((np.arange(0, len(t), 4096), np.flatnonzero(np.diff(overflow, prepend=-1))))
    )
    for start, end in pairwise([*starts.tolist(), len(t)]):
        count = end - start
        head = np.array([EVENT_BYTES, 4, overflow[start], count, count, count], "<u4").tobytes()
        parts += [POLARITY.to_bytes(2, "little"), (1).to_bytes(2, "little"), head, words[start:end].tobytes()]
    return b"".join(parts)


FORMAT = Format(
    "aedat3",
    "AEDAT 3.1",
    (".aedat", ".aedat3"),
    lambda head: head.startswith(MAGIC),
    decode,
    encode,
    smallest=8,
)
