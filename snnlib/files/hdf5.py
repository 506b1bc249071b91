"""HDF5 files through h5py: opened without links to other files, data sets checked before they are read.

What links to other files, or has external or virtual storage, is refused, since a hostile file could give the bytes of
any other as its own.
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snnlib.checks import import_extra

# Errors that h5py raises for damaged files.
DAMAGED = (AttributeError, KeyError, MemoryError, OSError, OverflowError, RuntimeError, TypeError, ValueError)
# Filters by their registered number: those of the package hdf5plugin, and Prophesee's.
_PLUGINS = {
    **{
        307: "bzip2",
        32001: "blosc",
        32004: "lz4",
        32008: "bitshuffle",
        32013: "zfp",
        32015: "zstd",
        32017: "sz",
    },
    **{32018: "fcidecomp", 32024: "sz3", 32026: "blosc2", 32028: "sperr"},
}
_ECF = 0x8ECF
# Deflate, the strongest of the usual filters, makes one byte of at most 1032.
_LARGEST_RATIO = 1032


class StorageError(ValueError):
    """Data of an HDF5 file that lie in another file."""


def open_file(source: Any) -> Any:
    """Opens an HDF5 file without links to other files, from a path or an open binary file.

    Raises:
        ImportError: the package h5py is missing.
        StorageError: a link to another file.
        OSError, RuntimeError: the file is damaged.
    """
    h5py = import_h5py()
    file = h5py.File(source, "r")
    try:
        # h5py loses errors of the function that it calls; a value ends the walk.
        found = file.visititems_links(
            lambda name, link: (name, link.filename) if isinstance(link, h5py.ExternalLink) else None
        )
        if found is not None:
            raise StorageError(
                f"/{found[0]}: expected data within the file, found a link to the file {found[1]!r}"
            )
    except BaseException:
        file.close()
        raise
    return file


def import_h5py() -> Any:
    """The package h5py, or an ImportError that says how to install it."""
    return import_extra("h5py", "formats", "HDF5 files")


def check_dataset(dataset: Any, size: int) -> None:
    """Raises unless the bytes of a data set are in its file, of this size, and can be unpacked.

    Raises:
        StorageError: external or virtual storage.
        ValueError: more bytes than the file can hold.
        ImportError: a filter is missing; says which, and what has it.
    """
    if dataset.external or dataset.is_virtual:
        kind = "external" if dataset.external else "virtual"
        raise StorageError(f"{dataset.name}: expected data within the file, found {kind} storage")
    if dataset.nbytes > _LARGEST_RATIO * size:
        raise ValueError(f"{dataset.name}: {dataset.nbytes} bytes in a file of {size}")
    filters = dataset.id.get_create_plist()
    for place in range(filters.get_nfilters()):
        number, name = filters.get_filter(place)[::3]
        if _is_available(number) or not dataset.id.get_num_chunks():
            continue
        # A chunk says which filters were left out when it was written.
        if not dataset.id.get_chunk_info(0).filter_mask >> place & 1:
            path = "" if dataset.file.driver == "fileobj" else f"{dataset.file.filename}: "
            raise ImportError(f"{path}{dataset.name}: {_missing_filter(number, name)}")


def _is_available(number: int) -> bool:
    available: Callable[[int], bool] = import_h5py().h5z.filter_avail
    if not available(number) and number in _PLUGINS:
        with suppress(ImportError):
            # The package registers its filters when it is imported.
            importlib.import_module("hdf5plugin")
    return available(number)


def _missing_filter(number: int, name: bytes) -> str:
    known, where = name.decode("latin-1") or "unknown", "whoever wrote the file"
    if number == _ECF:
        known, where = "ECF", "github.com/prophesee-ai/hdf5_ecf"
    text = f"the HDF5 filter {number} ({_PLUGINS.get(number, known)}), by which the data are packed, is not installed: "
    if number in _PLUGINS:
        return f"{text}pip install hdf5plugin"
    return f"{text}get it from {where} and set HDF5_PLUGIN_PATH to its folder"


def read_element(dataset: Any, index: int, size: int) -> NDArray[Any]:
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
