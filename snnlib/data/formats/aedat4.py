"""AEDAT 4: a line `#!AER-DAT4.0`, a flatbuffer header, then packets, each compressed for itself.

    uint32 size, flatbuffer IOHE: compression (0 none, 1 and 2 LZ4, 3 and 4 ZSTD), int64 position of the data table
    (-1 where the recorder was killed), and an XML text that describes the streams
    packets: int32 stream, int32 size, then a size-prefixed flatbuffer; EVTS holds a vector of 16-byte events
    int64 t (unix time in us), int16 x, int16 y, uint8 on, 3 bytes of padding

The packets are read in their order, up to the data table at the end. Streams that are no events are counted as
skipped. Rows count from the top.

Compressed files need the package lz4 or zstandard (`pip install snnlib[formats]`).

Source: inivation, "AEDAT 4.0 file format", and the schemas `fileheader.fbs` and `events.fbs`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import CHUNK, EventFile, Format, Header, Room

MAGIC = b"#!AER-DAT4.0\r\n"
COMPRESSIONS = {0: "none", 1: "LZ4", 2: "LZ4", 3: "ZSTD", 4: "ZSTD"}
EVENT_DTYPE_4 = np.dtype([("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("on", "u1"), ("pad", "V3")])
# Of one packet: a recorder writes some ten thousand events, 16 bytes each.
LARGEST_PACKET = 1 << 28


class _TableError(Exception):
    """A flatbuffer that points outside itself."""


def decode(file: EventFile, room: Room, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the header; events come by chunks."""
    if file.read(len(MAGIC)) != MAGIC:
        raise file.error(f"expected {MAGIC!r}", 0)
    size = int.from_bytes(file.read(4), "little")
    if not 8 <= size <= file.left:
        raise file.error(f"truncated: expected a header of {size} bytes, found {file.left}", len(MAGIC))
    place, data = file.tell(), file.read(size)
    try:
        root = _table(data, 0)
        compression = int(_scalar(data, root, 0, "<i", 0))
        table_at = int(_scalar(data, root, 1, "<q", -1))
        text = _string(data, root, 2)
    except (_TableError, struct.error) as error:
        raise file.error(f"expected a flatbuffer header, found a damaged one ({error})", place) from None
    if compression not in COMPRESSIONS:
        raise file.error(f"expected a compression in 0..4, found {compression}", place)
    header, streams = _describe(text, file, place)
    header.fields["compression"] = COMPRESSIONS[compression]
    unpack = _unpacker(compression)
    if not place <= table_at <= file.size:
        # Also -1, of a recorder that was killed: the packets go on to the end.
        table_at = file.size
    return header, _chunks(file, room, header, streams, unpack, table_at)


def _describe(text: str, file: EventFile, place: int) -> tuple[Header, dict[int, str]]:
    """The header, and the type of each stream, from the XML text."""
    header, streams = Header("aedat4", "4.0"), {}
    # No document type, so no entities: nothing that could grow.
    if "<!" in text:
        raise file.error("expected plain XML in the header, found a declaration", place)
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise file.error(f"expected XML in the header, found none ({error})", place) from None
    for node in root.iterfind("./node[@name='outInfo']/node"):
        attributes = {item.get("key", ""): item.text or "" for item in node.iter("attr")}
        if not node.get("name", "").isdigit():
            continue
        kind = attributes.get("typeIdentifier", "")
        streams[int(node.get("name", ""))] = kind
        if kind == "EVTS" and header.sensor_size is None:
            width, height = attributes.get("sizeX", ""), attributes.get("sizeY", "")
            if width.isdigit() and height.isdigit() and 0 < int(width) <= 2**15 and 0 < int(height) <= 2**15:
                header.sensor_size = int(height), int(width)
            header.camera = attributes.get("source", "")
    if "EVTS" not in streams.values():
        raise file.error("expected a stream of events (EVTS), found none", place)
    return header, streams


