"""Prophesee EVT 2.0: little-endian 32-bit words, type in bits 31..28.

    8 TIME_HIGH   bits 27..0 = t >> 6
    0 / 1 OFF/ON  bits 27..22 = t & 63, x = bits 21..11, y = bits 10..0
    0xA trigger, others: no pixel events, counted as skipped

t in microseconds, 34 bits, made to count on where it wraps (4.8 h). Events before the first TIME_HIGH have no time
and are counted as skipped.

Source: Prophesee, "EVT 2.0 format", Metavision documentation.
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
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.formats.prophesee_header import detect_version, header_bytes, read_header

TIME_HIGH = 8
LOW_BITS = 6
HIGH_PERIOD = 2**28
LARGEST = 2**11
OTHER, UNTIMED = "triggers and other words", "events before the first time"


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the header; events come by chunks."""
    header = read_header(file, "evt2")
    if (compiled := find_decoder("evt2")) is not None:
        return header, word_chunks(file, sink, compiled, 4, other=OTHER, untimed=UNTIMED)
    return header, _chunks(file, sink, header)


def _chunks(file: EventFile, sink: EventSink, header: Header) -> Iterator[Events]:
    unwrap = Unwrapper(HIGH_PERIOD)
    high = None
    for words in file.words("<u4"):
        high, events = _decode_words(words, high, unwrap, sink, header)
        yield events


def _decode_words(
    words: np.ndarray[Any, Any], high: int | None, unwrap: Unwrapper, sink: EventSink, header: Header
) -> tuple[int | None, Events]:
    kind = words >> 28
    places = np.flatnonzero(kind == TIME_HIGH)
    if high is None:
        first = int(places[0]) if len(places) else len(words)
        header.skip(UNTIMED, int((kind[:first] < 2).sum()))
        if first == len(words):
            return None, sink.put(words[:0], words[:0], words[:0], words[:0])
        words, kind, places = words[first:], kind[first:], places - first
        high = 0
    is_event = kind < 2
    times = np.empty(len(places) + 1, np.int64)
    times[0] = high
    times[1:] = unwrap(words[places] & (HIGH_PERIOD - 1))
    # Words that follow each TIME_HIGH, then only the events among them.
    ends = np.append(places, len(words))
    counts = np.diff(ends, prepend=-1) - 1
    others = np.flatnonzero(~is_event & (kind != TIME_HIGH))
    if len(others):
        counts -= np.bincount(np.searchsorted(places, others), minlength=len(counts))
        header.skip(OTHER, len(others))
    chosen = words[np.flatnonzero(is_event)]
    t = np.repeat(times << LOW_BITS, counts)
    t |= chosen >> 22 & 63
    return int(times[-1]), sink.put(t, chosen >> 11 & 0x7FF, chosen & 0x7FF, chosen >> 28)


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write events whose times are below 2**34 microseconds."""
    check_writable(events, header, 2**34, (LARGEST, LARGEST))
    t, x, y, p = (events[field].astype(np.int64) for field in "txyp")
    high = t >> LOW_BITS
    new_high = np.diff(high, prepend=-1) != 0
    place = np.arange(len(t)) + np.cumsum(new_high)
    words = np.empty(len(t) + int(new_high.sum()), "<u4")
    words[place[new_high] - 1] = TIME_HIGH << 28 | high[new_high]
    words[place] = p << 28 | (t & 63) << 22 | x << 11 | y
    return header_bytes(header, "EVT2") + words.tobytes()


FORMAT = Format(
    "evt2", "Prophesee EVT 2.0", (".raw",), lambda head: detect_version(head) == "evt2", decode, encode
)
