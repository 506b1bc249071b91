"""MATLAB files of version 5 to 7: arrays of numbers, one variable per column of events (t or ts, x, y, p or pol).

After a header of 128 bytes come elements, each a type and a size (uint32) and its data, padded to 8 bytes; a small
element has both in one word and its data in the next. A matrix (14) holds elements itself: flags with its class,
dimensions, name, values. A compressed element (15) holds another one, deflated. Values may be stored in a smaller type
than the matrix's class. A struct (class 2) of one element holds, in place of values, the length of a field's name, the
names, and a matrix without a name for each. Matrices of other things than real numbers are passed over.

Often rows and columns count from 1 (`one_based=True`) and polarities are -1 and +1 (`polarity="signed"`) or 1 and 2
(`polarity="12"`). Files of version 7.3 are HDF5 files and are read as such.

Source: MathWorks, "MAT-File Format", version 5.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.columns import OPTIONS, check_lengths, find_columns, put_in_chunks
from snnlib.data.formats.event_file import Array, EventFile
from snnlib.data.formats.event_sink import EventSink, Header

MAGIC = b"MATLAB 5.0 MAT-file"
HEADER_BYTES = 128
MATRIX, COMPRESSED = 14, 15
# NumPy types of stored values by element type, and of matrices by class.
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
COMPLEX, STRUCT = 0x800, 2
# Structs in structs: more are a hostile file.
MOST_NESTED = 8
# As many as NumPy has.
MOST_DIMENSIONS = 32

Order = Literal["little", "big"]


def load_variables(file: EventFile, names: list[str] | None = None) -> dict[str, Array]:
    """The variables of a MATLAB file that are arrays of real numbers, or those of them in `names`.

    Fields of a struct are `"struct.field"`.

    Raises:
        EventFileError: the file is damaged.
    """
    found = _load(file, names)
    return {name: value for name, value in found.items() if value is not None}


def _load(file: EventFile, names: list[str] | None = None) -> dict[str, Array | None]:
    """Variables and fields by their name; None for other things than real numbers."""
    head = file.read(HEADER_BYTES)
    if not head.startswith(MAGIC) or len(head) < HEADER_BYTES or head[126:] not in (b"IM", b"MI"):
        raise file.error(
            f"expected {MAGIC.decode()} and {HEADER_BYTES} bytes of header, found {head[:19]!r}", 0
        )
    order: Order = "big" if head[126:] == b"MI" else "little"
    variables: dict[str, Array | None] = {}
    while file.left:
        place = file.tell()
        tag = file.read(8)
        kind, size = _word(tag, 0, order), _word(tag, 4, order)
        if len(tag) < 8 or size > file.left:
            raise file.error(f"truncated: expected an element of {size} bytes, found {file.left}", place)
        data = file.read(size)
        if kind == COMPRESSED:
            try:
                # Deflate cannot exceed 1032 to 1: memory is bounded by the file.
                data = zlib.decompress(data)
            except zlib.error as error:
                raise file.error(f"expected deflated data, found damaged ones ({error})", place) from None
            kind, size, data = _word(data, 0, order), _word(data, 4, order), data[8:]
            if size > len(data):
                raise file.error(f"truncated: expected an element of {size} bytes, found {len(data)}", place)
        if kind == MATRIX:
            try:
                found = _matrix(data[:size], order)
            except ValueError as error:
                raise file.error(f"expected a matrix, found a damaged one ({error})", place) from None
            variables |= {name: value for name, value in found.items() if names is None or name in names}
    return variables


def _word(data: bytes, place: int, order: Order) -> int:
    return int.from_bytes(data[place : place + 4], order)


def _elements(data: bytes, order: Order) -> Iterator[tuple[int, bytes]]:
    """Type and content of the elements in a matrix."""
    place = 0
    while place + 8 <= len(data):
        kind, size, begin = _word(data, place, order), _word(data, place + 4, order), place + 8
        if kind >> 16:
            kind, size, begin = kind & 0xFFFF, kind >> 16, place + 4
            end = begin + 4
        else:
            end = begin + -(-size // 8) * 8
        if begin + size > len(data) or (begin == place + 4 and size > 4):
            raise ValueError(f"an element of {size} bytes in {len(data) - begin}")
        yield kind, data[begin : begin + size]
        place = end


def _matrix(data: bytes, order: Order, struct: str = "") -> dict[str, Array | None]:
    """Values of a matrix of real numbers by its name, or of a struct's fields by theirs; None for other values."""
    elements = _elements(data, order)
    parts = list(islice(elements, 4))
    if len(parts) < 3 or len(parts[0][1]) < 4:
        raise ValueError("flags, dimensions or name are missing")
    flags = _word(parts[0][1], 0, order)
    mark = ">" if order == "big" else "<"
    shape = [int(extent) for extent in np.frombuffer(parts[1][1][: len(parts[1][1]) // 4 * 4], f"{mark}i4")]
    name = struct or parts[2][1].decode("latin-1")
    if flags & 0xFF == STRUCT and shape == [1, 1] and len(parts) == 4 and name.count(".") < MOST_NESTED:
        return _struct(name, _word(parts[3][1], 0, order), elements, order)
    if flags & 0xFF not in CLASSES or flags & COMPLEX:
        return {name: None}
    kind, values = parts[3] if len(parts) == 4 else (2, b"")
    if kind not in STORED or not 1 <= len(shape) <= MOST_DIMENSIONS or min(shape) < 0:
        raise ValueError(f"values of type {kind} and shape {shape}")
    stored = np.dtype(mark + STORED[kind])
    if math.prod(shape) * stored.itemsize != len(values):
        raise ValueError(f"shape {shape} with {len(values)} bytes")
    array = np.frombuffer(values, stored).reshape(shape, order="F")
    with np.errstate(invalid="ignore"):
        # A damaged file may store numbers that its class cannot hold.
        return {name: array.astype(CLASSES[flags & 0xFF])}


def _struct(
    name: str, width: int, elements: Iterator[tuple[int, bytes]], order: Order
) -> dict[str, Array | None]:
    """Fields of a struct, by `name.field`."""
    _, names = next(elements, (0, b""))
    fields: dict[str, Array | None] = {}
    for at, (kind, data) in zip(range(0, len(names), max(width, 1)), elements, strict=False):
        field = names[at : at + width].partition(b"\0")[0].decode("latin-1")
        # An empty field has no bytes at all.
        fields |= _matrix(data, order, f"{name}.{field}") if kind == MATRIX and data else {}
    return fields


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read all four columns."""
    variables = _load(file)
    groups: dict[str, dict[str, Array]] = {}
    for name, value in variables.items():
        if value is not None:
            group, _, field = name.rpartition(".")
            groups.setdefault(group, {})[field] = value.ravel()
    whole = {group: found for group, fields in groups.items() if (found := find_columns(list(fields)))}
    chosen = options.get("group", next(iter(whole)) if len(whole) == 1 else "")
    if chosen not in whole:
        named = ", ".join(name + " (not real numbers)" * (value is None) for name, value in variables.items())
        hint = f"; give group= ({', '.join(whole)})" if whole else ""
        raise file.error(f"expected variables named t, x, y, p, found {named or 'none'}{hint}", 0)
    columns = {field: groups[chosen][name] for field, name in whole[chosen].items()}
    check_lengths(columns, file)
    return Header("mat"), put_in_chunks(columns, options, sink, file)


FORMAT = Format(
    "mat",
    "MATLAB",
    (".mat",),
    lambda head: head.startswith(MAGIC),
    decode,
    options={"group": "the struct whose fields are the columns", **OPTIONS},
    clock="recording",
    smallest=8,
)
