"""IDX files, the format of MNIST: an array of bytes behind its sizes, plain or gzip.

::

    0 0 type rank    four bytes; type 8 stands for unsigned bytes
    sizes            one big-endian uint32 per dimension
    values           in C order
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from snnlib.data.formats.event_file import EventFileError

_UNSIGNED_BYTE = 8
_GZIP = b"\x1f\x8b"


def read_idx(path: Path, rank: int) -> npt.NDArray[np.uint8]:
    """The array of bytes in an IDX file.

    Args:
        path: the file; whether it is compressed is seen from its first bytes.
        rank: number of dimensions that it must have.

    Raises:
        EventFileError: another format, another rank, or fewer or more bytes than the sizes say.
    """
    data = path.read_bytes()
    if data[:2] == _GZIP:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise EventFileError(
                f"{path}: expected a whole gzip file, found a damaged one ({error})"
            ) from error
    begin = 4 + 4 * rank
    if data[:4] != bytes((0, 0, _UNSIGNED_BYTE, rank)) or len(data) < begin:
        raise EventFileError(
            f"{path}: expected an IDX file of unsigned bytes in {rank} dimensions, which begins with "
            f"{bytes((0, 0, _UNSIGNED_BYTE, rank)).hex(' ')}, found {data[:4].hex(' ') or 'nothing'}"
        )
    sizes = struct.unpack(f">{rank}I", data[4:begin])
    if len(data) - begin != math.prod(sizes):
        raise EventFileError(
            f"{path}: expected {math.prod(sizes)} bytes for the sizes {sizes} of its header, found {len(data) - begin}"
        )
    return np.frombuffer(data, np.uint8, offset=begin).reshape(sizes)
