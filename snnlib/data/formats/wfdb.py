"""Records of PhysioNet's waveform database: header, signals of format 212, annotations.

Source: G. Moody, "WFDB Applications Guide", header(5), signal(5) and annot(5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from snnlib.data.formats.event_file import EventFile, EventFileError

# What takes no time, by its code: a long pause, attributes of the annotation before, and a text.
_SKIP, _NUMBER, _TEXT = 59, 60, 63
# The highest code of an annotation.
_LAST_CODE = 49
# Far more than a day of some leads: a bound for what a damaged header makes.
_MOST_SAMPLES = 1 << 28
_RECORD = re.compile(r"(\S+)\s+(\d+)\s+([\d.]+)(?:/\S+)?\s+(\d+)(?:\s.*)?")
# File, format, gain with its zero and unit, bits, zero of the converter, first sample, sum.
_SIGNAL = re.compile(
    r"(\S+)\s+(\S+)\s+([\d.]+)(?:\((-?\d+)\))?(?:/\S+)?\s+\d+\s+(-?\d+)\s+(-?\d+)\s+(-?\d+)(?:\s.*)?"
)


@dataclass(frozen=True)
class Header:
    """What a header says of a record.

    Args:
        name: the file, for messages.
        rate: samples per second.
        samples: samples of each signal.
        gains: stored units per millivolt, of each signal.
        zeros: stored value of 0 mV.
        firsts: first sample of each signal.
        sums: sum of all samples, in 16 bits.
    """

    name: str
    rate: float
    samples: int
    gains: tuple[float, ...]
    zeros: tuple[int, ...]
    firsts: tuple[int, ...]
    sums: tuple[int, ...]

    def expect(self, signals: int, rate: float) -> None:
        """Raise EventFileError unless the record has so many signals and samples a second."""
        if (len(self.gains), self.rate) != (signals, rate):
            raise EventFileError(
                f"{self.name}: byte offset 0: expected {signals} signals of {rate} samples a second, found "
                f"{len(self.gains)} of {self.rate:g}"
            )


def read_header(path: Path) -> Header:
    """Reads the header of a record of one file of format 212.

    Raises:
        EventFileError: another format, or a line that is not what it should be; names its byte.
    """
    with EventFile(path) as file:
        lines, offset = [], 0
        for line in file.read(file.size).decode("ascii", errors="replace").splitlines(keepends=True):
            if line.strip() and not line.startswith("#"):
                lines.append((offset, line.strip()))
            offset += len(line)
        offset, line = lines[0] if lines else (0, "")
        match = _RECORD.fullmatch(line)
        if match is None or not 0 < int(match[4]) <= _MOST_SAMPLES or match[3].count(".") > 1:
            raise file.error(
                f"expected a record, its signals, rate and number of samples, found {line[:60]!r}", offset
            )
        count = int(match[2])
        if len(lines) != count + 1 or not count:
            raise file.error(
                f"expected {count} lines of signals, at least one, found {len(lines) - 1}", offset
            )
        found = []
        for offset, line in lines[1:]:
            signal = _SIGNAL.fullmatch(line)
            if signal is None or signal[2] != "212" or signal[1] != f"{path.stem}.dat":
                raise file.error(
                    f"expected a signal of {path.stem}.dat in format 212, found {line[:60]!r}", offset
                )
            if signal[3].count(".") > 1 or not float(signal[3]) > 0:
                raise file.error(f"expected a gain above 0, found {signal[3]}", offset)
            found.append(signal)
    return Header(
        str(path),
        float(match[3]),
        int(match[4]),
        tuple(float(signal[3]) for signal in found),
        # The zero of the signal is that of the converter where it is not said.
        tuple(int(signal[4] or signal[5]) for signal in found),
        tuple(int(signal[6]) for signal in found),
        tuple(int(signal[7]) for signal in found),
    )


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
        stored = np.stack((low + ((middle & 15) << 8), high + ((middle >> 4) << 8)), 1).reshape(-1)[:total]
        stored = (stored - ((stored > 2047) << 12)).astype(np.int16).reshape(-1, signals)
        for number, (first, sum_) in enumerate(zip(header.firsts, header.sums, strict=True)):
            if stored[0, number] != first:
                raise file.error(
                    f"expected {first} as first sample of signal {number}, found {stored[0, number]}",
                    number * 3 // 2,
                )
            if (int(stored[:, number].sum(dtype=np.int64)) - sum_) % 2**16:
                raise file.error(
                    f"expected the sum {sum_} of signal {number} as its header says, found another", 0
                )
    return stored


def read_annotations(path: Path, samples: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Reads the annotations of a record: sample and code of each, int64.

    Words of 16 bits, low byte first: the upper 6 are a code, the lower 10 the samples since the annotation before.

    Raises:
        EventFileError: a code that is none, a time outside the record, or no end; names the byte.
    """
    times, codes, time = [], [], 0
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
