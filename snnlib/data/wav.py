"""Sound files: PCM and float samples of a WAV file as a waveform, with every damage named.

A RIFF file has chunks, each a name of four bytes, a length (uint32) and content padded to two bytes. `fmt ` holds the
coding, channels, rate, bytes per second, bytes per frame and bits per sample; coding 65534 (extensible) has the real
one in the first two bytes of a GUID. `data` holds the samples, little-endian; those of up to 8 bits are unsigned, and
fewer bits than a byte has lie in its upper ones.

Source: IBM and Microsoft, "Multimedia Programming Interface and Data Specifications 1.0", 1991; Microsoft,
"WAVEFORMATEXTENSIBLE structure".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from snnlib.data.formats.event_file import EventFile, EventFileError, check_regular

__all__ = ["read_wav"]

_EXTENSIBLE = 0xFFFE
# Bytes behind the coding in the GUID of an extensible header.
_GUID = bytes.fromhex("0000 0000 1000 8000 00aa 0038 9b71")
_CODINGS = {
    1: "PCM",
    2: "ADPCM",
    3: "floats",
    6: "A-law",
    7: "mu-law",
    17: "IMA ADPCM",
    80: "MPEG",
    85: "MP3",
}
# NumPy's type of a sample by coding and bytes; three bytes are read as the upper ones of four.
_TYPES = {(1, 1): "u1", (1, 2): "<i2", (1, 3): "<i4", (1, 4): "<i4", (3, 4): "<f4", (3, 8): "<f8"}
# A program that writes to a pipe cannot go back to the length: it leaves 0, or one from here on (SoX the least).
_UNKNOWN = 0x7FFFF000


def read_wav(path: str | os.PathLike[str], *, sample_rate: int | None = None) -> tuple[torch.Tensor, int]:
    """Reads a WAV file of PCM or float samples.

    Args:
        path: the file, PCM of 8 to 32 bits or floats of 32 or 64; several channels become their mean.
        sample_rate: samples per second that it must have. Default None: any.

    Returns:
        `(waveform, rate)`: float32 `[samples]` in -1..1 (floats as the file has them), and samples per second.
        Where the header says no length, as in a stream, all samples that are there.

    Raises:
        EventFileError: no WAV file, another coding, another rate, no samples, fewer than its header says, or NaN.
        OSError: the file cannot be read.

    >>> import tempfile, wave, snnlib
    >>> with tempfile.NamedTemporaryFile(suffix=".wav") as file:
    ...     with wave.open(file.name, "wb") as writer:
    ...         writer.setparams((1, 2, 8000, 0, "NONE", ""))
    ...         writer.writeframes(bytes([0, 0, 0, 64]))
    ...     snnlib.data.read_wav(file.name)
    (tensor([0.0000, 0.5000]), 8000)
    """
    check_regular(Path(path))
    return decode_wav(Path(path).read_bytes(), str(path), sample_rate)


def decode_wav(
    content: bytes, name: str, sample_rate: int | None = None, channels: int | None = None
) -> tuple[torch.Tensor, int]:
    """`read_wav` of a file's content; `name` stands in messages, `channels` is how many it must have."""
    file = EventFile(content, name)
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise file.error(f"expected a WAV file, which begins with RIFF and WAVE, found {content[:12]!r}", 0)
    (found, rate, coding, width), first, length = _find_data(file, content)
    if sample_rate is not None and rate != sample_rate:
        raise EventFileError(f"{name}: expected {sample_rate} samples a second, found {rate}")
    if channels is not None and found != channels:
        raise EventFileError(f"{name}: expected {channels} channel, found {found}")
    left = len(content) - first
    if length >= max(_UNKNOWN, left) or (length == 0 and not _are_chunks(content, first)):
        length = left
    samples = length // (found * width)
    if samples == 0:
        raise file.error("expected sound, found no samples", first)
    if length > left:
        there = left // (found * width)
        raise file.error(f"expected {samples} samples, found {there}: the file is truncated", len(content))
    values = _decode(content[first : first + samples * found * width], coding, width)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise file.error(
            f"expected finite samples of float32, found {values[bad[0]]}", first + width * int(bad[0])
        )
    return torch.from_numpy(values.reshape(-1, found).mean(1, dtype=np.float32)), rate


def _find_data(file: EventFile, content: bytes) -> tuple[tuple[int, int, int, int], int, int]:
    """Returns the form of the samples, their first byte, and their stated length in bytes."""
    form = None
    for chunk, place, size in _chunks(content, 12):
        if chunk == b"fmt ":
            form = _form(file, content[place : place + size], place)
        if chunk == b"data" and form is not None:
            return form, place, size
    raise file.error("expected a WAV file with a chunk fmt and then data, found its end", len(content))


def _chunks(content: bytes, place: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, first byte and stated length of each chunk."""
    while place + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, place)
        yield name, place + 8, size
        place += 8 + size + size % 2


def _are_chunks(content: bytes, place: int) -> bool:
    """Returns whether whole chunks with names of letters follow up to the end."""
    for name, first, size in _chunks(content, place):
        if not name.strip().isalnum():
            return False
        place = first + size
    return len(content) - place in (0, 1)


def _form(file: EventFile, chunk: bytes, place: int) -> tuple[int, int, int, int]:
    """Returns channels, rate, coding and bytes of a sample that a chunk `fmt ` says."""
    if len(chunk) < 16:
        raise file.error(f"expected a WAV file with 16 bytes of format, found {len(chunk)}", place)
    coding, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", chunk)
    if coding == _EXTENSIBLE:
        if len(chunk) < 40 or chunk[26:40] != _GUID:
            raise file.error(
                f"expected an extensible header of PCM or floats, found {chunk[24:40].hex()!r}", place
            )
        coding = int.from_bytes(chunk[24:26], "little")
    width = (bits + 7) // 8
    if coding not in (1, 3):
        raise file.error(
            f"expected PCM or floats, found coding {coding} ({_CODINGS.get(coding, 'unknown')})", place
        )
    if (coding, width) not in _TYPES or (coding == 3 and bits % 8):
        raise file.error(f"expected PCM of 1 to 32 bits or floats of 32 or 64, found {bits} bits", place)
    if not channels or not rate or frame not in (0, channels * width):
        raise file.error(
            f"expected frames of {width} bytes for each channel at some rate, found {frame} bytes for {channels} "
            f"channels at {rate}",
            place,
        )
    return channels, rate, coding, width


def _decode(data: bytes, coding: int, width: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    kind = np.dtype(_TYPES[coding, width])
    if width == 3:
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = padded.view(kind)[:, 0] >> 8
    else:
        values = np.frombuffer(data, kind)
    with np.errstate(over="ignore"):
        # float64 may hold what float32 cannot.
        result = values.astype(np.float32)
    if coding == 3:
        return result
    return (result - 128 * (width == 1)) / np.float32(2 ** (8 * width - 1))
