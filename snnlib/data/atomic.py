"""Crash-safe file writes: a reader sees the old file or the whole new one, never a part.

The temporary file lies in the target's own folder, because `os.replace` is atomic only within one file
system.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def temporary_sibling(path: Path) -> Path:
    """A hidden, unique name beside `path`; threads and processes never share one."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_bytes_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` through a synced temporary file in the same folder and `os.replace`.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; an older file at `path` is then
            unchanged and the temporary file is removed.
    """
    target = Path(path)
    temporary = temporary_sibling(target)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
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
