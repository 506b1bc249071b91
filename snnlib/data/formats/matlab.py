"""MATLAB files up to version 7 with one variable per column (t or ts, x, y, p or pol), read through scipy.

Often rows and columns count from 1 (`one_based=True`) and polarities are -1 and +1 (`polarity="signed"`) or 1 and 2
(`polarity="12"`). Files of version 7.3 are HDF5 files and are read as such.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Array, EventFile, EventFileError, Format, Header, Room
from snnlib.data.formats.columns import OPTIONS, find_columns, put_columns

MAGIC = b"MATLAB 5.0 MAT-file"
HEADER_BYTES = 128
# Element types.
MATRIX, COMPRESSED = 14, 15


def load_variables(file: EventFile, names: list[str] | None = None) -> dict[str, Array]:
    """The variables of a MATLAB file that are arrays of numbers.

    Raises:
        ImportError: scipy is missing.
        EventFileError: the file is damaged.
    """
    try:
        from scipy.io import loadmat  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("MATLAB files need the package scipy: pip install 'snnlib[formats]'") from error
    if not file.peek(len(MAGIC)).startswith(MAGIC):
        raise file.error(f"expected {MAGIC.decode()}, found {file.peek(19)!r}", 0)
    _check_sizes(file)
    try:
        found = loadmat(file.opened(), variable_names=names)
    except EventFileError:
        raise
    except Exception as error:
        # scipy's reader raises whatever its parts raise.
        raise file.error(
            f"expected a whole MATLAB file, found a damaged one ({type(error).__name__}: {error})", 0
        ) from (error)
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iufb" and not name.startswith("__")
    }


def _check_sizes(file: EventFile) -> None:
    """Raise where an element says it is larger than the file: scipy would reserve that memory first."""
    head = file.peek(HEADER_BYTES)
    order: Literal["little", "big"] = "big" if head[126:128] == b"MI" else "little"
    file.seek(HEADER_BYTES)
    while len(tag := file.read(8)) == 8:
        kind, size = int.from_bytes(tag[:4], order), int.from_bytes(tag[4:], order)
        if size > file.left or kind >> 16:
            raise file.error(
                f"truncated: expected an element of {size} bytes, found {file.left}", file.tell() - 8
            )
        data = file.read(size)
        if kind == COMPRESSED:
            try:
                # Deflate cannot exceed 1032 to 1, so this is bounded by the file.
                data = zlib.decompress(data)
            except zlib.error as error:
                raise file.error(
                    f"expected compressed data, found damaged ones ({error})", file.tell() - size
                ) from None
            kind, size = int.from_bytes(data[:4], order), int.from_bytes(data[4:8], order)
            data = data[8:]
            if size > len(data):
                raise file.error(f"truncated: expected an element of {size} bytes, found {len(data)}")
        if kind == MATRIX:
            _check_matrix(data, order, file, 0)
    file.seek(0)


def _check_matrix(data: bytes, order: Literal["little", "big"], file: EventFile, depth: int) -> None:
    """Check the parts of a matrix: flags, dimensions, name, values or further matrices."""
    place = number = 0
    while place + 8 <= len(data):
        kind, size = (
            int.from_bytes(data[place : place + 4], order),
            int.from_bytes(data[place + 4 : place + 8], order),
        )
        begin = place + 8
        if kind >> 16:
            # A small element: size and type share a word, the data follow in the next.
            kind, size, begin = kind & 0xFFFF, kind >> 16, place + 4
        if size > len(data) - begin or depth > 8:
            raise file.error(f"expected a part of at most {len(data) - begin} bytes, found one of {size}")
        part = data[begin : begin + size]
        if number == 1:
            cells = 1
            for at in range(0, len(part) - 3, 4):
                cells *= int.from_bytes(part[at : at + 4], order)
            if cells > 8 * len(data):
                raise file.error(
                    f"expected an array no larger than its {len(data)} bytes, found {cells} cells"
                )
        if kind == MATRIX:
            _check_matrix(part, order, file, depth + 1)
        place = begin + (4 if begin == place + 4 else -(-size // 8) * 8)
        number += 1


def decode(file: EventFile, room: Room, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read all four columns."""
    variables = load_variables(file)
    found = find_columns(list(variables))
    if found is None:
        raise file.error(f"expected variables named t, x, y, p, found {', '.join(variables) or 'none'}", 0)
    columns = {field: variables[name].ravel() for field, name in found.items()}
    lengths = {field: len(column) for field, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise file.error(f"expected columns of one length, found {lengths}", 0)
    return Header("mat"), (put_columns(columns, options, room, file, "variables") for _ in range(1))


FORMAT = Format(
    "mat",
    "MATLAB",
    (".mat",),
    lambda head: head.startswith(MAGIC),
    decode,
    options=OPTIONS,
    clock="recording",
    smallest=8,
)
