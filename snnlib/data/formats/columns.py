"""Events from named columns, for files whose columns, units and codes differ: NumPy, CSV, MATLAB, HDF5.

Nothing is guessed from values: names or an explicit order say which column is which, and `unit`, `polarity` and
`one_based` say what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from snnlib.data.events import Events, unsorted_events
from snnlib.data.formats.event_file import CHUNK, Array, EventFile
from snnlib.data.formats.event_sink import EventSink

NAMES = {
    "t": ("t", "ts", "time", "times", "timestamp", "timestamps"),
    "x": ("x", "xs"),
    "y": ("y", "ys"),
    "p": ("p", "ps", "pol", "polarity", "polarities", "on"),
}
BOOLEANS = {"true": 1, "false": 0}
LARGEST_TIME = 2**62
ORDER = "the columns in their order, one letter each of t, x, y, p; _ for one to leave out, like 'xypt'"
OPTIONS = {
    "unit": "of the times: us (default), ms, s, ns; to be given where they are floats",
    "polarity": "01 (default), signed (-1 and +1) or 12 (1 is OFF, 2 is ON)",
    "one_based": "whether the first row and column have number 1 (default False)",
}


def find_columns(names: Sequence[str]) -> dict[str, str] | None:
    """The names of t, x, y and p among `names`, in any case; None unless all four are there."""
    lower = {name.strip().lower(): name for name in reversed(names)}
    found = {field: next((lower[known] for known in NAMES[field] if known in lower), None) for field in NAMES}
    return (
        None if None in found.values() else {field: name for field, name in found.items() if name is not None}
    )


def check_order(order: str, width: int, file: EventFile) -> dict[str, int]:
    """Index of each field in the explicit order `order` of `width` columns."""
    letters = order.lower() if isinstance(order, str) else ""
    if sorted(letters.replace("_", "")) != ["p", "t", "x", "y"]:
        raise ValueError(f"columns: expected {ORDER}, got {order!r}")
    if width < len(letters):
        raise file.error(f"expected {len(letters)} columns ({order}), found {width}", 0)
    return {field: letters.index(field) for field in "txyp"}


def check_lengths(columns: Mapping[str, Any], file: EventFile) -> None:
    """Raise EventFileError unless all columns have one dimension and one length."""
    shapes = {field: column.shape for field, column in columns.items()}
    if len(set(shapes.values())) != 1 or len(shapes["t"]) != 1:
        raise file.error(f"expected columns of one length, found shapes {shapes}", 0)


def put_in_chunks(
    columns: Mapping[str, Any], options: Mapping[str, Any], sink: EventSink, file: EventFile
) -> Iterator[Events]:
    """Put whole columns into the sink, some rows at a time."""
    for at in range(0, len(columns["t"]), CHUNK):
        part = {field: column[at : at + CHUNK] for field, column in columns.items()}
        yield put_columns(part, options, sink, file, f"rows from {at}")


def put_columns(
    columns: Mapping[str, Array], options: Mapping[str, Any], sink: EventSink, file: EventFile, where: str
) -> Events:
    """Convert columns t, x, y, p `[E]` and put them into the sink."""
    given: dict[str, Array] = dict(columns)
    one_based = options.get("one_based", False)
    # "0" and "no", as a command line gives them, are true to Python.
    if not isinstance(one_based, bool):
        raise ValueError(f"one_based: expected True or False, got {one_based!r}")
    first = int(one_based)
    for field in "xyp":
        column = np.asarray(given[field])
        if column.dtype.kind == "f" and column.ndim == 1:
            whole = np.rint(column)
            bad = np.flatnonzero(~(np.abs(column) < 2**31) | (whole != column))
            if bad.size:
                raise file.error(
                    f"{where}: {field}: expected whole numbers, found {column[bad[0]]} at row {bad[0]}", 0
                )
            given[field] = whole.astype(np.int64)
        elif column.dtype.kind not in "iub":
            raise file.error(f"{where}: {field}: expected numbers, found dtype {column.dtype}", 0)
    if options.get("unit") == "us" and np.asarray(given["t"]).dtype.kind == "f":
        # Said, not assumed: unsorted_events takes floats in any other unit.
        given["t"] = _rounded(np.asarray(given["t"], np.float64), file, where)
    polarity = options.get("polarity", "01")
    if polarity == "12":
        given["p"], polarity = given["p"].astype(np.int64) - 1, "01"
    if first:
        given["x"], given["y"] = given["x"].astype(np.int64) - 1, given["y"].astype(np.int64) - 1
    try:
        # The sink has to see where time falls.
        events = unsorted_events(
            [given[field] for field in "txyp"], options.get("unit", "us"), polarity=polarity
        )
    except (TypeError, ValueError) as error:
        hint = "; one_based=True counts rows and columns from 1" if first == 0 and "x:" in str(error) else ""
        if "float times" in str(error):
            hint = ", or unit='us'"
        raise file.error(f"{where}: {error}{hint}", 0) from error
    # Differences of times must fit as well.
    low, high = (int(found(events["t"], initial=0)) for found in (np.min, np.max))
    if not -LARGEST_TIME <= low <= high < LARGEST_TIME:
        raise file.error(f"{where}: t: expected times within 2**62 us, got {low} to {high} us", 0)
    return sink.put(*(events[field].copy() for field in "txyp"))


def _rounded(times: Array, file: EventFile, where: str) -> Array:
    """Whole microseconds of times in microseconds."""
    bad = np.flatnonzero(~(np.abs(times) < LARGEST_TIME))
    if bad.size:
        raise file.error(
            f"{where}: t: expected times within 2**62 us, found {times.flat[bad[0]]} at row {bad[0]}", 0
        )
    return np.asarray(np.rint(times).astype(np.int64))
