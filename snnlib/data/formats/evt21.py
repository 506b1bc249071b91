"""Prophesee EVT 2.1: 64-bit words that hold up to 32 events of one row, time and polarity; type in bits 63..60.

    8 TIME_HIGH   bits 59..32 = t >> 6
    0 / 1 OFF/ON  bits 59..54 = t & 63, x = bits 53..43, y = bits 42..32; bit i of bits 31..0 = event at x + i
    0xA trigger, others: no pixel events, counted as skipped

Words are little-endian; files whose header says `endianness=legacy` store the upper 32 bits first.

Source: Prophesee, "EVT 2.1 format", Metavision documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import check_writable
from snnlib.data.formats.clock import Unwrapper
from snnlib.data.formats.compiled import find_decoder, word_chunks
from snnlib.data.formats.event_file import CHUNK, EventFile
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.formats.evt2 import HIGH_PERIOD, LARGEST, LOW_BITS, OTHER, TIME_HIGH, UNTIMED
from snnlib.data.formats.prophesee_header import detect_version, header_bytes, read_header


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the header; events come by chunks."""
    header = read_header(file, "evt21")
    legacy = header.fields.get("endianness") == "legacy"
    if (compiled := find_decoder("evt21")) is not None:
        return header, word_chunks(file, sink, compiled, 8, other=OTHER, untimed=UNTIMED, variant=legacy)
    return header, _chunks(file, sink, header, legacy)


def _chunks(file: EventFile, sink: EventSink, header: Header, legacy: bool) -> Iterator[Events]:
    unwrap = Unwrapper(HIGH_PERIOD)
    first, second = (0, 1) if legacy else (1, 0)
    high: int | None = None
    for words in file.words("<u4", 2, CHUNK // 8):
        upper, mask = words[:, first], np.ascontiguousarray(words[:, second])
        kind = upper >> 28
        is_time = kind == TIME_HIGH
        is_vector = kind < 2
        header.skip(OTHER, int((~is_time & ~is_vector).sum()))
        # Index of the TIME_HIGH word before each word; 0 is the one of earlier chunks.
        index = np.cumsum(is_time)
        times = np.empty(int(index[-1]) + 1, np.int64)
        times[0] = 0 if high is None else high
        times[1:] = unwrap(upper[is_time] & (HIGH_PERIOD - 1))
        if high is None:
            untimed = is_vector & (index == 0)
            header.skip(UNTIMED, int(np.unpackbits(mask[untimed].view(np.uint8)).sum()))
            is_vector &= index > 0
        if len(times) > 1 or high is not None:
            high = int(times[-1])
        vectors = upper[is_vector]
        bits = np.unpackbits(mask[is_vector].view(np.uint8), bitorder="little").reshape(-1, 32)
        row, bit = np.nonzero(bits)
        t = (times[index[is_vector]] << LOW_BITS) | (vectors >> 22 & 63)
        x, y, p = vectors >> 11 & 0x7FF, vectors & 0x7FF, vectors >> 28
        yield sink.put(t[row], x[row] + bit, y[row], p[row])


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write little-endian words, times below 2**34 microseconds.

    Events that follow each other share a word where time, row, polarity and the block of 32 columns are the same and x
    rises, so that their order is kept.
    """
    check_writable(events, header, 2**34, (LARGEST, LARGEST))
    t, x, y, p = (events[field].astype(np.int64) for field in ("t", "x", "y", "p"))
    block = x >> 5
    fresh = np.diff(x, prepend=2**20) <= 0
    for column in (t, y, p, block):
        fresh |= np.diff(column, prepend=-1) != 0
    first = np.flatnonzero(fresh)
    masks = np.bitwise_or.reduceat(1 << (x & 31), first) if len(first) else first
    high = t[first] >> LOW_BITS
    new_high = np.diff(high, prepend=-1) != 0
    place = np.arange(len(first)) + np.cumsum(new_high)
    words = np.zeros(len(first) + int(new_high.sum()), "<u8")
    words[place[new_high] - 1] = TIME_HIGH << 60 | high[new_high].astype(np.uint64) << 32
    upper = p[first] << 28 | (t[first] & 63) << 22 | block[first] << 16 | y[first]
    words[place] = upper.astype(np.uint64) << 32 | masks.astype(np.uint64)
    return header_bytes(header, "EVT21") + words.tobytes()


FORMAT = Format(
    "evt21", "Prophesee EVT 2.1", (".raw",), lambda head: detect_version(head) == "evt21", decode, encode
)
