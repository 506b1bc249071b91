"""NumPy event arrays: `.npy` with named fields or columns `[E, 4]`, `.npz` with one array per field.

Fields are found by their names (t, ts, timestamp; x; y; p, pol, polarity; ...). An array without names needs
`columns=`, for example `"xypt"`. Arrays of Python objects are refused: they could run any code.

Written are `.npy` files of dtype `EVENT_DTYPE`.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from snnlib.data.events import EVENT_DTYPE, Events, check_events
from snnlib.data.formats.base import Format
from snnlib.data.formats.columns import (
    NAMES,
    OPTIONS,
    ORDER,
    check_lengths,
    check_order,
    find_columns,
    put_columns,
    put_in_chunks,
)
from snnlib.data.formats.event_file import CHUNK, Array, EventFile, EventFileError
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.sources import DAMAGED_ZIP, zip_fault

MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"


def decode_npy(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the array's header; events come by chunks."""
    shape, dtype, fortran = _array_header(file.opened(), file, file.size)
    header = Header("npy")
    if fortran and len(shape) > 1:
        # Columns lie one after the other: read all.
        data = file.read(int(np.prod(shape)) * dtype.itemsize)
        array = np.frombuffer(data, dtype, int(np.prod(shape))).reshape(shape, order="F")
        return header, put_in_chunks(_fields(array, options, file), options, sink, file)
    return header, _chunks(file, sink, options, shape, dtype)


def _chunks(
    file: EventFile, sink: EventSink, options: dict[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[Events]:
    width = int(np.prod(shape[1:]))
    done = 0
    _fields(np.empty((0, *shape[1:]), dtype), options, file)
    while done < shape[0]:
        part = min(CHUNK, shape[0] - done)
        data = file.read(part * width * dtype.itemsize)
        array = np.frombuffer(data, dtype, part * width).reshape(part, *shape[1:])
        yield put_columns(_fields(array, options, file), options, sink, file, f"rows from {done}")
        done += part


def _array_header(
    stream: BinaryIO, file: EventFile, size: int
) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Shape, dtype and order of an array whose bytes are all there."""
    try:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(stream)
    except Exception as error:
        # The header is Python text; NumPy lets errors of its tokenizer through.
        raise file.error(f"expected a NumPy array, found a damaged header ({error})", 0) from None
    if dtype.hasobject:
        raise file.error("expected numbers, found an array of Python objects, which is never loaded", 0)
    if len(shape) not in (1, 2) or min(shape) < 0:
        raise file.error(f"expected an array [E] or [E, columns], found shape {shape}", 0)
    cells = math.prod(shape)
    left = size - stream.tell()
    if cells * dtype.itemsize > left or (dtype.itemsize == 0 and cells):
        raise file.error(
            f"truncated: expected {cells * dtype.itemsize} bytes of an array, found {left}", stream.tell()
        )
    return shape, dtype, fortran


def _fields(array: Array, options: dict[str, Any], file: EventFile) -> dict[str, Array]:
    """Columns t, x, y, p of a structured array, or of `[E, columns]` in the given order."""
    if array.dtype.names:
        found = find_columns(array.dtype.names)
        if found is None:
            raise file.error(f"expected fields named t, x, y, p, found {', '.join(array.dtype.names)}", 0)
        return {field: array[name] for field, name in found.items()}
    if array.ndim != 2:
        raise file.error(f"expected an array with fields or [E, columns], found shape {array.shape}", 0)
    if "columns" not in options:
        raise file.error(
            f"expected named fields, found {array.shape[1]} columns without names; give columns= ({ORDER})", 0
        )
    order = check_order(options["columns"], array.shape[1], file)
    return {field: array[:, index] for field, index in order.items()}


def decode_npz(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read all arrays of the archive that are needed."""
    try:
        with zipfile.ZipFile(file.opened()) as archive:
            members = {
                name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")
            }
            found = find_columns(list(members))
            if found is not None:
                columns = {field: _member(archive, members[name], file) for field, name in found.items()}
            elif len(members) == 1:
                columns = _fields(_member(archive, next(iter(members.values())), file), options, file)
            else:
                wanted = "; ".join(" or ".join(names[:3]) for names in NAMES.values())
                raise file.error(f"expected arrays {wanted}, found {', '.join(members) or 'none'}", 0)
    except EventFileError:
        raise
    except DAMAGED_ZIP as error:
        raise file.error(
            f"expected a whole .npz archive, found a damaged one ({zip_fault(error)})", 0
        ) from None
    check_lengths(columns, file)
    return Header("npz"), put_in_chunks(columns, options, sink, file)


def _member(archive: zipfile.ZipFile, name: str, file: EventFile) -> Array:
    with archive.open(name) as stream:
        # A zip member's declared size is a claim; deflate cannot exceed 1032 to 1.
        size = archive.getinfo(name).file_size
        if size > 1040 * file.size:
            raise file.error(
                f"expected arrays no larger than their archive explains, found {size} bytes in {name}", 0
            )
        buffer = io.BytesIO(stream.read(size))
    shape, dtype, fortran = _array_header(buffer, file, len(buffer.getbuffer()))
    array = np.frombuffer(buffer.getbuffer(), dtype, int(np.prod(shape)), buffer.tell())
    return array.reshape(shape, order="F" if fortran else "C")


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write events as they are."""
    check_events("events", events)
    buffer = io.BytesIO()
    plain = np.empty(len(events), EVENT_DTYPE)
    for name in ("t", "x", "y", "p"):
        plain[name] = events[name]
    np.save(buffer, plain, allow_pickle=False)
    return buffer.getvalue()


FORMAT = Format(
    "npy",
    "NumPy array",
    (".npy",),
    lambda head: head.startswith(MAGIC),
    decode_npy,
    encode,
    options={"columns": ORDER, **OPTIONS},
    clock="recording",
    smallest=13,
)
FORMAT_NPZ = Format(
    "npz",
    "NumPy archive",
    (".npz",),
    lambda head: head.startswith(ZIP_MAGIC),
    decode_npz,
    options={"columns": ORDER, **OPTIONS},
    clock="recording",
    smallest=13,
)
