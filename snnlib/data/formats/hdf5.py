"""HDF5 event arrays, read through h5py.

A group (`events`, `CD`, `prophesee/left`, the file itself, or `group=`) holds data sets t, x, y and p (or their usual
spellings) of one dimension, or of one row or column as MATLAB 7.3 writes them; or a data set with those fields, or with
four columns in the order `columns=`. A data set `events` of uint32 `[E, 4]` is v2e's, in the order t, x, y, p. DSEC's
`t_offset` is added to the times.

All data must lie in the file: what links to other files, or has external or virtual storage, is refused, since a
hostile file could give the bytes of any other as its own.

Files of the SHD family hold many recordings of a cochlea, not events of a camera; `snnlib.data.SHD` reads them.
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from snnlib.checks import import_extra
from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.columns import OPTIONS, ORDER, check_lengths, check_order, find_columns, put_columns
from snnlib.data.formats.event_file import CHUNK, Array, EventFile, EventFileError
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.sources import FilePerProcess

MAGIC = b"\x89HDF\r\n\x1a\n"
V2E_ORDER = "txyp"
PLACES = ("", "events", "CD", "prophesee/left", "cd", "event")
# What h5py raises for damaged files.
DAMAGED = (AttributeError, KeyError, MemoryError, OSError, OverflowError, RuntimeError, TypeError, ValueError)
# A superblock may stand behind bytes of another program, such as MATLAB's 512.
_SUPERBLOCKS = (0, 512, 1024, 2048)
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


def shared_file(path: Path) -> FilePerProcess:
    """An HDF5 file for all processes; ImportError where the package h5py is missing."""
    return FilePerProcess(path, _opened)


def _opened(path: Path) -> Any:
    return open_file(path)


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
        root = open_file(file.opened())
        columns = _find(root, options.get("group"), options.get("columns"), file)
        offset: float = 0
        if isinstance(data := root.get("t_offset"), h5py.Dataset):
            check_dataset(data, file.size)
            offset = data[()].item()
        # Of a file that has times in seconds, a part of one counts.
        offset = int(offset) if float(offset).is_integer() else float(offset)
        check_lengths(columns, file)
        for column in columns.values():
            check_dataset(column.dataset, file.size)
    except EventFileError:
        raise
    except ImportError as error:
        raise ImportError(f"{file.name}: {error}") from error
    except StorageError as error:
        raise file.error(str(error), 0) from error
    except Exception as error:
        # h5py raises OSError, KeyError, RuntimeError and others for damaged files.
        raise file.error(f"expected a whole HDF5 file, found a damaged one ({error})", 0) from error
    return Header("hdf5", fields={"t_offset": str(offset)}), _chunks(
        root, columns, offset, file, sink, options
    )


class _Column:
    """A column of events: a data set `[E]`, or a part of one with several axes.

    Args:
        dataset: the data set.
        rows: how many there are.
        take: the values of some rows.
    """

    def __init__(self, dataset: Any, rows: int, take: Callable[[slice], Any]) -> None:
        self.dataset, self.shape, self.take = dataset, (rows,), take


def _find(root: Any, group: str | None, order: str | None, file: EventFile) -> dict[str, _Column]:
    """Returns the columns of the group, or of the first of the usual ones that has them."""
    if group is not None and group not in root:
        raise file.error(f"expected a group {group!r}, found {', '.join(root)}", 0)
    for place in PLACES if group is None else (group,):
        node = root if place == "" else root.get(place)
        if node is not None and (found := _columns(node, order, file)):
            return found
    if "spikes" in root:
        raise file.error(
            "expected events of a camera, found spikes of many recordings (snnlib.data.SHD reads them)", 0
        )
    names: list[str] = []
    root.visit(names.append)
    places = [name for name in names if _columns(root[name], order, file)]
    tables = [name for name in names if getattr(root[name], "ndim", 0) == 2 and root[name].shape[1] >= 4]
    hint = ""
    if places:
        hint = f"; give group= ({', '.join(places[:5])})"
    elif tables and order is None:
        hint = f"; give columns= ({ORDER}) and group= ({', '.join(tables[:5])})"
    raise file.error(f"expected data sets t, x, y, p, found {', '.join(root) or 'nothing'}{hint}", 0)


def _columns(node: Any, order: str | None, file: EventFile) -> dict[str, _Column] | None:
    """Returns the columns of a data set, or of the data sets in a group; None where these are no events."""
    if getattr(node, "dtype", None) is not None:
        return _parts(node, order, file)
    datasets = {name: node[name] for name in node if getattr(node[name], "dtype", None) is not None}
    if found := find_columns(list(datasets)):
        return {field: _whole(datasets[name], file) for field, name in found.items()}
    parts = [part for dataset in datasets.values() if (part := _parts(dataset, order, file))]
    return parts[0] if len(parts) == 1 else None


def _parts(dataset: Any, order: str | None, file: EventFile) -> dict[str, _Column] | None:
    """Returns the columns of a data set of fields, or of one `[E, columns]` whose order is known."""
    rows = dataset.shape[0] if dataset.shape else 0
    if dataset.dtype.names and (names := find_columns(dataset.dtype.names)):
        return {field: _Column(dataset, rows, partial(_take, dataset, name)) for field, name in names.items()}
    if dataset.name == "/events" and dataset.dtype == np.uint32 and dataset.shape[1:] == (4,):
        order = order or V2E_ORDER
    # Other data sets than the one of events may lie beside it.
    if order is None or dataset.ndim != 2 or dataset.shape[1] < len(order):
        return None
    places = check_order(order, dataset.shape[1], file)
    return {field: _Column(dataset, rows, partial(_take, dataset, place)) for field, place in places.items()}


def _take(dataset: Any, place: str | int, part: slice) -> Any:
    return dataset[part][place] if isinstance(place, str) else dataset[part, place]


def _whole(dataset: Any, file: EventFile) -> _Column:
    """Returns a data set `[E]`, `[1, E]` or `[E, 1]` as a column."""
    if dataset.ndim == 2 and dataset.shape[0] == 1:
        return _Column(dataset, dataset.shape[1], lambda part: dataset[0, part])
    if dataset.ndim == 2 and dataset.shape[1] == 1:
        return _Column(dataset, dataset.shape[0], lambda part: dataset[part, 0])
    if dataset.ndim != 1:
        raise file.error(f"expected columns of one dimension, found {dataset.name} {dataset.shape}", 0)
    return _Column(dataset, dataset.shape[0], dataset.__getitem__)


def _chunks(
    root: Any,
    columns: dict[str, _Column],
    offset: float,
    file: EventFile,
    sink: EventSink,
    options: dict[str, Any],
) -> Iterator[Events]:
    with root:
        for at in range(0, int(columns["t"].shape[0]), CHUNK):
            try:
                part = {
                    field: np.asarray(column.take(slice(at, at + CHUNK))) for field, column in columns.items()
                }
            except Exception as error:
                raise file.error(
                    f"rows from {at}: expected readable data, found damaged ones ({error})", 0
                ) from error
            # Times of another type are refused with the columns.
            if offset and part["t"].dtype.kind in "iuf":
                floats = part["t"].dtype.kind == "f" or isinstance(offset, float)
                part["t"] = part["t"].astype(np.float64 if floats else np.int64) + offset
            yield put_columns(part, options, sink, file, f"rows from {at}")


FORMAT = Format(
    "hdf5",
    "HDF5 event arrays",
    (".h5", ".hdf5"),
    lambda head: any(head.startswith(MAGIC, place) for place in _SUPERBLOCKS),
    decode,
    options={"group": "the group or data set that holds the columns", "columns": ORDER, **OPTIONS},
    clock="camera",
    smallest=8,
)
