"""Memory that a process may still take, on a CPU and on a GPU."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import torch

_MEMORY = Path("/proc/meminfo")
_OWN_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
# Where the system does not say, as on Windows: half of what laptops have at least.
_UNKNOWN = 4e9


def free_bytes(device: torch.device) -> float:
    """Returns the free memory of a device in bytes, that of the process's control groups included.

    Systems other than Linux tell the size of the machine at most, of which half counts as free.
    """
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    return min(_free_of_machine(), *_free_of_groups())


def _free_of_machine() -> float:
    try:
        sizes = _fields(_MEMORY, ":")
        return 1024 * sizes["MemAvailable"]
    except (OSError, KeyError):
        if hasattr(os, "sysconf"):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
        return _UNKNOWN


def _free_of_groups() -> Iterator[float]:
    """Yields what is left of the limit of each control group (version 2) that the process is in."""
    yield math.inf
    try:
        own = _OWN_GROUP.read_text(encoding="utf-8").partition("0::/")[2].strip()
    except OSError:
        return
    for group in (_GROUPS / own, *(_GROUPS / own).parents):
        if not group.is_relative_to(_GROUPS):
            return
        try:
            limit = float((group / "memory.max").read_text(encoding="ascii").replace("max", "inf"))
            used = float((group / "memory.current").read_text(encoding="ascii"))
            # Cached files count as used, and give way to memory that a process asks for.
            yield limit - used + _fields(group / "memory.stat", " ")["inactive_file"]
        except (OSError, KeyError, ValueError):
            # A group without a limit of its own, as the root is.
            continue


def _fields(path: Path, separator: str) -> dict[str, float]:
    """Returns the numbers of a file with a name and a number in each line."""
    lines = (line.partition(separator) for line in path.read_text(encoding="ascii").splitlines())
    return {name: float(value.split()[0]) for name, _, value in lines}
