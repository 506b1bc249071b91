"""Pointers of Git LFS and git-annex: short texts in place of a file whose data were not fetched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# First bytes of a pointer, and the command that fetches the data.
_POINTERS = {
    b"version https://git-lfs.github.com/spec/": ("Git LFS", "git lfs pull"),
    b"version https://hawser.github.com/spec/": ("Git LFS", "git lfs pull"),
    b"/annex/objects/": ("git-annex", "git annex get"),
}
HEAD_BYTES = max(map(len, _POINTERS))


def check_fetched(
    path: str | os.PathLike[str], error: Callable[[str], Exception] = ValueError, head: bytes | None = None
) -> None:
    """Raises `error` where a file is a pointer of Git LFS or git-annex in place of its data.

    Args:
        path: the file, also its name in the message.
        error: makes the exception from the message.
        head: first bytes of the file; default None: they are read. A missing file passes.
    """
    if head is None:
        if not Path(path).is_file():
            return
        with Path(path).open("rb") as file:
            head = file.read(HEAD_BYTES)
    for begin, (program, command) in _POINTERS.items():
        if head.startswith(begin):
            raise error(
                f"{os.fspath(path)}: expected the file's data, found a pointer of {program}: `{command}` in its "
                "repository fetches them"
            )
