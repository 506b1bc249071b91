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

from snnlib.data.formats.event_file import EventFileError, check_regular

_UNSIGNED_BYTE = 8
_GZIP = b"\x1f\x8b"
# Bytes that one byte of a gzip file can become at most (RFC 1951: 258 of two bits).
_MOST_PACKED = 1032


def read_idx(path: Path, rank: int) -> npt.NDArray[np.uint8]:
    """The array of bytes in an IDX file. Takes no more memory than its header claims, whatever it unpacks to.

    Args:
        path: the file; whether it is compressed is seen from its first bytes.
        rank: number of dimensions that it must have.

    Raises:
        EventFileError: another format, another rank, or fewer or more bytes than the sizes say.
    """
    check_regular(path)
    begin, size = 4 + 4 * rank, path.stat().st_size
    with path.open("rb") as packed:
        file = gzip.GzipFile(fileobj=packed) if packed.read(2) == _GZIP else packed
        packed.seek(0)
        try:
            data = file.read(begin)
            if data[:4] != bytes((0, 0, _UNSIGNED_BYTE, rank)) or len(data) < begin:
                raise EventFileError(
                    f"{path}: expected an IDX file of unsigned bytes in {rank} dimensions, which begins with "
                    f"{bytes((0, 0, _UNSIGNED_BYTE, rank)).hex(' ')}, found {data[:4].hex(' ') or 'nothing'}"
                )
            sizes = struct.unpack(f">{rank}I", data[4:])
            count = math.prod(sizes)
            # A further byte shows the end of the file, where gzip compares its checksum.
            values = file.read(min(count, _MOST_PACKED * size) + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise EventFileError(
                f"{path}: expected a whole gzip file, found a damaged one ({error})"
            ) from error
    if len(values) != count:
        found = "more" if len(values) > count else len(values)
        raise EventFileError(
            f"{path}: expected {count} bytes for the sizes {sizes} of its header, found {found}"
        )
    return np.frombuffer(values, np.uint8).reshape(sizes)
