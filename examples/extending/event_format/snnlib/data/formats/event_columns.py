"""Columns: eight magic bytes, the sensor's size, then the columns t, x, y and p one after the other, little-endian.

"SNNCOLS1"; uint32 height, width, events; int64 t [n] in microseconds; uint16 x [n], y [n]; uint8 p [n]
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import check_writable
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import EventSink, Header

MAGIC = b"SNNCOLS1"
_SIZES = struct.Struct("<III")
# Dtypes of t, x, y and p.
_COLUMNS = ("<i8", "<u2", "<u2", "u1")


def detect(head: bytes) -> bool:
    """Recognises the format by its magic bytes."""
    return head.startswith(MAGIC)


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read sizes and columns; a file that ends early has no event that is whole, so it raises."""
    place = file.read(len(MAGIC))
    sizes = file.read(_SIZES.size)
    if place != MAGIC or len(sizes) < _SIZES.size:
        raise file.error(f"expected {MAGIC!r} and three sizes, found {len(place) + len(sizes)} bytes", 0)
    height, width, count = _SIZES.unpack(sizes)
    if not (0 < height <= 2**15 and 0 < width <= 2**15):
        raise file.error(f"expected a sensor of at most 32768 rows and columns, found {height} x {width}", 8)
    if count * sum(np.dtype(kind).itemsize for kind in _COLUMNS) != file.left:
        raise file.error(f"truncated: expected {count} events of 13 bytes, found {file.left} bytes")
    return Header("columns", "1", (height, width)), _chunks(file, sink, count)


def _chunks(file: EventFile, sink: EventSink, count: int) -> Iterator[Events]:
    columns = [np.frombuffer(file.read(count * np.dtype(kind).itemsize), kind) for kind in _COLUMNS]
    yield sink.put(*columns)


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write events of any length."""
    check_writable(events, header, 2**63, (2**15, 2**15))
    sizes = _SIZES.pack(*(header.sensor_size or (2**15, 2**15)), len(events))
    columns = [events[name].astype(kind).tobytes() for name, kind in zip("txyp", _COLUMNS, strict=True)]
    return MAGIC + sizes + b"".join(columns)


FORMAT = Format(
    "columns", "event columns", (".cols",), detect, decode, encode, clock="recording", smallest=13
)
