"""A file of events: reading with a position, and errors that name file and offset."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from snnlib.files.pointers import HEAD_BYTES, check_fetched

__all__ = ["EventFileError"]

Array = npt.NDArray[Any]
FileSource = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO

# Events (or words) that are decoded at once: their columns stay in a core's second-level cache.
CHUNK = 1 << 15
# The longest line of a text header; jAER's preferences have lines of some hundred bytes.
LONGEST_LINE = 1 << 16


class EventFileError(ValueError):
    """An event file, archive or folder does not hold what its format promises; the message says where."""


def check_regular(path: Path) -> None:
    """Raise EventFileError for a folder, pipe or device, and for a pointer in place of the data.

    Opening a pipe waits for its writer, and a device may never end.
    """
    if path.exists() and not path.is_file():
        raise EventFileError(f"{path}: expected a regular file, got a folder, pipe or device")
    check_fetched(path, EventFileError)


def joined(parts: Iterator[Array]) -> Iterator[Array]:
    """Joins arrays of few rows, as packets have them, to arrays of CHUNK rows or more; the last may have fewer."""
    waiting: list[Array] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= CHUNK:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


class EventFile:
    """An open event file: reads with a position, and errors that name file and offset.

    Args:
        source: a path, the bytes themselves, or an open binary file that can seek.
        name: what to call the data in messages; default: the path.
        strict: whether a truncated file raises (True) or warns and keeps its whole records (False).
    """

    def __init__(self, source: FileSource, name: str | None = None, strict: bool = False) -> None:
        self.strict = strict
        self.path: Path | None = None
        self._own = True
        self._file: BinaryIO
        # Byte offset of each record that `words` gave last.
        self.records = range(0)
        if isinstance(source, (bytes, bytearray, memoryview)):
            self.name, self._file = name or f"<{len(source)} bytes>", io.BytesIO(source)
        elif isinstance(source, (str, os.PathLike)):
            self.path = Path(source)
            check_regular(self.path)
            self.name, self._file = name or os.fspath(source), self.path.open("rb")
        elif hasattr(source, "read") and hasattr(source, "seek"):
            self.name, self._file = name or str(getattr(source, "name", "<open file>")), source
            self._own = False
        else:
            raise TypeError(
                f"source: expected a path, bytes or an open binary file, got {type(source).__name__}"
            )
        self.size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        check_fetched(self.name, EventFileError, self.peek(HEAD_BYTES))

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._file.close()

    @property
    def suffix(self) -> str:
        """The name's suffix in lower case, like `".raw"`."""
        return Path(self.name).suffix.lower()

    @property
    def left(self) -> int:
        """Bytes after the position."""
        return self.size - self._file.tell()

    def tell(self) -> int:
        """The position in bytes."""
        return self._file.tell()

    def seek(self, offset: int) -> None:
        """Go to a position."""
        self._file.seek(offset)

    def read(self, count: int) -> bytes:
        """At most `count` bytes; never more memory than the file has bytes."""
        return self._file.read(min(count, max(self.left, 0)))

    def peek(self, count: int) -> bytes:
        """The next bytes, without moving on."""
        place = self.tell()
        data = self.read(count)
        self.seek(place)
        return data

    def opened(self) -> BinaryIO:
        """The binary file itself, for libraries that read it."""
        return self._file

    def text_header(self, mark: bytes, ends: Callable[[str], bool]) -> list[str]:
        """The lines at the beginning that start with `mark` and are text, without line ends.

        Stops after a line for which `ends` holds. A line with control characters is the beginning of the data, whose
        first byte happens to equal `mark`.
        """
        lines: list[str] = []
        while self.peek(1) == mark:
            place = self.tell()
            line = self._file.readline(LONGEST_LINE)
            body = line.rstrip(b"\r\n")
            if not line.endswith(b"\n") or any(byte < 0x20 and byte != 0x09 for byte in body):
                self.seek(place)
                break
            lines.append(body.decode("utf-8", errors="replace"))
            if ends(lines[-1]):
                break
        return lines

    def words(
        self, dtype: str, columns: int = 1, chunk: int = CHUNK, *, reuse: bool = False
    ) -> Iterator[Array]:
        """The rest of the file as arrays `[n]` or `[n, columns]`; a part of a record at the end is a truncation.

        With `reuse` all arrays share their memory, which the next one overwrites.
        """
        size = np.dtype(dtype).itemsize * columns
        place = self.tell()
        buffer = bytearray(min(size * chunk, max(self.left, 0))) if reuse else None
        while True:
            data = self.read(size * chunk) if buffer is None else self._read_into(buffer)
            whole = len(data) // size
            if len(data) % size:
                self.truncated(
                    f"a record of {size} bytes, found {len(data) % size} bytes", place + whole * size
                )
            if whole:
                self.records = range(place, place + whole * size, size)
                place += whole * size
                words = np.frombuffer(data, dtype, whole * columns)
                yield words if columns == 1 else words.reshape(whole, columns)
            if len(data) < size * chunk:
                return

    def _read_into(self, buffer: bytearray) -> memoryview:
        view = memoryview(buffer)
        count = 0
        # A user's file object may give less than there is.
        while count < len(buffer) and (more := self._file.readinto(view[count:])):  # type: ignore[attr-defined]
            count += more
        return view[:count]

    def error(self, text: str, offset: int | None = None) -> EventFileError:
        """An error at a byte offset, default the position."""
        return EventFileError(f"{self.name}: byte offset {self.tell() if offset is None else offset}: {text}")

    def truncated(self, text: str, offset: int | None = None) -> None:
        """Raise (strict) or warn that the file ends early."""
        error = self.error(f"truncated: expected {text}", offset)
        if self.strict:
            raise EventFileError(f"{error} (strict=False keeps the whole records)")
        warnings.warn(f"{error}; what was left is not read", stacklevel=2)
