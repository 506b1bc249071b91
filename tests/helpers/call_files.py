"""The Python files of the package that a call of a layer executes, forward and backward; release/house.py counts C++.

python tests/helpers/call_files.py
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import snnlib


def executed(call: Callable[[], object]) -> set[str]:
    """Python files of the package of which a call executes a line."""
    package = Path(snnlib.__file__).parent
    files: set[str] = set()

    def trace(frame: FrameType, _event: str, _argument: object) -> None:
        file = Path(frame.f_code.co_filename)
        if package in file.parents:
            files.add(f"snnlib/{file.relative_to(package)}")

    before = sys.gettrace()
    sys.settrace(trace)
    threading.settrace(trace)
    try:
        # In this thread, which is traced.
        with torch.autograd.set_multithreading_enabled(False):
            call()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return files


def layer_call() -> Callable[[], object]:
    """Forward and backward pass of a `SpikingConv2d` that has run before."""
    torch.manual_seed(0)
    neuron = snnlib.neurons.LIF(surrogate=snnlib.surrogate.Triangle())
    layer = snnlib.SpikingConv2d(2, 20, 3, neuron=neuron)
    x = (torch.rand(8, 2, 2, 12, 12) < 0.1).float().requires_grad_()

    def call() -> None:
        layer(x).sum().backward()

    for _ in range(4):
        call()
    return call


if __name__ == "__main__":
    found = executed(layer_call())
    print(f"SpikingConv2d executes {len(found)} files:", *sorted(found), sep="\n  ")
