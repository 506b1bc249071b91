"""The file of golden spike trains: an npz with eight spikes per byte.

`format` holds the version, 1, and the number of trains. A train `fc1` is stored as `fc1.shape` (int64) and `fc1.bits`
(`np.packbits` of its elements in C order). Equal trains give equal bytes: NumPy puts no date into the zip.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Spikes = NDArray[np.bool_]
_VERSION = 1
# What zip, zlib and NumPy's header parser raise on damaged bytes.
_DAMAGED = (
    *(TypeError, ValueError, KeyError, EOFError, OSError, SyntaxError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


class GoldenError(ValueError):
    """A file is no readable file of golden spike trains; the message names the file and the reason."""


def encode(trains: Mapping[str, Spikes]) -> bytes:
    """The file's bytes."""
    arrays: dict[str, NDArray[Any]] = {"format": np.array((_VERSION, len(trains)), dtype="<i8")}
    for name, train in trains.items():
        arrays[f"{name}.shape"] = np.array(train.shape, dtype="<i8")
        arrays[f"{name}.bits"] = np.packbits(train)
    buffer = io.BytesIO()
    # The type stubs take the arrays for the option `allow_pickle`.
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_spikes(path: str | os.PathLike[str]) -> dict[str, Spikes]:
    """The trains of a golden or obtained file as boolean arrays `[T, N, ...]`, by name, in the order of the check.

    Raises:
        FileNotFoundError: no such file.
        GoldenError: the file is damaged, of another kind or of a later version.
    """
    data = io.BytesIO(Path(path).read_bytes())
    try:
        if not zipfile.is_zipfile(data):
            raise ValueError("not a zip file")
        data.seek(0)
        # Every member is read to its end, where zip has its checksum.
        with np.load(data) as stored:
            return _decode({key: stored[key] for key in stored})
    except _DAMAGED as error:
        raise GoldenError(f"{path}: no golden spike trains: {error}") from error


def _decode(arrays: dict[str, NDArray[Any]]) -> dict[str, Spikes]:
    if "format" not in arrays:
        raise ValueError("no array 'format'")
    version, count = arrays["format"].tolist()
    if version != _VERSION:
        raise ValueError(f"version: expected {_VERSION}, got {version}")
    trains = {}
    for name in (key.removesuffix(".bits") for key in arrays if key.endswith(".bits")):
        bits, shape = arrays[f"{name}.bits"], tuple(arrays[f"{name}.shape"].tolist())
        size = math.prod(shape)
        if min(shape, default=0) < 0 or bits.dtype != np.uint8 or bits.shape != (-(-size // 8),):
            raise ValueError(f"{name}: expected the bits of shape {shape}, got {bits.dtype} {bits.shape}")
        trains[name] = np.unpackbits(bits, count=size).reshape(shape).astype(bool)
    if len(trains) != count:
        raise ValueError(f"expected {count} trains, got {len(trains)}")
    return trains
