"""Prophesee DAT: `%` lines, a byte event type, a byte event size (8), then pairs of little-endian uint32.

    t in microseconds;   data: x = bits 0..13, y = bits 14..27, p = bits 28..31

Version 1, of the ATIS cameras, has x in bits 0..8, y in bits 9..16 and p above. A file that names no version has
version 1, as in those cameras' first programs; one of version 2 then fails by its polarities. The 32-bit time wraps
after 4295 s and is made to count on. Rows count from the top.

Source: Prophesee, "DAT file format", Metavision documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import check_writable, size_in_header, small_number
from snnlib.data.formats.clock import Unwrapper
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.formats.prophesee_header import detect_version

# 0: the first cameras' two-dimensional events; 12: contrast detection. Both have the same bits.
EVENT_TYPES = (0, 12)
EVENT_BYTES = 8
LARGEST = 2**14
# Bits of x and y by version.
BITS = {1: (9, 8), 2: (14, 14)}


def detect(head: bytes) -> bool:
    """Returns whether there are `%` lines that name no EVT version."""
    return head.startswith(b"%") and not detect_version(head)


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the header; events come by chunks."""
    lines = file.text_header(b"%", lambda line: line.lower().startswith("% end"))
    fields = dict(line[1:].strip().partition(" ")[::2] for line in lines)
    version = small_number(fields.get("Version", "1").strip().partition(".")[0])
    if version not in BITS:
        raise file.error(f"expected DAT version 1 or 2, found {fields['Version'][:20]!r}", 0)
    kind = file.read(2)
    if len(kind) < 2:
        raise file.error(f"expected the event type and size of a DAT file, found {len(kind)} bytes")
    if kind[0] not in EVENT_TYPES or kind[1] != EVENT_BYTES:
        raise file.error(
            f"expected events of type 0 or 12 with 8 bytes, found type {kind[0]} with {kind[1]} bytes",
            file.tell() - 2,
        )
    size = size_in_header(file, fields.get("Width", ""), fields.get("Height", ""))
    return Header("dat", fields.get("Version", ""), size, fields=fields), _chunks(file, sink, *BITS[version])


def _chunks(file: EventFile, sink: EventSink, x_bits: int, y_bits: int) -> Iterator[Events]:
    unwrap = Unwrapper(2**32)
    for words in file.words("<u4", 2):
        data = words[:, 1].copy()
        t = unwrap(words[:, 0].copy())
        x, y = data & (1 << x_bits) - 1, data >> x_bits & (1 << y_bits) - 1
        yield sink.put(t, x, y, data >> x_bits + y_bits, file.records)


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write events whose times are below 2**32 microseconds."""
    check_writable(events, header, 2**32, (LARGEST, LARGEST))
    lines = ["% Data file containing CD events.", "% Version 2"]
    if header.sensor_size:
        lines += [f"% Height {header.sensor_size[0]}", f"% Width {header.sensor_size[1]}"]
    words = np.empty((len(events), 2), "<u4")
    words[:, 0] = events["t"]
    x, y, p = (events[field].astype(np.uint32) for field in "xyp")
    words[:, 1] = x | y << 14 | p << 28
    return ("\n".join(lines) + "\n").encode() + bytes((12, EVENT_BYTES)) + words.tobytes()


FORMAT = Format("dat", "Prophesee DAT", (".dat",), detect, decode, encode, clock="recording", smallest=8)
