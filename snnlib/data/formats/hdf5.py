"""HDF5 event arrays, read through h5py.

A group (`events`, `CD`, `prophesee/left`, the file itself, or `group=`) holds one-dimensional data sets t, x, y and p
(or their usual spellings), or a data set with those fields. DSEC's `t_offset` is added to the times.

Files of the SHD family hold many recordings of a cochlea, not events of a camera; `snnlib.data.SHD` reads them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from snnlib.checks import import_extra
from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.columns import OPTIONS, check_lengths, find_columns, put_columns
from snnlib.data.formats.event_file import CHUNK, Array, EventFile, EventFileError
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.sources import FilePerProcess

MAGIC = b"\x89HDF\r\n\x1a\n"
PLACES = ("", "events", "CD", "prophesee/left", "cd", "event")
# What h5py raises for damaged files.
DAMAGED = (AttributeError, KeyError, MemoryError, OSError, OverflowError, RuntimeError, TypeError, ValueError)
# Deflate, the strongest of the usual filters, makes one byte of at most 1032.
_LARGEST_RATIO = 1032


def shared_file(path: Path) -> FilePerProcess:
    """An HDF5 file for all processes; ImportError where the package h5py is missing."""
    return FilePerProcess(path, _opened)


def _opened(path: Path) -> Any:
    return import_h5py().File(path, "r")


def import_h5py() -> Any:
    """The package h5py, or an ImportError that says how to install it."""
    return import_extra("h5py", "formats", "HDF5 files")


def check_size(dataset: Any, size: int) -> None:
    """Raise ValueError where a data set claims more bytes than a file of this size can hold."""
    if dataset.nbytes > _LARGEST_RATIO * size:
        raise ValueError(f"{dataset.name}: {dataset.nbytes} bytes in a file of {size}")


def read_element(dataset: Any, index: int, size: int) -> Array:
    """An element of variable length `[n]`, or the bytes of a text, read without the HDF5 library where it lies plainly.

    In damaged files the library takes memory for any length that is claimed, and may walk through a heap without end.

    Raises:
        ValueError: what is stored is damaged, in a file of this size.

    Source: HDF Group, "HDF5 File Format Specification Version 3.0", sections III.E (global heap) and IV.A.2.d.
    """
    of_text = import_h5py().check_string_dtype(dataset.dtype) is not None
    base = np.dtype("S1") if of_text else import_h5py().check_vlen_dtype(dataset.dtype)
    if (reference := _reference(dataset, index, base)) is None:
        return np.asarray(dataset[index if dataset.shape else ()])
    count, heap, number = struct.unpack("<IQI", reference)
    if count == 0:
        return np.empty(0, base)
    handle, wanted = dataset.file.id.get_vfd_handle(), count * base.itemsize
    head = os.pread(handle, 16, heap) if heap < size else b""
    end = heap + int.from_bytes(head[8:], "little")
    if head[:5] != b"GCOL\x01" or end > size:
        raise ValueError(f"{dataset.name}: no heap at byte {heap} of {size}")
    place = heap + 16
    while place + 16 <= end:
        found, length = struct.unpack("<H6xQ", os.pread(handle, 16, place))
        place += 16
        if found == number and wanted <= length <= end - place:
            return np.frombuffer(os.pread(handle, wanted, place), base)
        if found in (0, number):
            break
        place += -(-length // 8) * 8
    raise ValueError(f"{dataset.name}: no element of {wanted} bytes in the heap at byte {heap}")


def _reference(dataset: Any, index: int, base: Any) -> bytes | None:
    """Length, heap and number of an element, 16 bytes; None where filters or other types hide them."""
    place, width = dataset.id, 16
    stored = place.get_type()
    plain = import_h5py().h5t.py_create(base, logical=True)
    # A text's type has the size of a pointer in memory.
    if base.kind != "S" and (stored.get_size() != width or not stored.get_super().equal(plain)):
        return None
    if dataset.chunks is None:
        offset = place.get_offset()
        data = (
            b""
            if offset is None
            else os.pread(dataset.file.id.get_vfd_handle(), width, offset + width * index)
        )
    elif place.get_create_plist().get_nfilters():
        return None
    else:
        first = index // dataset.chunks[0] * dataset.chunks[0]
        data = place.read_direct_chunk((first,))[1][width * (index - first) :][:width]
    return data if len(data) == width else None


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Find the columns; events come by chunks."""
    h5py = import_h5py()
    try:
        root = h5py.File(file.opened(), "r")
        columns = _find(root, options.get("group"), file)
        offset = root["t_offset"][()].item() if isinstance(root.get("t_offset"), h5py.Dataset) else 0
        # Of a file that has times in seconds, a part of one counts.
        offset = int(offset) if float(offset).is_integer() else float(offset)
        check_lengths(columns, file)
        for column in columns.values():
            check_size(column, file.size)
    except EventFileError:
        raise
    except Exception as error:
        # h5py raises OSError, KeyError, RuntimeError and others for damaged files.
        raise file.error(f"expected a whole HDF5 file, found a damaged one ({error})", 0) from error
    return Header("hdf5", fields={"t_offset": str(offset)}), _chunks(
        root, columns, offset, file, sink, options
    )


