"""Peak memory of two training steps in a process of its own, over what it takes to import the libraries.

A script asks for it by `peak_apart(__file__, ...)` and answers `python SCRIPT --task FILE` by `print_peak(FILE, ...)`;
FILE holds the arguments of the function that makes the step. The second step has Adam's memory and the gradients to
begin with.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nmnist_nets import Weights, make_task
from torch import Tensor
from turns import Task

import snnlib

_STATUS = Path("/proc/self/status")


def peak_apart(script: str, arguments: tuple[Any, ...], keep_freed: bool) -> float:
    """MB of 1e6 bytes: what the arguments hold, the net that `script` makes of them, and two training steps."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "task.pt")
        torch.save((arguments, torch.get_num_threads(), keep_freed), file)
        command = [sys.executable, script, "--task", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def print_peak(file: str, make: Callable[..., Task], tiny: tuple[Any, ...]) -> None:
    """The other side of `peak_apart`: `make(*arguments)` is a step, `make(*tiny)` one of hardly any size."""
    # It imports what the others need.
    make(*tiny)()
    forget_peak()
    before = peak()
    arguments, threads, keep_freed = torch.load(file, weights_only=False)
    torch.set_num_threads(threads)
    if keep_freed:
        snnlib.keep_freed_memory()
    task = make(*arguments)
    task()
    task()
    print((peak() - before) / 1e6)


def peak_mb(name: str, x: Tensor, y: Tensor, weights: Weights, keep_freed: bool) -> float:
    """The peak of a task of nmnist_nets.py."""
    return peak_apart(__file__, (name, x, y, weights), keep_freed)


def peak() -> int:
    """Bytes; on Linux since `forget_peak`, elsewhere of the process so far."""
    if _STATUS.exists():
        (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    # macOS counts in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forget_peak() -> None:
    """Importing may have taken more than what is left of it."""
    if _STATUS.exists():
        Path("/proc/self/clear_refs").write_text("5")


def _main() -> None:
    file = sys.argv[2]
    (name, *_), *_ = torch.load(file, weights_only=False)
    weights = snnlib.models.nmnist_net().state_dict()
    print_peak(
        file, make_task, (name, torch.zeros(1, 1, 2, 34, 34), torch.zeros(1, dtype=torch.int64), weights)
    )


if __name__ == "__main__":
    _main()
