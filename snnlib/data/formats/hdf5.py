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

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.columns import OPTIONS, ORDER, check_lengths, check_order, find_columns, put_columns
from snnlib.data.formats.event_file import CHUNK, EventFile, EventFileError, check_regular
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.sources import FilePerProcess
from snnlib.files.hdf5 import StorageError, check_dataset, import_h5py, open_file

MAGIC = b"\x89HDF\r\n\x1a\n"
V2E_ORDER = "txyp"
PLACES = ("", "events", "CD", "prophesee/left", "cd", "event")
# A superblock may stand behind bytes of another program, such as MATLAB's 512.
_SUPERBLOCKS = (0, 512, 1024, 2048)


def shared_file(path: Path) -> FilePerProcess:
    """An HDF5 file for all processes; ImportError where the package h5py is missing, EventFileError for a pointer."""
    check_regular(path)
    return FilePerProcess(path, _opened)


def _opened(path: Path) -> Any:
    return open_file(path)


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
        # A part of a microsecond counts in a file that has times in seconds.
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
