"""File with the events of many recordings, written once and mapped into memory by all readers.

    magic (8 bytes), offset of the index, its number of bytes, its CRC-32 (three uint64)
    a block per recording: flags (1 byte), first time (int64), then the columns
        t - first time: uint32, or with flag 1 int64;  x: uint8, or with flag 2 int16;  y: likewise with flag 4
        p: eight events a byte
    index: JSON; for each recording the block's offset, its number of events, its CRC-32 and its label

All little-endian. An event of N-MNIST takes 6.1 bytes, in memory 13.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from snnlib.data.events import EVENT_DTYPE, Events
from snnlib.data.formats.event_file import EventFileError, check_regular
from snnlib.files.atomic import whole_or_absent

# The last byte is the version: raise it with every change of the layout.
MAGIC = b"SNNEVT\0\1"
_HEAD = struct.Struct("<8s3Q")
_BLOCK = struct.Struct("<Bq")
# Usual dtype of each column, and the one that its flag says.
_COLUMNS = {"t": ("<u4", "<i8"), "x": ("<u1", "<i2"), "y": ("<u1", "<i2")}


def pack_events(events: Events) -> bytes:
    """The block of a recording."""
    first = int(events["t"].min()) if len(events) else 0
    flags, columns = 0, []
    for bit, (field, kinds) in enumerate(_COLUMNS.items()):
        column = events[field] - (first if field == "t" else 0)
        wide = bool(len(column)) and not 0 <= column.min() <= column.max() <= np.iinfo(kinds[0]).max
        flags |= wide << bit
        columns.append(column.astype(kinds[wide]).tobytes())
    return b"".join((_BLOCK.pack(flags, first), *columns, np.packbits(events["p"] != 0).tobytes()))


def unpack_events(block: npt.NDArray[np.uint8], count: int) -> Events:
    """The `count` events of a block that may go on behind them."""
    flags, first = _BLOCK.unpack_from(block.data)
    events, place = np.empty(count, EVENT_DTYPE), _BLOCK.size
    for bit, (field, kinds) in enumerate(_COLUMNS.items()):
        column = np.frombuffer(block, kinds[flags >> bit & 1], count, place)
        events[field] = column
        place += column.nbytes
    events["t"] += first
    events["p"] = np.unpackbits(block[place : place + (count + 7) // 8], count=count)
    return events


def write_packed(path: Path, recordings: Iterable[tuple[Events, int]], about: dict[str, Any]) -> None:
    """Write recordings and labels; `about` is kept as JSON. The file appears whole or not at all.

    Raises:
        OSError: the folder cannot be written, or the disk is full; an older file then stays as it was.
    """
    with whole_or_absent(path) as file:
        file.write(bytes(_HEAD.size))
        rows = []
        for events, label in recordings:
            block = pack_events(events)
            rows.append([file.tell(), len(events), zlib.crc32(block), label])
            file.write(block)
        index = json.dumps({"about": about, "recordings": rows}).encode()
        place = file.tell()
        file.write(index)
        file.seek(0)
        file.write(_HEAD.pack(MAGIC, place, len(index), zlib.crc32(index)))


class PackedEvents:
    """Recordings of a packed file, by number. Processes that open the file share its memory.

    Attributes:
        about: description that `write_packed` got.
        labels: labels of the recordings, int64 `[S]`.

    Raises:
        EventFileError: the file is missing or damaged.
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_regular(path)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size or head[:8] != MAGIC:
                raise EventFileError(f"{path}: expected packed events of this version, found {head[:8]!r}")
            _, place, length, crc = _HEAD.unpack(head)
            file.seek(min(place, size))
            index = file.read(min(length, size))
        # The checksum of no bytes is 0: zeros in the head agree with an index without content.
        if not index or len(index) != length or zlib.crc32(index) != crc:
            raise EventFileError(
                f"{path}: expected an index of {length} bytes at {place}, found a damaged one"
            )
        found = json.loads(index)
        self.about: dict[str, Any] = found["about"]
        rows = np.array(found["recordings"], np.int64).reshape(-1, 4)
        self._offsets, self._counts, self._crcs, self.labels = (
            np.ascontiguousarray(rows[:, k]) for k in range(4)
        )
        self._ends = np.append(self._offsets[1:], place)
        self._bytes: npt.NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Events:
        return unpack_events(self._block(index), int(self._counts[index]))

    def is_intact(self, index: int) -> bool:
        """Returns whether a recording's bytes are those that were written."""
        return zlib.crc32(self._block(index).data) == int(self._crcs[index])

    def _block(self, index: int) -> npt.NDArray[np.uint8]:
        if self._bytes is None:
            self._bytes = np.memmap(self.path, np.uint8, "r")
        return self._bytes[self._offsets[index] : self._ends[index]]

    def __getstate__(self) -> dict[str, Any]:
        # Pickled, the mapped memory would go as a copy.
        return {**self.__dict__, "_bytes": None}
