"""Memory of freed tensors, returned to the system in a pass over many chunks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from snnlib.backends import cpu_memory

_PAGES = Path("/proc/self/statm")
# Growth in bytes, beyond what one chunk leaves behind, at which freed memory goes back.
_MOST_GROWTH = 16 << 20


class FreedMemory:
    """Reuses the memory of a chunk's tensors for the next chunk, as long as the process does not grow.

    The first access to memory from the system is slow. Large tensors of the CPU kernels reuse blocks
    (backends/cpu_memory.py). Other tensors, whose sizes change from chunk to chunk, fragment the heap, so that a
    process that never returned memory would grow. Memory that was free before the first chunk stays: returning
    gigabytes of another library takes a second.
    """

    # Growth of passes since memory was handed back, so that small growth of many passes is noticed.
    _left_behind: ClassVar[int] = 0

    def __init__(self) -> None:
        self._keeper = cpu_memory.BlockKeeper()
        # Size of the process after a first chunk, less what earlier passes left; None until then.
        self._after_one: int | None = None
        self._began = False

    def begin_chunk(self) -> None:
        """Call it before each chunk of the forward and of the backward pass."""
        now = _heap_bytes()
        if now is None:
            cpu_memory.hand_back_freed_memory()
        elif self._after_one is not None:
            FreedMemory._left_behind = max(0, now - self._after_one)
            if FreedMemory._left_behind > _MOST_GROWTH:
                cpu_memory.hand_back_freed_memory()
                self._after_one, FreedMemory._left_behind = None, 0
        elif self._began:
            self._after_one = now - FreedMemory._left_behind
        self._began = True


def _heap_bytes() -> int | None:
    """Returns the memory of this process without the pool's blocks, which do not fragment."""
    resident = resident_bytes()
    return None if resident is None else resident - cpu_memory.pooled_bytes()


def resident_bytes() -> int | None:
    """Returns the memory of this process; None if the system does not tell."""
    try:
        return int(_PAGES.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
