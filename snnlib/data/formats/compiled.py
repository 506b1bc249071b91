"""Decoders of the compiled module, run over a file; each format's NumPy decoder is what they are tested against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from snnlib.backends import native
from snnlib.data.events import Events
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import EventSink

# The fields of `EventDecoder` in cpp/data/event_files.h, in its order.
_FIELDS = (
    *("width", "height", "drop_outside", "outside", "variant", "origin_known", "origin"),
    *("count", "last", "largest_fall", "fall_at", "stopped", "bad_x", "bad_y", "bad_p"),
    *("other", "untimed", "wrap_started", "wrap_last", "wrap_base"),
    *("timed", "high", "low", "row", "column", "polarity"),
)
Decode = Callable[..., int]
DECODER = np.dtype([(name, np.int64) for name in _FIELDS])
# EVT 2.1's; without places for the events of a word, none of it is decoded.
MOST_EVENTS_OF_A_WORD = 32
# Bytes that a call decodes: they stay in a core's second-level cache, and outlast what a call costs.
CHUNK_BYTES = 1 << 18


def find_decoder(name: str) -> Decode | None:
    """The compiled decoder of a format; None without the module, and on the reference path."""
    return native.plain_function(f"decode_{name}")


def word_chunks(
    file: EventFile,
    sink: EventSink,
    decode: Decode,
    word_bytes: int,
    *,
    other: str,
    untimed: str,
    variant: int = 0,
) -> Iterator[Events]:
    """Decodes a file of words of one size, by chunks.

    Args:
        file: at the first word.
        sink: where the events go; its header must be set.
        decode: from `find_decoder`.
        word_bytes: size of a word.
        other: what to call words without events in `header.skipped`.
        untimed: likewise what comes before the first time.
        variant: of the format, for its decoder.

    Raises:
        EventFileError: an event outside the sensor.
    """
    array = np.zeros(1, DECODER)
    state: Any = array[0]
    state["height"], state["width"] = sink.sensor_size
    state["drop_outside"], state["variant"] = sink.drop_outside, variant
    skipped = {"other": other, "untimed": untimed, "outside": "events outside the sensor"}
    reuse = hasattr(file.opened(), "readinto")
    for words in file.words("u1", word_bytes, CHUNK_BYTES // word_bytes, reuse=reuse):
        data = words.reshape(-1)
        while len(data):
            places = sink.places(MOST_EVENTS_OF_A_WORD, len(words) + MOST_EVENTS_OF_A_WORD)
            sink.save(state)
            used = decode(data.ctypes.data, len(data), places.ctypes.data, len(places), array.ctypes.data)
            count = sink.load(state)
            if state["stopped"]:
                raise sink.outside_error(*(int(state[field]) for field in ("bad_x", "bad_y", "bad_p")))
            for field, kind in skipped.items():
                sink.header.skip(kind, int(state[field]))
                state[field] = 0
            # Places may run out before the words do.
            data = data[used:]
            yield places[:count]
