"""AEDAT 4: a line `#!AER-DAT4.0`, a flatbuffer header, then packets, each compressed for itself.

    uint32 size, flatbuffer IOHE: compression (0 none, 1 and 2 LZ4, 3 and 4 ZSTD), int64 position of the data table
    (-1 where the recorder was killed), and an XML text that describes the streams
    packets: int32 stream, int32 size, then a size-prefixed flatbuffer; EVTS holds a vector of 16-byte events
    int64 t (unix time in us), int16 x, int16 y, uint8 on, 3 bytes of padding

The packets are read in their order, up to the data table at the end. Streams that are no events are counted as
skipped. Rows count from the top.

Files compressed with ZSTD need the package zstandard; those with LZ4 need the package lz4 where there is no compiled
module (`pip install snnlib[formats]`).

Source: inivation, "AEDAT 4.0 file format", and the schemas `fileheader.fbs` and `events.fbs`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from snnlib.backends import native
from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import LARGEST_SIDE, small_number
from snnlib.data.formats.compiled import CompiledDecoder, Decode, find_decoder
from snnlib.data.formats.event_file import CHUNK, Array, EventFile
from snnlib.data.formats.event_sink import EventSink, Header

MAGIC = b"#!AER-DAT4.0\r\n"
COMPRESSIONS = {0: "none", 1: "LZ4", 2: "LZ4", 3: "ZSTD", 4: "ZSTD"}
EVENT_DTYPE_4 = np.dtype([("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("on", "u1"), ("pad", "V3")])
# Of one packet: a recorder writes some ten thousand events, 16 bytes each.
LARGEST_PACKET = 1 << 28
# Stream and size of a packet.
HEAD_BYTES = 8
# What the compiled decoder gets at once: some packets of the usual size.
COMPILED_BYTES = 1 << 20
# What `unpack_lz4` gives where its output does not fit.
LACKS_ROOM = -2
# Room for an unpacked packet, at first.
USUAL_PACKET = 1 << 18
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
    packets = _Packets(file, sink, header, streams, compression)
    if (compiled := find_decoder("aedat4")) is not None and COMPRESSIONS[compression] != "ZSTD":
        return header, _compiled_chunks(packets, compiled, table_at)
    return header, _chunks(packets, table_at)


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


@dataclass
class _Packets:
    """Reader of packets, one by one."""

    file: EventFile
    sink: EventSink
    header: Header
    streams: dict[int, str]
    compression: int

    def __post_init__(self) -> None:
        self._unpack = _unpacker(self.compression)

    def next(self) -> Iterator[Events]:
        """The events of the packet at the position, which is then behind it."""
        file = self.file
        place = file.tell()
        head = file.read(HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            file.truncated(f"a packet header of {HEAD_BYTES} bytes, found {len(head)} bytes", place)
            return
        stream, size = struct.unpack("<ii", head)
        if size < 0 or stream not in self.streams:
            raise file.error(
                f"expected a packet of a known stream, found stream {stream} with {size} bytes", place
            )
        if size > file.left:
            file.truncated(f"a packet of {size} bytes, found {file.left} bytes", place)
            file.seek(file.size)
            return
        if self.streams[stream] != "EVTS":
            self.header.skip(f"{self.streams[stream] or 'unknown'} packets", 1)
            file.seek(file.tell() + size)
            return
        try:
            words = _events(self._unpack(file.read(size)))
        except ImportError:
            raise
        except Exception as error:
            # Each library has exceptions of its own for damaged data.
            raise file.error(f"expected a packet of events, found a damaged one ({error})", place) from None
        for start in range(0, len(words), CHUNK):
            yield _put(words[start : start + CHUNK], self.sink, file, place)


def _chunks(packets: _Packets, end: int) -> Iterator[Events]:
    while packets.file.tell() < end:
        yield from packets.next()


def _compiled_chunks(packets: _Packets, compiled: Decode, end: int) -> Iterator[Events]:
    """Packets of the first stream of events by the compiled decoder; `_Packets` takes others and damaged ones."""
    file = packets.file
    stream = next(number for number, kind in packets.streams.items() if kind == "EVTS")
    variant = stream << 1 | (COMPRESSIONS[packets.compression] == "LZ4")
    decoder = CompiledDecoder(compiled, packets.sink, variant=variant)
    while (place := file.tell()) < end:
        data = np.frombuffer(file.read(min(COMPILED_BYTES, end - place)), np.uint8)
        most, used, done = max(len(data) // EVENT_DTYPE_4.itemsize, CHUNK), -1, 0
        while used and done < len(data):
            events, used = decoder(data[done:], most, most)
            done += used
            yield events
        file.seek(place + done)
        # After some packets it may be the end of the data that cut one off.
        if not done:
            yield from packets.next()


def _put(part: Array, sink: EventSink, file: EventFile, place: int) -> Events:
    t = part["t"]
    if not 0 <= int(t.min()) <= int(t.max()) < LARGEST_TIME:
        raise file.error("expected times from 0 to 2**62 us, found others in a packet", place)
    return sink.put(t, part["x"].copy(), part["y"].copy(), part["on"].copy())


def _events(data: bytes | memoryview) -> Array:
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


def _read(data: bytes | memoryview, place: int, kind: str) -> int:
    if not 0 <= place <= len(data) - struct.calcsize(kind):
        raise _TableError(f"points to byte {place} of {len(data)}")
    return int(struct.unpack_from(kind, data, place)[0])


def _table(data: bytes | memoryview, start: int) -> int:
    return start + _read(data, start, "<I")


def _field(data: bytes | memoryview, table: int, number: int) -> int | None:
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


def _unpacker(compression: int) -> Callable[[bytes], bytes | memoryview]:
    if COMPRESSIONS[compression] == "none":
        return lambda data: data
    try:
        if COMPRESSIONS[compression] == "LZ4":
            if (compiled := native.plain_function("unpack_lz4")) is not None:
                return _UnpackLZ4(compiled)
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
        # In pieces, as the reader takes memory for all that it is asked for.
        unpacked = bytearray()
        with ZstdDecompressor().stream_reader(data) as reader:
            while len(unpacked) <= LARGEST_PACKET and (piece := reader.read(USUAL_PACKET)):
                unpacked += piece
        return _limited(bytes(unpacked))

    return unpack_zstd


class _UnpackLZ4:
    """LZ4 frames, unpacked into memory that the next one overwrites."""

    def __init__(self, unpack: Callable[..., int]) -> None:
        self._unpack = unpack
        self._buffer = np.empty(USUAL_PACKET, np.uint8)

    def __call__(self, data: bytes) -> memoryview:
        source = np.frombuffer(data, np.uint8)
        size = LACKS_ROOM
        while size == LACKS_ROOM:
            buffer = self._buffer
            size = self._unpack(source.ctypes.data, len(source), buffer.ctypes.data, len(buffer))
            if size == LACKS_ROOM and len(buffer) > LARGEST_PACKET:
                raise _TableError(f"a packet above {LARGEST_PACKET} bytes")
            if size == LACKS_ROOM:
                self._buffer = np.empty(min(2 * len(buffer), LARGEST_PACKET + 1), np.uint8)
        if size < 0:
            raise _TableError("no LZ4 frame, or a damaged one")
        return memoryview(buffer)[:size]  # type: ignore[arg-type]


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
    # Compressed.
    smallest=4,
)
