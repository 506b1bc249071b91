"""Checkpoints that survive a crash: whole or absent, checked when read, with the one before kept."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from snnlib.app.errors import CheckpointError
from snnlib.files.atomic import write_bytes_atomically
from snnlib.files.pointers import check_fetched

# A torch checkpoint is a zip archive, and a zip archive may end in a comment: the digest goes there, so that plain
# `torch.load` still reads the file. The comment is preceded by its length, two bytes; torch writes none.
_COMMENT_MARK = b"snnlib-sha256:"
_DIGEST_CHARS = 64
_COMMENT_CHARS = len(_COMMENT_MARK) + _DIGEST_CHARS
_NO_COMMENT = struct.pack("<H", 0)


class SafeCheckpointIO(CheckpointIO):
    """Lightning's way to files, made crash-safe.

    A checkpoint is written beside its place, synced and renamed, so a crash at any moment leaves the old file or the
    new one. An intact older version is kept as `<name>.previous`. Loading checks a SHA-256 digest and unpickles data
    only (`weights_only=True`), never code.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     SafeCheckpointIO().save_checkpoint({"epoch": 3}, f"{folder}/last.ckpt")
    ...     SafeCheckpointIO().load_checkpoint(f"{folder}/last.ckpt")
    {'epoch': 3}
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write `checkpoint` to `path`; `storage_options` is Lightning's and not used for files.

        Raises:
            OSError: the disk is full or the folder not writable; what was there before is still there.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        # A damaged file must not push out the good one that is kept for this very case.
        if target.exists() and _intact(target):
            write_bytes_atomically(previous_of(target), target.read_bytes())
        write_bytes_atomically(target, _with_digest(buffer.getvalue()))

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any | Callable[..., Any] | None = None,
        weights_only: bool | None = True,
    ) -> dict[str, Any]:
        """Read a checkpoint. Lightning may pass another `weights_only`; it is True always.

        Raises:
            CheckpointError: the file is missing, cut off or changed, or holds other things than tensors and plain data.
        """
        source = Path(path)
        try:
            data = source.read_bytes()
        except OSError as error:
            raise CheckpointError(
                f"{source}: expected a checkpoint, got {error.strerror or error}"
            ) from error
        check_fetched(source, CheckpointError, data)
        if not _digest_fits(data):
            raise CheckpointError(
                f"{source}: expected a whole checkpoint, got {len(data)} bytes whose checksum does not fit: "
                "the file is damaged"
            )
        try:
            content = torch.load(io.BytesIO(data), map_location=map_location, weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, ValueError, KeyError, TypeError, EOFError) as error:
            # torch's own message recommends to load without the check, which would run the file's code.
            raise CheckpointError(
                f"{source}: expected a checkpoint of tensors and plain data, got a file that torch.load refuses with "
                f"weights_only=True ({type(error).__name__})"
            ) from error
        if not isinstance(content, dict):
            raise CheckpointError(f"{source}: expected a dictionary, got {type(content).__name__}")
        return content

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint that Lightning no longer needs."""
        Path(path).unlink(missing_ok=True)


def previous_of(path: Path) -> Path:
    """Where the version before `path` is kept."""
    return path.with_name(f"{path.name}.previous")


def is_there(path: Path) -> bool:
    """Returns whether the path exists, broken links included."""
    return path.exists() or path.is_symlink()


def remove_leftovers(folder: Path) -> None:
    """Remove what killed saves left in `folder`; nobody else may be writing there (`RunFolder.lock`)."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def find_intact(path: Path) -> Path:
    """`path`, or with a warning the version before it where `path` is damaged or missing.

    Raises:
        CheckpointError: neither can be read; names both.
    """
    if _intact(path):
        return path
    check_fetched(path, CheckpointError)
    what = "damaged" if is_there(path) else "missing"
    if _intact(previous_of(path)):
        warnings.warn(f"{path} is {what}: continuing from {previous_of(path).name}", stacklevel=2)
        return previous_of(path)
    raise CheckpointError(
        f"{path}: expected a checkpoint, got a file that is {what}, and there is no older version"
    )


def _intact(path: Path) -> bool:
    return path.is_file() and _digest_fits(path.read_bytes())


def _with_digest(data: bytes) -> bytes:
    if not data.endswith(_NO_COMMENT):
        raise ValueError(
            "checkpoint: expected a zip archive without a comment; torch has changed its file format"
        )
    body = data[: -len(_NO_COMMENT)]
    return body + _end_of(body)


def _digest_fits(data: bytes) -> bool:
    length = len(_NO_COMMENT) + _COMMENT_CHARS
    return data[-length:] == _end_of(data[:-length])


def _end_of(body: bytes) -> bytes:
    """Length of the comment, and the comment, behind the rest of an archive."""
    return struct.pack("<H", _COMMENT_CHARS) + _COMMENT_MARK + hashlib.sha256(body).hexdigest().encode()