def _find(root: Any, group: str | None, file: EventFile) -> dict[str, Any]:
    if group is not None and group not in root:
        raise file.error(f"expected a group {group!r}, found {', '.join(root)}", 0)
    for place in PLACES if group is None else (group,):
        node = root if place == "" else root.get(place)
        if node is None:
            continue
        if getattr(node, "dtype", None) is not None:
            if node.dtype.names and (found := find_columns(node.dtype.names)):
                return {field: _Field(node, name) for field, name in found.items()}
            continue
        names = [name for name in node if getattr(node[name], "dtype", None) is not None]
        if found := find_columns(names):
            return {field: node[name] for field, name in found.items()}
        structured = [node[name] for name in names if node[name].dtype.names]
        if len(structured) == 1 and (found := find_columns(structured[0].dtype.names)):
            return {field: _Field(structured[0], name) for field, name in found.items()}
    if "spikes" in root:
        raise file.error(
            "expected events of a camera, found spikes of many recordings (snnlib.data.SHD reads them)", 0
        )
    raise file.error(f"expected data sets t, x, y, p; found {', '.join(root) or 'nothing'}; give group=", 0)


class _Field:
    """One field of a structured data set, sliced like a data set of its own."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset, self.field, self.name = dataset, name, dataset.name
        self.shape = dataset.shape
        # Of all fields, which are read together.
        self.nbytes = dataset.nbytes

    def __getitem__(self, part: slice) -> Any:
        return self.dataset[part][self.field]


def _chunks(
    root: Any,
    columns: dict[str, Any],
    offset: float,
    file: EventFile,
    sink: EventSink,
    options: dict[str, Any],
) -> Iterator[Events]:
    with root:
        for at in range(0, int(columns["t"].shape[0]), CHUNK):
            try:
                part = {field: np.asarray(column[at : at + CHUNK]) for field, column in columns.items()}
            except Exception as error:
                raise file.error(
                    f"rows from {at}: expected readable data, found damaged ones ({error})", 0
                ) from error
            if offset:
                floats = part["t"].dtype.kind == "f" or isinstance(offset, float)
                part["t"] = part["t"].astype(np.float64 if floats else np.int64) + offset
            yield put_columns(part, options, sink, file, f"rows from {at}")


FORMAT = Format(
    "hdf5",
    "HDF5 event arrays",
    (".h5", ".hdf5"),
    lambda head: head.startswith(MAGIC),
    decode,
    options={"group": "the group that holds the columns", **OPTIONS},
    clock="camera",
    smallest=8,
)
