"""Records of PhysioNet's waveform database: header, signals of format 212, annotations.

Source: G. Moody, "WFDB Applications Guide", header(5), signal(5) and annot(5).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from snnlib.data.formats.event_file import EventFile

# What takes no time, by its code: a long pause, attributes of the annotation before, and a text.
_SKIP, _NUMBER, _TEXT = 59, 60, 63
# The highest code of an annotation.
_LAST_CODE = 49
# Far more than a day of some leads: a bound for what a damaged header makes.
_MOST_SAMPLES = 1 << 28
# A line that is no comment.
_LINE = re.compile(r"^(?!#).*\S.*$", re.MULTILINE)
# Name, signals, rate, samples; and file, gain with its zero and unit, bits, zero of the converter, first sample, sum.
_FLOAT = r"(\d+(?:\.\d*)?)"
_RECORD = re.compile(rf"\S+\s+(\d+)\s+{_FLOAT}(?:/\S+)?\s+(\d+)(?:\s.*)?")
_SIGNAL = re.compile(
    rf"(\S+)\s+212\s+{_FLOAT}(?:\((-?\d+)\))?(?:/\S+)?\s+\d+\s+(-?\d+)\s+-?\d+\s+(-?\d+)(?:\s.*)?"
)


class Header(NamedTuple):
    """What a header says of a record: samples of each signal, and for each signal its stored units per millivolt, its
    stored value of 0 mV, and the sum of its samples in 16 bits.
    """

    samples: int
    gains: tuple[float, ...]
    zeros: tuple[int, ...]
    sums: tuple[int, ...]


def read_header(path: Path, signals: int, rate: float) -> Header:
    """Reads the header of a record of so many signals and samples a second, in one file of format 212.

    Raises:
        EventFileError: another record, or a line that is not what it should be; names its byte.
    """
    with EventFile(path) as file:
        text = file.read(file.size).decode("ascii", errors="replace")
        lines = [(line.start(), line[0].strip()) for line in _LINE.finditer(text)]
        offset, line = lines[0] if lines else (0, "")
        record = _RECORD.fullmatch(line)
        if (
            record is None
            or (int(record[1]), float(record[2])) != (signals, rate)
            or int(record[3]) > _MOST_SAMPLES
        ):
            raise file.error(
                f"expected a record of {signals} signals at {rate} and its number of samples, found {line[:60]!r}",
                offset,
            )
        if len(lines) != signals + 1:
            raise file.error(f"expected {signals} lines of signals, found {len(lines) - 1}", offset)
        found = []
        for offset, line in lines[1:]:
            signal = _SIGNAL.fullmatch(line)
            if signal is None or signal[1] != f"{path.stem}.dat" or float(signal[2]) == 0:
                raise file.error(
                    f"expected a signal of {path.stem}.dat in format 212 with its gain, found {line[:60]!r}",
                    offset,
                )
            # The zero of a signal is that of the converter where it is not said.
            found.append((float(signal[2]), int(signal[3] or signal[4]), int(signal[5])))
    return Header(int(record[3]), *zip(*found, strict=True))


def read_signals(path: Path, header: Header) -> np.ndarray[Any, Any]:
    """Reads the samples of a record, int16 `[samples, signals]`.

    Two samples of 12 bits are three bytes: `a = b0 + 256 (b1 % 16)`, `b = b2 + 256 (b1 // 16)`, less 4096 above 2047.

    Raises:
        EventFileError: another size than the header says, or samples with another sum; names the byte.
    """
    signals = len(header.gains)
    total = header.samples * signals
    size = 3 * (total // 2) + 2 * (total % 2)
    with EventFile(path) as file:
        if file.size != size:
            raise file.error(
                f"expected {header.samples} samples of {signals} signals, {size} bytes, found {file.size} bytes",
                min(size, file.size),
            )
        data = np.zeros(3 * (-(-total // 2)), np.uint8)
        data[:size] = np.frombuffer(file.read(size), np.uint8)
        low, middle, high = data.reshape(-1, 3).astype(np.int16).T
        stored: np.ndarray[Any, Any] = np.stack(
            (low + ((middle & 15) << 8), high + ((middle >> 4) << 8)), 1
        ).reshape(-1)[:total]
        stored = (stored - ((stored > 2047) << 12)).astype(np.int16).reshape(-1, signals)
        for number, expected in enumerate(header.sums):
            if (int(stored[:, number].sum(dtype=np.int64)) - expected) % 2**16:
                raise file.error(
                    f"expected the sum {expected} of signal {number} as its header says, found another", 0
                )
    return stored


def read_annotations(path: Path, samples: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Reads the annotations of a record: sample and code of each, int64.

    Words of 16 bits, low byte first: the upper 6 are a code, the lower 10 the samples since the annotation before.

    Raises:
        EventFileError: a code that is none, a time outside the record, or no end; names the byte.
    """
    times: list[int] = []
    codes: list[int] = []
    time = 0
    with EventFile(path) as file:
        data = file.read(file.size)
        words = np.frombuffer(data, "<u2", len(data) // 2).tolist()
        place = 0
        while place < len(words):
            code, amount = words[place] >> 10, words[place] & 1023
            if code == amount == 0:
                return np.array(times, np.int64), np.array(codes, np.int64)
            taken = {_SKIP: 3, _TEXT: 1 + (amount + 1) // 2}.get(code, 1)
            if place + taken > len(words):
                break
            if code == _SKIP:
                pause = (words[place + 1] << 16) + words[place + 2]
                time += pause - ((pause >> 31) << 32)
            elif code < _NUMBER:
                time += amount
                if code > _LAST_CODE:
                    raise file.error(
                        f"expected the code of an annotation, 0 to {_LAST_CODE}, found {code}", 2 * place
                    )
                if not 0 <= time < samples:
                    raise file.error(f"expected a sample in 0..{samples - 1}, found {time}", 2 * place)
                times.append(time)
                codes.append(code)
            place += taken
        raise file.error(
            "truncated: expected a word of 0 at the end of the annotations, found none", 2 * place
        )
