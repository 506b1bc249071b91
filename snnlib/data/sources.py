"""Where the files of one split of a data set lie: a folder or a zip file, read the same way.

Both list names relative to the data set's root, like `Train/3/00042.bin`; folder names end in `/`.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, Protocol

from snnlib.data.nmnist_format import EventFileError


class Source(Protocol):
    """A readable tree of files."""

    def names(self) -> list[str]:
        """All files and folders (`.../`), without hidden ones and `__MACOSX`."""

    def read(self, name: str) -> bytes:
        """The bytes of one file."""

    def describe(self, name: str) -> str:
        """What to call a file in messages."""


class FolderSource:
    """The files below `root/<split>`."""

    def __init__(self, root: Path, split: str) -> None:
        self.root, self.split = root, split

    def names(self) -> list[str]:
        found = []
        for path, folders, files in os.walk(self.root / self.split):
            # os.walk visits what is left in this list.
            folders[:] = [name for name in folders if not _hidden(name)]
            here = Path(path).relative_to(self.root).as_posix()
            found += [f"{here}/{name}/" for name in folders]
            found += [f"{here}/{name}" for name in files if not _hidden(name)]
        return found

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def describe(self, name: str) -> str:
        return str(self.root / name)


class ZipSource:
    """The members of a zip file, opened when first read and once per process.

    An open zip file shares its read position with a forked DataLoader worker, and cannot be pickled for a
    spawned one; so the handle is dropped from the pickle and a handle of another process is never used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip: zipfile.ZipFile | None = None
        self._process = 0

    def names(self) -> list[str]:
        names = dict.fromkeys(self._open().namelist())
        return [name for name in names if not any(_hidden(part) for part in name.split("/"))]

    def read(self, name: str) -> bytes:
        try:
            return self._open().read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise EventFileError(f"{self.describe(name)}: damaged zip member: {error}") from error

    def describe(self, name: str) -> str:
        return f"{self.path}!{name}"

    def _open(self) -> zipfile.ZipFile:
        if self._zip is None or self._process != os.getpid():
            try:
                self._zip = zipfile.ZipFile(self.path)
            except zipfile.BadZipFile as error:
                raise EventFileError(
                    f"{self.path}: expected a zip file, found {self.path.stat().st_size} bytes that are none "
                    f"or only a part of one ({error}); copy it again"
                ) from error
            self._process = os.getpid()
        return self._zip

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_zip": None}


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


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
