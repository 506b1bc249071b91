"""AEDAT 2.0: `#` lines, then pairs of big-endian uint32, address and time in microseconds; AEDAT 1.0 with uint16
addresses, of the DVS128 alone.

What an address means depends on the camera:

    DVS128   bit 15 = 0; y = bits 14..8, x = 127 - bits 7..1, p = 1 - bit 0
    DAVIS    bit 31 = 0 and bit 10 = 0; y = bits 30..22, x = width - 1 - bits 21..12, p = bit 11

Other words (external triggers, samples of the image and motion sensors) are counted as skipped. Rows count upwards in
the file and are turned to count from the top. Times are signed 32-bit in the recorder; they count on over the sign and
over the wrap at 2**32 us.

The header has no end that can be relied on: it is the lines that begin with `#` and are text. It may be missing where
the format is named.

Source: inivation, "AEDAT 2.0 file format"; jAER's chip classes DVS128 and DAVIS.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from snnlib.data.events import Events
from snnlib.data.formats.base import Format
from snnlib.data.formats.checks import check_writable
from snnlib.data.formats.clock import Unwrapper
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import EventSink, Header, Offsets

MAGIC = b"#!AER-DAT2"
# Chip: (height, width), and whether its words are a DAVIS's.
CHIPS = {
    "dvs128": ((128, 128), False),
    "tmpdiff128": ((128, 128), False),
    "davis128": ((128, 128), True),
    "davis208": ((192, 208), True),
    "davis240": ((180, 240), True),
    "davis346": ((260, 346), True),
    "davis640": ((480, 640), True),
}
# Address and time of an event, by version.
RECORDS = {1: np.dtype([("address", ">u2"), ("t", ">u4")]), 2: np.dtype([("address", ">u4"), ("t", ">u4")])}


def decode(
    file: EventFile, sink: EventSink, options: dict[str, Any], version: int = 2
) -> tuple[Header, Iterator[Events]]:
    """Read the header; events come by chunks."""
    magic, begin = f"#!AER-DAT{version}", file.peek(20)
    lines = file.text_header(b"#", lambda line: line.startswith("#End Of ASCII Header"))
    if begin.startswith(b"#") and not (lines and lines[0].startswith(magic)):
        raise file.error(f"expected {magic}, found {begin!r}", 0)
    fields = {}
    for line in lines:
        key, colon, value = line.lstrip("# ").partition(":")
        if colon and not line.startswith("#<") and key not in fields:
            fields[key] = value.strip()
    named = fields.get("AEChip", "")
    camera = options.get("camera") or named.rpartition(".")[2] or "dvs128"
    chips = [chip for chip, (_, davis) in CHIPS.items() if not (davis and version == 1)]
    chip = next((chip for chip in chips if camera.lower().startswith(chip)), None)
    if chip is None:
        raise file.error(f"expected a camera among {', '.join(chips)}, found {camera!r}; give camera=", 0)
    fields = {key: value for key, value in fields.items() if len(key) < 40}
    number = lines[0][9:].strip() if lines else ""
    header = Header(f"aedat{version}", number, CHIPS[chip][0], camera=camera, fields=fields)
    return header, _chunks(file, sink, header, CHIPS[chip], RECORDS[version])


def _chunks(
    file: EventFile,
    sink: EventSink,
    header: Header,
    chip: tuple[tuple[int, int], bool],
    record: np.dtype[Any],
) -> Iterator[Events]:
    # Coordinates count from the far sides of the camera's sensor, whatever part of it is asked for.
    (height, width), davis = chip
    other = "image, motion and trigger words" if davis else "trigger words"
    unwrap = Unwrapper(2**32)
    for words in file.words(f"V{record.itemsize}"):
        records = words.view(record)
        address, time = records["address"].astype(np.uint32), unwrap(records["t"].astype(np.uint32))
        offsets: Offsets = file.records
        if not davis and bool((address >> 16).any()):
            bad = int(address[np.flatnonzero(address >> 16)[0]])
            raise file.error(
                f"expected addresses of 16 bits, as a {header.camera} has, found {bad:#x}; give camera=",
                file.records.start,
            )
        is_event = (address & (0x80000400 if davis else 0x8000)) == 0
        if not is_event.all():
            header.skip(other, int(np.count_nonzero(~is_event)))
            address, time = address[is_event], time[is_event]
            offsets = file.records.start + file.records.step * np.flatnonzero(is_event)
        # Unsigned differences below 0 become large numbers, which the check against the sensor finds.
        if davis:
            x, y, p = address >> 12 & 0x3FF, address >> 22 & 0x1FF, address >> 11 & 1
        else:
            x, y, p = address >> 1 & 0x7F, address >> 8 & 0x7F, ~address & 1
        yield sink.put(time, (width - 1) - x, (height - 1) - y, p, offsets)


def encode(events: Events, header: Header, options: dict[str, Any]) -> bytes:
    """Write a DVS128 or DAVIS file, times below 2**32 microseconds."""
    size = header.sensor_size or (128, 128)
    camera = str(
        options.get("camera") or next((name for name, (known, _) in CHIPS.items() if known == size), "")
    )
    chip = next((chip for chip in CHIPS if camera.lower().startswith(chip)), None)
    if chip is None or CHIPS[chip][0] != size:
        sizes = ", ".join(f"{known} {name}" for name, (known, _) in CHIPS.items())
        raise ValueError(
            f"sensor_size: expected that of a camera of AEDAT 2.0 ({sizes}), got {size} {camera}".strip()
        )
    (height, width), davis = CHIPS[chip]
    check_writable(events, Header("aedat2", sensor_size=size), 2**32, size)
    x, y, p = (events[field].astype(np.uint32) for field in ("x", "y", "p"))
    words = np.empty((len(events), 2), ">u4")
    if davis:
        words[:, 0] = (height - 1 - y) << 22 | (width - 1 - x) << 12 | p << 11
    else:
        words[:, 0] = (127 - y) << 8 | (127 - x) << 1 | (1 - p)
    words[:, 1] = events["t"]
    text = ["#!AER-DAT2.0", "# This is a raw AE data file - do not edit"]
    text += ["# Data format is int32 address, int32 timestamp (8 bytes total), repeated for each event"]
    text += ["# Timestamps tick is 1 us", f"# AEChip: {chip.upper()}", "#End Of ASCII Header"]
    return ("\r\n".join(text) + "\r\n").encode() + words.tobytes()


FORMAT = Format(
    "aedat2",
    "AEDAT 2.0",
    (".aedat",),
    lambda head: head.startswith(MAGIC),
    decode,
    encode,
    options={"camera": f"one of {', '.join(CHIPS)}, where the header names none"},
    write_options={"camera": f"one of {', '.join(CHIPS)}"},
    smallest=8,
)
FORMAT_1 = Format(
    "aedat1",
    "AEDAT 1.0",
    (".aedat",),
    lambda head: head.startswith(b"#!AER-DAT1"),
    partial(decode, version=1),
    options={"camera": "dvs128 or tmpdiff128, where the header names another"},
    smallest=6,
)
