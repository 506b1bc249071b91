"""Peak memory of a task of nmnist_nets.py in a process of its own, over what it takes to import the libraries.

    python benchmarks/peak_memory.py NAME FILE

This is what `peak_mb` runs. FILE holds the sequence, the labels and our weights. Two training steps are made: the
second has Adam's memory and the gradients to begin with.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from nmnist_nets import Weights, make_task
from torch import Tensor

import snnlib

_STATUS = Path("/proc/self/status")


def peak_mb(name: str, x: Tensor, y: Tensor, weights: Weights, keep_freed: bool) -> float:
    """MB of 1e6 bytes: the input, the net and two training steps."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "task.pt")
        torch.save((x, y, weights, torch.get_num_threads(), keep_freed), file)
        command = [sys.executable, __file__, name, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def main() -> None:
    name, file = sys.argv[1:]
    # A first task of no size imports what `name` needs.
    make_task(name, torch.zeros(1, 1, 2, 34, 34), torch.zeros(1, dtype=torch.int64), _no_weights())()
    forget_peak()
    before = peak()
    x, y, weights, threads, keep_freed = torch.load(file)
    torch.set_num_threads(threads)
    if keep_freed:
        snnlib.keep_freed_memory()
    task = make_task(name, x, y, weights)
    task()
    task()
    print((peak() - before) / 1e6)


def _no_weights() -> Weights:
    return snnlib.models.nmnist_net().state_dict()


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


if __name__ == "__main__":
    main()
