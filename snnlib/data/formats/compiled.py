"""Decoders of the compiled module, run over a file; each format's NumPy decoder is what they are tested against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from snnlib.backends import native
from snnlib.data.events import Events
from snnlib.data.formats.event_file import Array, EventFile
from snnlib.data.formats.event_sink import EventSink

# The fields of `EventDecoder` in cpp/include/snnlib/event_files.h, in its order.
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
# What a call decodes: it stays in a core's second-level cache, and is long beside what a call costs.
CHUNK_BYTES = 1 << 18


class CompiledDecoder:
    """A compiled decoder at work on a file.

    Args:
        decode: from `find_decoder`.
        sink: where the events go; its header must be set.
        other: what to call words without events in `header.skipped`.
        untimed: likewise what comes before the first time.
        state: first values of fields of `DECODER`.
    """

    def __init__(
        self, decode: Decode, sink: EventSink, other: str = "", untimed: str = "", **state: int
    ) -> None:
        self._decode, self._sink, self._other, self._untimed = decode, sink, other, untimed
        self._array = np.zeros(1, DECODER)
        self._state: Any = self._array[0]
        self._address = self._array.ctypes.data
        height, width = sink.sensor_size
        given = {"height": height, "width": width, "drop_outside": sink.drop_outside, **state}
        for field, value in given.items():
            self._state[field] = value

    def __call__(self, data: Array, least: int, usual: int) -> tuple[Events, int]:
        """Decode bytes `[n]`: the events, and how many bytes they took; fewer than n where places ran out.

        Args:
            data: bytes, from the beginning of a word.
            least, usual: numbers of places, as in `EventSink.places`.

        Raises:
            EventFileError: an event outside the sensor.
        """
        state, sink = self._state, self._sink
        places = sink.places(least, usual)
        sink.save(state)
        used = self._decode(data.ctypes.data, len(data), places.ctypes.data, len(places), self._address)
        count = sink.load(state)
        if state["stopped"]:
            raise sink.outside_error(*(int(state[field]) for field in ("bad_x", "bad_y", "bad_p")))
        for field, kind in (
            ("other", self._other),
            ("untimed", self._untimed),
            ("outside", "events outside the sensor"),
        ):
            if state[field]:
                sink.header.skip(kind, int(state[field]))
                state[field] = 0
        return places[:count], used


def find_decoder(name: str) -> Decode | None:
    """The compiled decoder of a format; None without the module, and on the reference path."""
    return native.plain_function(f"decode_{name}")


def word_chunks(
    file: EventFile,
    sink: EventSink,
    decode: Decode,
    word_bytes: int,
    *,
    other: str = "",
    untimed: str = "",
    **state: int,
) -> Iterator[Events]:
    """The events of a file of words of one size, by chunks; arguments as in `CompiledDecoder`."""
    decoder = CompiledDecoder(decode, sink, other, untimed, **state)
    reuse = hasattr(file.opened(), "readinto")
    for words in file.words("u1", word_bytes, CHUNK_BYTES // word_bytes, reuse=reuse):
        data = words.reshape(-1)
        while len(data):
            events, used = decoder(data, MOST_EVENTS_OF_A_WORD, len(words) + MOST_EVENTS_OF_A_WORD)
            data = data[used:]
            yield events
