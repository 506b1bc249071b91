"""Where the files of one split of a data set lie: a folder or a zip file, read the same way.

Both list names relative to the data set's root, like `Train/3/00042.bin`; folder names end in `/`.
"""

from __future__ import annotations

import errno
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from lzma import LZMAError
from pathlib import Path
from typing import Any, Protocol

from snnlib.data.formats.event_file import EventFileError, check_regular
from snnlib.files.pointers import check_fetched

# No single recording is larger: 13 million events of N-MNIST's format. It bounds what a damaged or hostile archive can
# make of a small file.
LARGEST_FILE = 64 * 2**20


class Source(Protocol):
    """A readable tree of files."""

    def names(self) -> list[str]:
        """All files and folders (`.../`), without hidden ones and `__MACOSX`."""

    def read(self, name: str) -> bytes:
        """The bytes of one file.

        Raises:
            EventFileError: not a regular file, or larger than `LARGEST_FILE`.
            OSError: the file cannot be read.
        """

    def describe(self, name: str) -> str:
        """Returns what to call a file in messages."""

    def stamp(self, name: str) -> tuple[int, int]:
        """Size of a file in bytes, and time of its (or its archive's) last change in ns."""


# Bit of `ZipInfo.flag_bits`, see section 4.4.4 of PKWARE's APPNOTE.
_ENCRYPTED = 0x1
# How other archives begin.
ARCHIVES = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"7z\xbc\xaf": "7z", b"Rar!": "rar"}
# zipfile and its decompressors raise these for damaged archives.
DAMAGED_ZIP = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, struct.error, EOFError, NotImplementedError),
    *(OSError, OverflowError, RuntimeError, ValueError),
)


class FolderSource:
    """The files below `root/<split>`; with the split `"."` below `root`."""

    def __init__(self, root: Path, split: str) -> None:
        self.root, self.split = root, split

    def names(self) -> list[str]:
        found = []
        for path, folders, files in os.walk(self.root / self.split, followlinks=True):
            # os.walk visits what is left in this list. A symbolic link to a folder above itself would never end.
            folders[:] = [
                name for name in folders if not _hidden(name) and not _leads_back(Path(path, name), self.root)
            ]
            here = Path(path).relative_to(self.root)
            found += [f"{(here / name).as_posix()}/" for name in folders]
            found += [(here / name).as_posix() for name in files if not _hidden(name)]
        return found

    def read(self, name: str) -> bytes:
        path = self.root / name
        check_regular(path)
        _check_size(str(path), path.stat().st_size)
        return path.read_bytes()

    def describe(self, name: str) -> str:
        return str(self.root / name)

    def stamp(self, name: str) -> tuple[int, int]:
        status = (self.root / name).stat()
        return status.st_size, status.st_mtime_ns


class FilePerProcess:
    """A file that each process opens for itself, when it first needs it.

    An open file shares its read position with a forked DataLoader worker, and cannot be pickled for a spawned one; so
    the handle is dropped from the pickle and a handle of another process is never used.
    """

    def __init__(self, path: Path, opener: Callable[[Path], Any]) -> None:
        self.path, self._opener = path, opener
        self._file: Any = None
        self._process = 0

    def open(self) -> Any:
        """The open file."""
        if self._file is None or self._process != os.getpid():
            self._file, self._process = self._opener(self.path), os.getpid()
        return self._file

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


class ZipSource:
    """The members of a zip file."""

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, FilePerProcess(path, _opened_zip)

    def names(self) -> list[str]:
        names = dict.fromkeys(self._file.open().namelist())
        return [name for name in names if not any(_hidden(part) for part in name.split("/"))]

    def read(self, name: str) -> bytes:
        archive: zipfile.ZipFile = self._file.open()
        info = archive.getinfo(name)
        _check_size(self.describe(name), info.file_size)
        if info.flag_bits & _ENCRYPTED:
            raise EventFileError(
                f"{self.describe(name)}: expected a zip member without a password, got an encrypted one"
            )
        try:
            with archive.open(name) as member:
                # With a number of bytes, what is unpacked is bounded even where the stated size is false.
                data = member.read(info.file_size + 1)
        except DAMAGED_ZIP as error:
            raise EventFileError(f"{self.describe(name)}: damaged zip member: {zip_fault(error)}") from error
        check_fetched(self.describe(name), EventFileError, data)
        return data

    def describe(self, name: str) -> str:
        return f"{self.path}!{name}"

    def stamp(self, name: str) -> tuple[int, int]:
        size: int = self._file.open().getinfo(name).file_size
        return size, self.path.stat().st_mtime_ns


