"""The Python files of the package that a call of a layer executes, and its hand-overs; release/house.py counts C++.

python tests/helpers/call_files.py
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
from torch import nn

import snnlib
from snnlib.neurons import Neuron


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
        # Keeps the backward pass in this thread, which is traced.
        with torch.autograd.set_multithreading_enabled(False):
            call()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return files


def functions_to_kernel(layer: snnlib.SpikingConv2d, x: torch.Tensor) -> list[str]:
    """Functions of the package, each within the one before, from a layer's call to its kernel's."""
    package = Path(snnlib.__file__).parent
    chains: list[list[str]] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if (
            event != "call"
            or frame.f_code.co_name != "<lambda>"
            or "native.py" not in frame.f_code.co_filename
        ):
            return
        chain: list[str] = []
        caller: FrameType | None = frame
        while caller is not None:
            file = Path(caller.f_code.co_filename)
            if package in file.parents:
                chain.append(f"{file.relative_to(package)}: {caller.f_code.co_name}")
            caller = caller.f_back
        chains.append(chain[::-1])

    sys.setprofile(profile)
    try:
        layer(x)
    finally:
        sys.setprofile(None)
    assert len(chains) == 1, chains
    return chains[0]


def frames(call: Callable[[], object]) -> list[str]:
    """Calls of Python functions of the package within a call, in their order."""
    package = Path(snnlib.__file__).parent
    found: list[str] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and package in file.parents:
            found.append(f"{file.relative_to(package)}: {frame.f_code.co_name}")

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def small_layer(neuron: Neuron | None = None) -> tuple[snnlib.SpikingConv2d, torch.Tensor]:
    """A `SpikingConv2d` and its input, so small that its call does not look at the density, which has a kernel."""
    torch.manual_seed(0)
    if neuron is None:
        neuron = snnlib.neurons.LIF(surrogate=snnlib.surrogate.Triangle())
    layer = snnlib.SpikingConv2d(2, 20, 3, neuron=neuron)
    return layer, (torch.rand(2, 2, 2, 12, 12) < 0.1).float().requires_grad_()


def warm_call(neuron: Neuron) -> Callable[[], object]:
    """Forward pass of a `SpikingConv2d` that has run before."""
    layer, x = small_layer(neuron)
    for _ in range(4):
        layer(x).sum().backward()
    return lambda: layer(x)


def warm_step() -> Callable[[], object]:
    """Step of a stream of two layers that has run before."""
    layer, x = small_layer()
    stream = snnlib.Stream(nn.Sequential(layer, nn.Flatten(2), snnlib.SpikingLinear(2000, 10)))
    step = x[:1].detach()

    def call() -> None:
        with torch.no_grad():
            stream(step)

    for _ in range(4):
        call()
    return call


def layer_call() -> Callable[[], object]:
    """Forward and backward pass of a `SpikingConv2d` that has run before."""
    layer, x = small_layer()

    def call() -> None:
        layer(x).sum().backward()

    for _ in range(4):
        call()
    return call


if __name__ == "__main__":
    found = executed(layer_call())
    print(f"SpikingConv2d executes {len(found)} files:", *sorted(found), sep="\n  ")
