"""Events as text: one event per line, columns parted by commas, semicolons, tabs or spaces.

A first line of names (t, x, y, p and their usual spellings) says which column is which; without it `columns=` does,
for example `"txyp"`. A first line of two whole numbers before lines of four is the sensor's width and height. Lines
that begin with `#` or `%` are comments, but for `%geometry:1280,720`: Metavision's converter writes width and height
so, and then lines `x,y,p,t`.
"""

from __future__ import annotations

import warnings
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import LARGEST_SIDE, size_in_header, small_number
from snnlib.data.formats.columns import BOOLEANS, OPTIONS, ORDER, check_order, find_columns, put_columns
from snnlib.data.formats.event_file import CHUNK, LONGEST_LINE, Array, EventFile
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.formats.prophesee_header import detect_version

DELIMITERS = (",", ";", "\t")


METAVISION = "%geometry:"
METAVISION_ORDER = "xypt"


def detect(head: bytes) -> bool:
    """Returns whether text follows `%` lines. A DAT file goes on with a control character, an EVT file has its name."""
    lines = [line for line in head.splitlines() if not line.startswith(b"%")]
    first = lines[0] if head.startswith(b"%") and not detect_version(head) and lines else b"\0"
    geometry = head.replace(b" ", b"").lower().startswith(METAVISION.encode())
    return geometry or not any(byte < 0x20 and byte != 0x09 for byte in first)


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the first lines; events come by chunks."""
    header = Header("csv")
    if file.peek(len(BOM_UTF8)) == BOM_UTF8:
        file.read(len(BOM_UTF8))
    marks = file.text_header(b"%", lambda line: False)
    for line in marks:
        if line.replace(" ", "").lower().startswith(METAVISION):
            width, _, height = line.partition(":")[2].replace(" ", "").partition(",")
            header.sensor_size = size_in_header(file, width, height)
            options = {"columns": METAVISION_ORDER, **options}
    lines = _lines(file, len(marks))
    first = next(lines, None)
    if first is None:
        return header, iter(())
    number, line = first
    delimiter = next((mark for mark in DELIMITERS if mark in line), None)
    parts = [part.strip().strip("\"'") for part in line.split(delimiter)]
    sides = [small_number(part) or 0 for part in parts]
    if len(sides) == 2 and min(sides) > 0 and max(sides) <= LARGEST_SIDE:
        header.sensor_size = sides[1], sides[0]
        number, line = next(lines, (number, ""))
        delimiter = next((mark for mark in DELIMITERS if mark in line), None)
        parts = [part.strip().strip("\"'") for part in line.split(delimiter)]
    if any(part[:1].isalpha() and part.lower() not in BOOLEANS for part in parts):
        found = find_columns(parts)
        if found is None and "columns" not in options:
            raise file.error(
                f"line {number}: expected columns named t, x, y, p, found {', '.join(parts)[:200]}", 0
            )
        names = {field: parts.index(name) for field, name in found.items()} if found else {}
        order = names or check_order(options["columns"], len(parts), file)
        number, line = next(lines, (number, ""))
    elif "columns" in options:
        order = check_order(options["columns"], len(parts), file)
    else:
        raise file.error(
            f"line {number}: expected a line of names, found {line[:80]!r}; give columns= ({ORDER})", 0
        )
    return header, _chunks(file, sink, options, order, delimiter, lines, (number, line))


def _chunks(
    file: EventFile,
    sink: EventSink,
    options: dict[str, Any],
    order: dict[str, int],
    delimiter: str | None,
    lines: Iterator[tuple[int, str]],
    first: tuple[int, str],
) -> Iterator[Events]:
    waiting = [first] if first[1] else []
    while block := [*waiting, *islice(lines, CHUNK)]:
        waiting = []
        texts = [text for _, text in block]
        number = block[0][0]
        fields = texts[0].split(delimiter)
        time = fields[order["t"]] if order["t"] < len(fields) else ""
        columns = {}
        try:
            for field, index in order.items():
                read = partial(np.loadtxt, texts, comments=None, delimiter=delimiter, usecols=index, ndmin=1)
                if field == "t" and not set(time.lower()) & set(".en"):
                    columns[field] = _whole_or_float(read)
                else:
                    columns[field] = _numbers(read, named=field == "p")
        except (ValueError, IndexError, OverflowError) as error:
            raise file.error(
                f"lines from {number}: expected numbers in columns, found others ({error})", 0
            ) from None
        yield put_columns(columns, options, sink, file, f"lines from {number}")


def _whole_or_float(read: Callable[..., Array]) -> Array:
    """A column as integers, since floats hold no absolute nanoseconds; as floats where a later line has a fraction."""
    with warnings.catch_warnings():
        # Older NumPy cuts fractions off with this warning alone.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return read(dtype="i8")
        except (ValueError, DeprecationWarning):
            return read(dtype="f8")


def _numbers(read: Callable[..., Array], named: bool) -> Array:
    """A column as floats, where `named` of booleans by their names too."""
    try:
        return read(dtype="f8")
    except ValueError:
        if not named:
            raise
        return read(dtype="f8", encoding=None, converters=_boolean)


def _boolean(text: str) -> float:
    return float(BOOLEANS.get(text.strip().lower(), text))


def _lines(file: EventFile, number: int) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is no comment, behind so many lines."""
    while raw := file.opened().readline(LONGEST_LINE):
        number += 1
        if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            raise file.error(f"line {number}: expected at most {LONGEST_LINE} bytes")
        try:
            text = raw.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise file.error(f"line {number}: expected text, found other bytes") from None
        if text and not text.startswith(("#", "%")):
            yield number, text


FORMAT = Format(
    "csv",
    "text (CSV)",
    (".csv", ".txt", ".tsv"),
    detect,
    decode,
    options={"columns": ORDER, **OPTIONS},
    clock="recording",
    smallest=8,
)
