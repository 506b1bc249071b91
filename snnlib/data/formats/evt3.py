"""Prophesee EVT 3.0: little-endian 16-bit words that change a state, type in bits 15..12.

    0 ADDR_Y        y = bits 10..0
    2 ADDR_X        an event at x = bits 10..0, polarity bit 11
    3 VECT_BASE_X   base = bits 10..0, polarity bit 11
    4 VECT_12       events at base + i for each set bit i of 11..0; then base += 12
    5 VECT_8        likewise with bits 7..0 and 8
    6 TIME_LOW      t = 4096 high + bits 11..0
    8 TIME_HIGH     high = bits 11..0; where it changes, the low part is 0 until the next TIME_LOW
    0xA trigger, others: no pixel events, counted as skipped

t in microseconds. Only TIME_HIGH wraps (after 16.78 s) and is made to count on: TIME_LOW steps back by some
microseconds in real files without a wrap. Events before the first TIME_HIGH have no time and are counted as skipped.

The state of each word that gives events is found by arrays: the value of the last word of a type is repeated as often
as such words follow it.

Source: Prophesee, "EVT 3.0 format", Metavision documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import check_writable
from snnlib.data.formats.clock import Unwrapper
from snnlib.data.formats.compiled import find_decoder, word_chunks
from snnlib.data.formats.event_file import Array, EventFile
from snnlib.data.formats.event_sink import EventSink, Header
from snnlib.data.formats.prophesee_header import detect_version, header_bytes, read_header

ADDR_Y, ADDR_X, VECT_BASE_X, VECT_12, VECT_8, TIME_LOW, TIME_HIGH = 0, 2, 3, 4, 5, 6, 8
HIGH_PERIOD = 2**12
LARGEST = 2**11
# A pause is bridged by TIME_HIGH words not further apart than this, so that a reader can count the wraps.
HIGH_STEP = 1024
WRITE_LIMIT_US = 2**40
OTHER, UNTIMED = "triggers and other words", "words before the first time"

# Set bits of each 12-bit mask, and the place of its i-th set bit at [12 * mask + i].
_MASK_BITS = (np.arange(4096)[:, None] >> np.arange(12)) & 1
BIT_COUNT = _MASK_BITS.sum(1).astype(np.int64)
BIT_PLACE = np.argsort(1 - _MASK_BITS, axis=1, kind="stable").astype(np.int16).ravel()


@dataclass
class _State:
    y: int = 0
    base: int = 0
    # Added to the base by vector words since it was set.
    offset: int = 0
    high: int = 0
    low: int = 0
    timed: bool = False


def decode(file: EventFile, sink: EventSink, options: dict[str, Any]) -> tuple[Header, Iterator[Events]]:
    """Read the header; events come by chunks."""
    header = read_header(file, "evt3")
    if (compiled := find_decoder("evt3")) is not None:
        return header, word_chunks(file, sink, compiled, 2, other=OTHER, untimed=UNTIMED)
    return header, _chunks(file, sink, header)


def _chunks(file: EventFile, sink: EventSink, header: Header) -> Iterator[Events]:
    state, unwrap = _State(), Unwrapper(HIGH_PERIOD)
    for words in file.words("<u2"):
        kind = words >> 12
        start = 0
        if not state.timed:
            first = np.flatnonzero(kind == TIME_HIGH)
            start = int(first[0]) if len(first) else len(words)
            header.skip(UNTIMED, start)
            state.timed = start < len(words)
        if start < len(words):
            yield _decode_words(words[start:], kind[start:], state, unwrap, sink, header)


def _decode_words(
    words: Array, kind: Array, state: _State, unwrap: Unwrapper, sink: EventSink, header: Header
) -> Events:
    gives = (kind == ADDR_X) | (kind == VECT_12) | (kind == VECT_8)
    # Words with events up to and including each word: how often a state's value is needed is a difference of these.
    total = np.cumsum(gives, dtype=np.int64)
    emitters = np.flatnonzero(gives)
    count = len(emitters)
    header.skip(OTHER, int(((kind > TIME_HIGH) | (kind == 7) | (kind == 1)).sum()))

    def spread(values: Array, places: Array) -> Array:
        """Values for the emitters: `values[0]` up to the first place, then `values[k]` after place k."""
        ends = total[places]
        return np.repeat(values, np.diff(ends, prepend=0, append=count))

    places = np.flatnonzero((kind == TIME_LOW) | (kind == TIME_HIGH))
    t = spread(_times(words[places] & 0xFFF, kind[places] == TIME_HIGH, state, unwrap), places)
    places = np.flatnonzero(kind == ADDR_Y)
    values = np.concatenate(([state.y], words[places] & 0x7FF)).astype(np.int16)
    state.y = int(values[-1])
    y = spread(values, places)
    chosen = words[emitters]
    bases = np.flatnonzero(kind == VECT_BASE_X)
    if len(bases) or bool(((kind == VECT_12) | (kind == VECT_8)).any()):
        return _expand(words, kind, emitters, bases, total, (t, y), state, sink)
    return sink.put(t, chosen & 0x7FF, y, chosen >> 11 & 1)


def _times(values: Array, is_high: Array, state: _State, unwrap: Unwrapper) -> Array:
    """Time after each time word, the state's before: `[1 + number of time words]`."""
    high = np.concatenate(([state.high], values)).astype(np.int64)
    changed = np.zeros(len(high), bool)
    where = np.flatnonzero(is_high) + 1
    if len(where):
        unwrapped = unwrap(values[where - 1])
        changed[where] = np.diff(unwrapped, prepend=state.high) != 0
        high = np.repeat(
            np.concatenate(([state.high], unwrapped)), np.diff(where, prepend=0, append=len(high))
        )
    else:
        high[:] = state.high
    # The low part is set by TIME_LOW, and to 0 by a TIME_HIGH that changes; else the last one stays.
    sets = changed.copy()
    sets[1:] |= ~is_high
    sets[0] = True
    low = np.concatenate(([state.low], np.where(is_high, 0, values)))
    places = np.flatnonzero(sets)
    low = np.repeat(low[places], np.diff(places, append=len(low)))
    state.high, state.low = int(high[-1]), int(low[-1])
    return np.asarray(high << 12 | low)