def _opened_zip(path: Path) -> zipfile.ZipFile:
    check_regular(path)
    try:
        return zipfile.ZipFile(path)
    except DAMAGED_ZIP as error:
        fault = zip_fault(error)
        with path.open("rb") as file:
            head = file.read(512)
        other = "tar" if head[257:262] == b"ustar" else None
        other = next((name for magic, name in ARCHIVES.items() if head.startswith(magic)), other)
        if other is not None:
            raise EventFileError(
                f"{path}: expected a zip file, found a {other} archive; unpack it"
            ) from error
        raise EventFileError(
            f"{path}: expected a zip file, found {path.stat().st_size} bytes that are none or only a part of one "
            f"({fault}); copy it again"
        ) from error


def zip_fault(error: Exception) -> str:
    """Returns the words for an error of zipfile at an archive; raises it again where the disk failed."""
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        raise error
    if isinstance(error, NotImplementedError):
        return f"{error}; if it is whole, pack it again by deflate"
    return str(error) or "it ends early"


def open_source(place: Path) -> Source:
    """Returns the files in a folder or a zip file, or in the one zip file of a folder that has no other; else none.

    Raises:
        EventFileError: several zip files.
    """
    if place.is_file():
        return ZipSource(place)
    entries = [path for path in place.iterdir() if not _hidden(path.name)] if place.is_dir() else []
    zips = sorted(path for path in entries if path.suffix.lower() == ".zip" and path.is_file())
    if not zips or any(path.is_dir() or path.suffix.lower() == ".wav" for path in entries):
        return FolderSource(place, ".")
    if len(zips) > 1:
        names = ", ".join(path.name for path in zips)
        raise EventFileError(
            f"{place}: expected a folder with one zip file, found {names}; give one of them as root"
        )
    return ZipSource(zips[0])


def find_split(root: Path, split: str) -> Source:
    """Find `<split>/` or `<split>.zip` in `root`, in any case; the folder wins where both are there.

    Raises:
        FileNotFoundError: `root` is missing or holds no such split; says what was expected and what was
            found.
    """
    layout = f"{split}/<class>/<id>.bin or {split}.zip in it"
    if not root.is_dir():
        what = "a file" if root.exists() else "nothing"
        raise FileNotFoundError(f"root {str(root)!r}: expected a folder with {layout}, found {what} there")
    entries = sorted(path for path in root.iterdir() if not _hidden(path.name))
    for path in entries:
        if path.name.lower() == split.lower() and path.is_dir():
            return FolderSource(root, path.name)
    for path in entries:
        if path.name.lower() == f"{split}.zip".lower() and path.is_file():
            return ZipSource(path)
    found = ", ".join(path.name for path in entries[:8]) + (", ..." if len(entries) > 8 else "")
    hint = "; give the folder above it" if root.name.lower() == split.lower() else ""
    raise FileNotFoundError(
        f"root {str(root)!r}: expected a folder with {layout}, found {found or 'an empty folder'}{hint}"
    )


def _leads_back(folder: Path, root: Path) -> bool:
    """Returns whether `folder` is a symbolic link to one of the folders that it lies in, up to `root`."""
    if not folder.is_symlink():
        return False
    above = folder.parents[: folder.parents.index(root) + 1] if root in folder.parents else folder.parents
    return any(folder.samefile(parent) for parent in above)


def _check_size(name: str, size: int) -> None:
    if size > LARGEST_FILE:
        raise EventFileError(
            f"{name}: expected a recording of at most {LARGEST_FILE / 2**20:.0f} MiB, got {size / 2**20:.0f} MiB"
        )


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
