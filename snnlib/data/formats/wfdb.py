"""Records of PhysioNet's waveform database: header, signals of format 212, annotations.

Source: G. Moody, "WFDB Applications Guide", header(5), signal(5) and annot(5).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from snnlib.data.formats.event_file import EventFile

# Codes that take no time: a long pause, attributes of the annotation before, and a text.
_SKIP, _NUMBER, _TEXT = 59, 60, 63
# The highest code of an annotation.
_LAST_CODE = 49
# Far more than a day of some leads: a bound for what a damaged header makes.
_MOST_SAMPLES = 1 << 28
# A line that is no comment.
_LINE = re.compile(r"^(?!#).*\S.*$", re.MULTILINE)
# Name, signals, rate, samples; and file, gain with its zero and unit, bits, zero of the converter, first sample, sum.
_WHOLE = r"(-?\d{1,9})"
_RECORD = re.compile(r"\S+\s+(\d{1,9})\s+(\d{1,9}(?:\.\d{0,9})?)(?:/\S+)?\s+(\d{1,9})(?:\s.*)?")
_SIGNAL = re.compile(
    rf"(\S+)\s+212\s+([^\s(/]+)(?:\({_WHOLE}\))?(?:/(\S+))?\s+\d+\s+{_WHOLE}\s+-?\d+\s+{_WHOLE}(?:\s.*)?"
)
# Units of a gain, in millivolts. "MV" may mean either of two and is none of them.
_UNITS = {"kV": 1e6, "V": 1e3, "mV": 1.0, "uV": 1e-3, "nV": 1e-6, "pV": 1e-9}
# The Greek letter in Latin-1, and its two spellings in UTF-8.
_MICRO = re.compile("^(?:\xc2?\xb5|\xce\xbc)")
# Stored units per millivolt, so that every sample in millivolts is a float32 that is neither 0 nor infinite.
_GAINS = (1e-30, 1e30)


class Header(NamedTuple):
    """Header of a record: samples of each signal, and for each signal its stored units per millivolt, its
    stored value of 0 mV, and the sum of its samples in 16 bits.
    """

    samples: int
    gains: tuple[float, ...]
    zeros: tuple[int, ...]
    sums: tuple[int, ...]


def read_header(path: Path, signals: int, rate: float) -> Header:
    """Reads the header of a record of so many signals and samples a second, in one file of format 212.

    Raises:
        EventFileError: another record, a unit that is no voltage, a gain that is 0, infinite or NaN, or a line that is
            not what it should be; names its byte.
    """
    with EventFile(path) as file:
        text = file.read(file.size).decode("latin-1")
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
            if signal is None or signal[1] != f"{path.stem}.dat":
                raise file.error(
                    f"expected a signal of {path.stem}.dat in format 212 with its gain, found {line[:60]!r}",
                    offset,
                )
            # The zero of a signal is that of the converter where it is not said.
            gain = _per_millivolt(file, offset, signal[2], signal[4] or "mV")
            found.append((gain, int(signal[3] or signal[5]), int(signal[6])))
    return Header(int(record[3]), *zip(*found, strict=True))


def _per_millivolt(file: EventFile, offset: int, gain: str, unit: str) -> float:
    """Returns stored units per millivolt of a gain per `unit`."""
    plain = _MICRO.sub("u", unit)
    millivolts = _UNITS.get(plain[:-1] + plain[-1].upper())
    if millivolts is None:
        raise file.error(f"expected a gain per {', '.join(_UNITS)}, found the unit {unit[:20]!r}", offset)
    try:
        value = float(gain) / millivolts
    except ValueError:
        value = 0.0
    if not _GAINS[0] <= abs(value) <= _GAINS[1]:
        raise file.error(
            f"expected a gain of {_GAINS[0]:g} to {_GAINS[1]:g} stored units per mV, found {gain[:20]}/{unit[:20]}",
            offset,
        )
    return value


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
        EventFileError: an unknown code, a time outside the record or before the last one, or no end; names the byte.
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
                first = times[-1] if times else 0
                if not first <= time < samples:
                    raise file.error(f"expected a sample in {first}..{samples - 1}, found {time}", 2 * place)
                times.append(time)
                codes.append(code)
            place += taken
        raise file.error(
            "truncated: expected a word of 0 at the end of the annotations, found none", 2 * place
        )
