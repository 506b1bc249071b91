"""AEDAT 4: a line `#!AER-DAT4.0`, a flatbuffer header, then packets, each compressed for itself.

    uint32 size, flatbuffer IOHE: compression (0 none, 1 and 2 LZ4, 3 and 4 ZSTD), int64 position of the data table
    (-1 where the recorder was killed), and an XML text that describes the streams
    packets: int32 stream, int32 size, then a size-prefixed flatbuffer; EVTS holds a vector of 16-byte events
    int64 t (unix time in us), int16 x, int16 y, uint8 on, 3 bytes of padding

The packets are read in their order, up to the data table at the end. Streams that are no events are counted as
skipped. Rows count from the top.

Compressed files need the packages lz4 or zstandard (`pip install snnlib[formats]`).

Source: inivation, "AEDAT 4.0 file format", and the schemas `fileheader.fbs` and `events.fbs`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np

from snnlib.checks import import_extra
from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import LARGEST_SIDE, small_number
from snnlib.data.formats.event_file import Array, EventFile, joined
from snnlib.data.formats.event_sink import EventSink, Header

MAGIC = b"#!AER-DAT4.0\r\n"
COMPRESSIONS = {0: "none", 1: "LZ4", 2: "LZ4", 3: "ZSTD", 4: "ZSTD"}
EVENT_DTYPE_4 = np.dtype([("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("on", "u1"), ("pad", "V3")])
# Largest packet: a recorder writes some ten thousand events, 16 bytes each.
LARGEST_PACKET = 1 << 28
# Stream and size of a packet.
HEAD_BYTES = 8
# A packet is unpacked by pieces of this size: the libraries take memory for all that they are asked for.
PIECE_BYTES = 1 << 18
Unpack = Callable[[bytes], bytes | bytearray]
# Times stay below 2**62 microseconds.
LARGEST_TIME = 2**62


class _TableError(Exception):
    """A flatbuffer that points outside itself."""


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
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
    if not place <= table_at <= file.size:
        # Also -1, of a recorder that was killed: the packets go on to the end.
        table_at = file.size
    unpack = _unpacker(COMPRESSIONS[compression])
    return header, _chunks(_packets(file, header, streams, table_at, unpack), sink)


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
        number = small_number(node.get("name", ""))
        if number is None:
            continue
        kind = attributes.get("typeIdentifier", "")
        streams[number] = kind
        if kind == "EVTS" and header.sensor_size is None:
            height, width = (small_number(attributes.get(name, "")) or 0 for name in ("sizeY", "sizeX"))
            if 0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE:
                header.sensor_size = height, width
            header.camera = attributes.get("source", "")
    if "EVTS" not in streams.values():
        raise file.error("expected a stream of events (EVTS), found none", place)
    return header, streams


def _chunks(packets: Iterator[Array], sink: EventSink) -> Iterator[Events]:
    for words in joined(packets):
        yield sink.put(*(words[field].copy() for field in ("t", "x", "y", "on")))


def _packets(
    file: EventFile, header: Header, streams: dict[int, str], end: int, unpack: Unpack
) -> Iterator[Array]:
    """Yields the events of each packet up to the position `end`."""
    while (place := file.tell()) < end:
        head = file.read(HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            file.truncated(f"a packet header of {HEAD_BYTES} bytes, found {len(head)} bytes", place)
            return
        stream, size = struct.unpack("<ii", head)
        if size < 0 or stream not in streams:
            raise file.error(
                f"expected a packet of a known stream, found stream {stream} with {size} bytes", place
            )
        if size > file.left:
            file.truncated(f"a packet of {size} bytes, found {file.left} bytes", place)
            return
        data = file.read(size)
        if streams[stream] != "EVTS":
            header.skip(f"{streams[stream] or 'unknown'} packets", 1)
            continue
        try:
            words = _events(unpack(data))
        except Exception as error:
            # Each library has exceptions of its own for damaged data.
            raise file.error(f"expected a packet of events, found a damaged one ({error})", place) from None
        # Negative times are large ones here.
        if int(words["t"].view("<u8").max(initial=0)) >= LARGEST_TIME:
            raise file.error("expected times from 0 to 2**62 us, found others in a packet", place)
        yield words


def _events(data: bytes | bytearray) -> Array:
    """The events of a size-prefixed flatbuffer EVTS."""
    if len(data) < 12 or data[8:12] != b"EVTS":
        raise _TableError(f"no EVTS: {bytes(data[8:12])!r}")
    table = _table(data, 4)
    field = _field(data, table, 0)
    if field is None:
        return np.empty(0, EVENT_DTYPE_4)
    vector = field + _read(data, field, "<I")
    count = _read(data, vector, "<I")
    if vector + 4 + 16 * count > len(data):
        raise _TableError(f"{count} events in {len(data)} bytes")
    return np.frombuffer(data, EVENT_DTYPE_4, count, vector + 4)


def _read(data: bytes | bytearray, place: int, kind: str) -> int:
    if not 0 <= place <= len(data) - struct.calcsize(kind):
        raise _TableError(f"points to byte {place} of {len(data)}")
    return int(struct.unpack_from(kind, data, place)[0])


def _table(data: bytes | bytearray, start: int) -> int:
    return start + _read(data, start, "<I")


def _field(data: bytes | bytearray, table: int, number: int) -> int | None:
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


def _unpacker(compression: str) -> Unpack:
    if compression == "none":
        return lambda data: data
    pieces = _lz4_pieces if compression == "LZ4" else _zstd_pieces
    package = "lz4.frame" if compression == "LZ4" else "zstandard"
    library = import_extra(package, "formats", f"AEDAT 4 files that are compressed with {compression}")

    def unpack(data: bytes) -> bytearray:
        unpacked = bytearray()
        for piece in pieces(library, data):
            unpacked += piece
            if len(unpacked) > LARGEST_PACKET:
                raise _TableError(f"a packet above {LARGEST_PACKET} bytes")
        return unpacked

    return unpack


def _lz4_pieces(lz4: Any, data: bytes) -> Iterator[bytes]:
    while data:
        frame = lz4.LZ4FrameDecompressor()
        yield frame.decompress(data, PIECE_BYTES)
        while not (frame.eof or frame.needs_input):
            yield frame.decompress(b"", PIECE_BYTES)
        if not frame.eof:
            raise _TableError("an LZ4 frame that ends early")
        # A packet may be several frames.
        data = frame.unused_data or b""


def _zstd_pieces(zstandard: Any, data: bytes) -> Iterator[bytes]:
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        while piece := reader.read(PIECE_BYTES):
            yield piece


FORMAT = Format(
    "aedat4",
    "AEDAT 4",
    (".aedat4",),
    lambda head: head.startswith(b"#!AER-DAT4"),
    decode,
    # Compressed.
    smallest=4,
)
