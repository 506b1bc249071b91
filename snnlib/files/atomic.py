"""Crash-safe file writes: a reader sees the old file or the whole new one, never a part.

The temporary file lies in the target's own folder, because `os.replace` is atomic only within one file
system.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def temporary_sibling(path: Path) -> Path:
    """A hidden, unique name beside `path`; threads and processes never share one."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_bytes_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` through a synced temporary file in the same folder and `os.replace`.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; an older file at `path` is then
            unchanged and the temporary file is removed.
    """
    with whole_or_absent(Path(path)) as file:
        file.write(data)


@contextmanager
def whole_or_absent(target: Path) -> Iterator[BinaryIO]:
    """A new file to write in a `with` block, which becomes `target` when the block ends without an error.

    Raises:
        OSError: as `write_bytes_atomically`; names `target`.
    """
    temporary = temporary_sibling(target)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        # A full disk names no file, and the temporary one says nothing to a user.
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Ask the disk to keep a rename in `folder`, where the platform can sync a folder (POSIX)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
