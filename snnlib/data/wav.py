"""Sound files: PCM samples of a WAV file as a waveform, with every damage named."""

from __future__ import annotations

import io
import os
import wave
from pathlib import Path

import numpy as np
import torch

from snnlib.data.formats.event_file import EventFileError, check_regular

__all__ = ["read_wav"]

# Bits of a sample by its bytes; those of one byte are unsigned.
_WIDTHS = (1, 2, 3, 4)


def read_wav(path: str | os.PathLike[str], *, sample_rate: int | None = None) -> tuple[torch.Tensor, int]:
    """Read a WAV file of integer samples.

    Args:
        path: the file, PCM of 8, 16, 24 or 32 bits; several channels become their mean.
        sample_rate: samples per second that it must have. Default None: any.

    Returns:
        `(waveform, rate)`: float32 `[samples]` in -1..1, and samples per second.

    Raises:
        EventFileError: no WAV file, another coding, another rate, no samples, or fewer than its header says.
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
    try:
        with wave.open(io.BytesIO(content)) as file:
            found, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            samples, data = file.getnframes(), file.readframes(file.getnframes())
    # A header cut short ends in EOFError; one of nonsense in wave.Error, or in a size below zero.
    except (wave.Error, EOFError, ValueError, RuntimeError) as error:
        raise EventFileError(
            f"{name}: expected a WAV file of integer samples, found {str(error) or 'its end'}"
        ) from error
    if width not in _WIDTHS or rate < 1:
        raise EventFileError(
            f"{name}: expected samples of 8 to 32 bits at some rate, found {8 * width} bits at {rate}"
        )
    if sample_rate is not None and rate != sample_rate:
        raise EventFileError(f"{name}: expected {sample_rate} samples a second, found {rate}")
    if channels is not None and found != channels:
        raise EventFileError(f"{name}: expected {channels} channel, found {found}")
    if samples == 0:
        raise EventFileError(f"{name}: expected sound, found no samples")
    if len(data) != samples * found * width:
        raise EventFileError(
            f"{name}: expected {samples} samples, found {len(data) // (found * width)}: the file is truncated"
        )
    return torch.from_numpy(_decode(data, width).reshape(-1, found).mean(1, dtype=np.float32)), rate


def _decode(data: bytes, width: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    if width == 1:
        values = np.frombuffer(data, np.uint8).astype(np.float32) - 128
    elif width == 3:
        # As the upper three bytes of four.
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = (padded.view("<i4")[:, 0] >> 8).astype(np.float32)
    else:
        values = np.frombuffer(data, f"<i{width}").astype(np.float32)
    return values / np.float32(2 ** (8 * width - 1))