def _expand(
    words: Array,
    kind: Array,
    emitters: Array,
    bases: Array,
    total: Array,
    fields: tuple[Array, Array],
    state: _State,
    sink: EventSink,
) -> Events:
    """Events of single and vector words in their order."""
    chosen, kinds = words[emitters], kind[emitters]
    t, y = fields
    count = len(emitters)
    step = np.zeros(count, np.int64)
    step[kinds == VECT_12], step[kinds == VECT_8] = 12, 8
    travelled = np.concatenate(([0], np.cumsum(step)))
    ends = total[bases]
    repeats = np.diff(ends, prepend=0, append=count)
    values = np.concatenate(([state.base], words[bases] & 0xFFF)).astype(np.int64)
    # Distance that the base has moved since it was set: for the first stretch, the state's offset as well.
    moved = np.concatenate(([-state.offset], travelled[ends]))
    base = np.repeat(values & 0x7FF, repeats) + travelled[:-1] - np.repeat(moved, repeats)
    polarity = np.repeat(values >> 11, repeats)
    state.base, state.offset = int(values[-1]), int(travelled[-1] - moved[-1])

    single = kinds == ADDR_X
    base[single], polarity[single] = chosen[single] & 0x7FF, chosen[single] >> 11 & 1
    mask = np.where(single, 1, chosen & np.where(kinds == VECT_12, 0xFFF, 0xFF)).astype(np.int64)
    counts = BIT_COUNT[mask]
    ends = np.cumsum(counts)
    events = int(ends[-1]) if count else 0
    # Place of each event among those of its word.
    rank = np.arange(events) - np.repeat(ends - counts, counts)
    x = np.repeat(base, counts) + BIT_PLACE[np.repeat(mask * 12, counts) + rank]
    return sink.put(np.repeat(t, counts), x, np.repeat(y, counts), np.repeat(polarity, counts))


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write single events (no vectors), times below 2**40 microseconds."""
    check_writable(events, header, WRITE_LIMIT_US, (LARGEST, LARGEST))
    t, y = events["t"].astype(np.int64), events["y"]
    high = t >> 12
    rise = np.diff(high, prepend=0)
    highs = -(-rise // HIGH_STEP)
    if len(t):
        highs[0] = max(highs[0], 1)
    new_low = (np.diff(t, prepend=-1) != 0) | (highs > 0)
    new_y = np.diff(y, prepend=-1) != 0
    counts = highs + new_low + new_y + 1
    ends = np.cumsum(counts)
    words = np.empty(int(ends[-1]) if len(t) else 0, "<u2")
    words[ends - 1] = ADDR_X << 12 | events["p"].astype(np.int64) << 11 | events["x"]
    words[(ends - 2)[new_y]] = y[new_y]
    words[(ends - 2 - new_y)[new_low]] = TIME_LOW << 12 | (t[new_low] & 0xFFF)
    # The k-th of n TIME_HIGH words before an event: n - k steps short of its own.
    owner = np.repeat(np.arange(len(t)), highs)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(highs) - highs, highs)
    value = np.maximum(high[owner] - (highs[owner] - 1 - rank) * HIGH_STEP, 0)
    words[(ends - counts)[owner] + rank] = TIME_HIGH << 12 | (value & 0xFFF)
    return header_bytes(header, "EVT3") + words.tobytes()


FORMAT = Format(
    "evt3",
    "Prophesee EVT 3.0",
    (".raw",),
    lambda head: detect_version(head) == "evt3",
    decode,
    encode,
    smallest=2,
)
