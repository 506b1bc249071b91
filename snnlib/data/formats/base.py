"""Event formats: how the files of each are recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from snnlib.data.events import Events
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import EventSink, Header


@dataclass(frozen=True)
class Format:
    """Event format.

    Args:
        name: short name, as in `read(path, format=name)`.
        title: the name that people use.
        suffixes: of its files, in lower case.
        detect: whether the first bytes of a file (up to 4096) are of this format; None where it has no magic.
        decode: `(file, sink, options) -> (header, chunks)`; chunks are views of the sink, times on the file's clock.
        encode: `(events, header, options) -> bytes`; None where there is no writer.
        options: names and meanings of the options that `decode` takes.
        write_options: likewise for `encode`.
        clock: `"recording"` where times count from the recording's start, `"camera"` where they count from another
            moment, so that `read` moves them to 0.
        smallest: fewest bytes of an event in a usual file, for the first guess of memory.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    detect: Callable[[bytes], bool] | None
    decode: Callable[[EventFile, EventSink, dict[str, Any]], tuple[Header, Iterator[Events]]]
    encode: Callable[[Events, Header, dict[str, Any]], bytes] | None = None
    options: dict[str, str] = field(default_factory=dict)
    write_options: dict[str, str] = field(default_factory=dict)
    clock: str = "camera"
    smallest: int = 4
