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
from snnlib.data.formats.compiled import CompiledDecoder, Decode, find_decoder
from snnlib.data.formats.event_file import CHUNK, Array, EventFile
from snnlib.data.formats.event_sink import EventSink, Header

MAGIC = b"#!AER-DAT3"
PACKET_BYTES = 28
# Times stay below 2**62 microseconds.
LARGEST_OVERFLOW = 2**31
INVALID = "invalid events"
# What the compiled decoder gets at once: many packets of the usual size.
COMPILED_BYTES = 1 << 20
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
    if (compiled := find_decoder("aedat3")) is not None:
        return header, _compiled_chunks(file, sink, header, compiled)
    return header, _chunks(file, sink, header)


def _compiled_chunks(file: EventFile, sink: EventSink, header: Header, compiled: Decode) -> Iterator[Events]:
    """Packets of polarity events by the compiled decoder; `_packet` takes others, damaged and very large ones."""
    decoder = CompiledDecoder(compiled, sink, INVALID, variant=CHUNK)
    data, begin = np.empty(0, np.uint8), 0
    while file.left:
        place = file.tell()
        fresh = not begin < place < begin + len(data)
        if fresh:
            data, begin = np.frombuffer(file.read(COMPILED_BYTES), np.uint8), place
        rest = data[place - begin :]
        most = len(rest) // EVENT_BYTES
        events, used = decoder(rest, most, most)
        yield events
        file.seek(place + used)
        if not used and fresh:
            for words, overflow in _packet(file, header):
                yield _pixels([(words, overflow)], sink)
        elif not used:
            # It may be the end of the data that cut the packet off.
            data = data[:0]


def _chunks(file: EventFile, sink: EventSink, header: Header) -> Iterator[Events]:
    # Small packets are decoded together.
    waiting: list[tuple[Array, int]] = []
    count = 0
    for words, overflow in _packets(file, header):
        if waiting and (overflow != waiting[-1][1] or count + len(words) > CHUNK):
            yield _pixels(waiting, sink)
            waiting, count = [], 0
        waiting.append((words, overflow))
        count += len(words)
    if waiting:
        yield _pixels(waiting, sink)


def _packets(file: EventFile, header: Header) -> Iterator[tuple[Array, int]]:
    while file.left:
        yield from _packet(file, header)


def _packet(file: EventFile, header: Header) -> Iterator[tuple[Array, int]]:
    """Words `[n, 2]` of the next packet's valid polarity events, at most CHUNK at once, and the time overflow.

    The position is then at the packet's end, or at the file's where it cuts the packet off.
    """
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
        yield from _valid_words(file, header, number, overflow, believed=valid == number)
    else:
        header.skip(f"{PACKET_NAMES.get(kind, f'type {kind}')} events", number)
    if end > file.size:
        found = file.size - place - PACKET_BYTES
        file.truncated(f"a packet of {size * capacity} bytes, found {found} bytes", place)
    file.seek(min(end, file.size))


def _valid_words(
    file: EventFile, header: Header, number: int, overflow: int, believed: bool
) -> Iterator[tuple[Array, int]]:
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
            yield words, overflow


def _pixels(parts: list[tuple[Array, int]], sink: EventSink) -> Events:
    words = parts[0][0] if len(parts) == 1 else np.concatenate([words for words, _ in parts])
    data, time = words[:, 0].copy(), words[:, 1].copy()
    if parts[0][1]:
        time = time.astype(np.int64) + (parts[0][1] << 31)
    return sink.put(time, data >> 17, data >> 2 & 0x7FFF, data >> 1 & 1)


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