def _chunks(
    file: EventFile,
    room: Room,
    header: Header,
    streams: dict[int, str],
    unpack: Callable[[bytes], bytes],
    end: int,
) -> Iterator[Events]:
    while file.tell() < end:
        place = file.tell()
        head = file.read(8)
        if len(head) < 8:
            file.truncated(f"a packet header of 8 bytes, found {len(head)} bytes", place)
            return
        stream, size = struct.unpack("<ii", head)
        if size < 0 or stream not in streams:
            raise file.error(
                f"expected a packet of a known stream, found stream {stream} with {size} bytes", place
            )
        if size > file.left:
            file.truncated(f"a packet of {size} bytes, found {file.left} bytes", place)
            return
        if streams[stream] != "EVTS":
            header.skip(f"{streams[stream] or 'unknown'} packets", 1)
            file.seek(file.tell() + size)
            continue
        try:
            data = unpack(file.read(size))
            words = _events(data)
        except ImportError:
            raise
        except Exception as error:
            # Each library has exceptions of its own for damaged data.
            raise file.error(f"expected a packet of events, found a damaged one ({error})", place) from None
        for start in range(0, len(words), CHUNK):
            part = words[start : start + CHUNK]
            yield room.put(part["t"], part["x"].copy(), part["y"].copy(), part["on"].copy())


def _events(data: bytes) -> np.ndarray[Any, Any]:
    """The events of a size-prefixed flatbuffer EVTS."""
    if len(data) < 12 or data[8:12] != b"EVTS":
        raise _TableError(f"no EVTS: {data[8:12]!r}")
    table = _table(data, 4)
    field = _field(data, table, 0)
    if field is None:
        return np.empty(0, EVENT_DTYPE_4)
    vector = field + _read(data, field, "<I")
    count = _read(data, vector, "<I")
    if vector + 4 + 16 * count > len(data):
        raise _TableError(f"{count} events in {len(data)} bytes")
    return np.frombuffer(data, EVENT_DTYPE_4, count, vector + 4)


def _read(data: bytes, place: int, kind: str) -> int:
    if not 0 <= place <= len(data) - struct.calcsize(kind):
        raise _TableError(f"points to byte {place} of {len(data)}")
    return int(struct.unpack_from(kind, data, place)[0])


def _table(data: bytes, start: int) -> int:
    return start + _read(data, start, "<I")


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table lies, or None where it has its default."""
    vtable = table - _read(data, table, "<i")
    size = _read(data, vtable, "<H")
    if 4 + 2 * number + 2 > size:
        return None
    offset = _read(data, vtable + 4 + 2 * number, "<H")
    return table + offset if offset else None


def _scalar(data: bytes, table: int, number: int, kind: str, default: int) -> int:
    place = _field(data, table, number)
    return default if place is None else _read(data, place, kind)


def _string(data: bytes, table: int, number: int) -> str:
    place = _field(data, table, number)
    if place is None:
        return ""
    place += _read(data, place, "<I")
    length = _read(data, place, "<I")
    if place + 4 + length > len(data):
        raise _TableError(f"a text of {length} bytes in {len(data)}")
    return data[place + 4 : place + 4 + length].decode("utf-8", errors="replace")


def _unpacker(compression: int) -> Callable[[bytes], bytes]:
    if COMPRESSIONS[compression] == "none":
        return lambda data: data
    try:
        if COMPRESSIONS[compression] == "LZ4":
            from lz4.frame import LZ4FrameDecompressor  # noqa: PLC0415

            return lambda data: _limited(LZ4FrameDecompressor().decompress(data, LARGEST_PACKET + 1))
        from zstandard import ZstdDecompressor  # noqa: PLC0415
    except ImportError as error:
        package = "lz4" if COMPRESSIONS[compression] == "LZ4" else "zstandard"
        raise ImportError(
            f"this AEDAT 4 file is compressed with {COMPRESSIONS[compression]} and needs the package {package}: "
            "pip install 'snnlib[formats]'"
        ) from error

    def unpack_zstd(data: bytes) -> bytes:
        with ZstdDecompressor().stream_reader(data) as reader:
            return _limited(reader.read(LARGEST_PACKET + 1))

    return unpack_zstd


def _limited(data: bytes) -> bytes:
    if len(data) > LARGEST_PACKET:
        raise _TableError(f"a packet above {LARGEST_PACKET} bytes")
    return data


FORMAT = Format(
    "aedat4",
    "AEDAT 4",
    (".aedat4",),
    lambda head: head.startswith(b"#!AER-DAT4"),
    decode,
    smallest=16,
)
