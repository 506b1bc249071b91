"""The files of golden tensors: an npz with eight spikes per byte, or with potentials as they are.

`format` holds the version and the number of tensors. Version 1 has spikes: those of `fc1` are stored as `fc1.shape`
(int64) and `fc1.bits` (`np.packbits` of the elements in C order). Version 2 has potentials: `fc1.values`, floating.
Equal tensors give equal bytes: NumPy puts no date into the zip.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snnlib.files.pointers import check_fetched

Spikes = NDArray[np.bool_]
_SPIKES, _POTENTIALS = 1, 2
# Errors that zip, zlib and NumPy's header parser raise on damaged bytes.
_DAMAGED = (
    *(TypeError, ValueError, KeyError, EOFError, OSError, SyntaxError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


class GoldenError(ValueError):
    """A file is no readable file of golden spike trains; the message names the file and the reason."""


def encode(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Returns the bytes of a file of spikes, which are bool, or of potentials."""
    arrays: dict[str, NDArray[Any]] = {}
    version = _SPIKES
    for name, tensor in tensors.items():
        if tensor.dtype == bool:
            arrays[f"{name}.shape"] = np.array(tensor.shape, dtype="<i8")
            arrays[f"{name}.bits"] = np.packbits(tensor)
        else:
            version, arrays[f"{name}.values"] = _POTENTIALS, tensor
    buffer = io.BytesIO()
    # The type stubs take the arrays for the option `allow_pickle`.
    np.savez_compressed(buffer, format=np.array((version, len(tensors)), dtype="<i8"), **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_spikes(path: str | os.PathLike[str]) -> dict[str, Spikes]:
    """The sequences of a golden or obtained file as boolean arrays `[T, N, ...]`, by name, in the order of the check.

    Raises:
        FileNotFoundError: no such file.
        GoldenError: the file is damaged, of another kind or of a later version.
    """
    return _read(path, _SPIKES, "spike trains", ".bits", _unpacked)


def read_potentials(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """The potentials of a golden or obtained file as floating arrays `[T, N, ...]`, by name, in the order of the check.

    Raises:
        FileNotFoundError: no such file.
        GoldenError: the file is damaged, of another kind or of a later version.
    """
    return _read(path, _POTENTIALS, "potentials", ".values", _floating)


def _read(
    path: str | os.PathLike[str],
    version: int,
    what: str,
    end: str,
    decode: Callable[[str, dict[str, NDArray[Any]]], NDArray[Any]],
) -> dict[str, NDArray[Any]]:
    check_fetched(path, GoldenError)
    data = io.BytesIO(Path(path).read_bytes())
    try:
        if not zipfile.is_zipfile(data):
            raise ValueError("not a zip file")
        data.seek(0)
        # Every member is read to its end, where zip has its checksum.
        with np.load(data) as stored:
            arrays = {key: stored[key] for key in stored}
        for key, array in arrays.items():
            # NumPy gives a member that does not begin like an array as bytes.
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{key}: expected an array, got bytes")
        if "format" not in arrays:
            raise ValueError("no array 'format'")
        found, count = arrays["format"].tolist()
        if found != version:
            raise ValueError(f"version: expected {version}, got {found}")
        names = [key.removesuffix(end) for key in arrays if key.endswith(end)]
        tensors = {name: decode(name, arrays) for name in names}
        if len(tensors) != count:
            raise ValueError(f"expected {count} {what}, got {len(tensors)}")
        return tensors
    except _DAMAGED as error:
        raise GoldenError(f"{path}: no golden {what}: {error}") from error


def _floating(name: str, arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    values = arrays[f"{name}.values"]
    if not np.issubdtype(values.dtype, np.floating):
        raise ValueError(f"{name}: expected floating values, got {values.dtype}")
    return values


def _unpacked(name: str, arrays: dict[str, NDArray[Any]]) -> Spikes:
    bits, shape = arrays[f"{name}.bits"], tuple(arrays[f"{name}.shape"].tolist())
    size = math.prod(shape)
    if min(shape, default=0) < 0 or bits.dtype != np.uint8 or bits.shape != (-(-size // 8),):
        raise ValueError(f"{name}: expected the bits of shape {shape}, got {bits.dtype} {bits.shape}")
    return np.unpackbits(bits, count=size).reshape(shape).astype(bool)
