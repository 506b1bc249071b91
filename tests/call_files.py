"""The files of the project that one forward and backward call of a layer executes (Python) or includes (C++).

python tests/call_files.py
"""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import snnlib

_ROOT = Path(__file__).parents[1]
# What the call's ops enter: bindings and launchers of the fused layer.
_SOURCES = (
    "cpp/bindings/srm_conv.cpp",
    "cpp/cpu/srm_conv_forward.cpp",
    "cpp/cpu/srm_conv_backward.cpp",
    "cpp/cpu/srm_conv_signals.cpp",
)


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


def included() -> set[str]:
    """C++ files of the kernels with all that they include."""
    files: set[str] = set()

    def add(path: Path) -> None:
        name = str(path.relative_to(_ROOT))
        if name in files:
            return
        files.add(name)
        for header in re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8")):
            for folder in (_ROOT / "cpp/include", path.parent):
                if (folder / header).exists():
                    add((folder / header).resolve())

    for source in _SOURCES:
        add(_ROOT / source)
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
    for kind, found in (("executes", executed(layer_call())), ("includes", included())):
        print(f"SpikingConv2d {kind} {len(found)} files:", *sorted(found), sep="\n  ")
