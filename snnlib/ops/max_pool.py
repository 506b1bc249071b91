"""Calls of the max pooling kernels, which save a byte per window for backward, for the ops of `pool.py`.

Kernels: cpp/cpu/max_pool.cpp; reference: snnlib/backends/reference/max_pool.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.arguments import Windows
from snnlib.ops.pool_layout import as_walkable, check, empty_frames, empty_pooled, geometry

# Taps are numbers of a byte.
LARGEST_WINDOW = 256


def forward(x: Tensor, windows: Windows) -> tuple[Tensor, Tensor]:
    """Returns the largest value of every window, and its index in the window (uint8), row by row.

    Of equal values it is the first, of several NaN the last, as in torch.
    """
    if math.prod(windows.kernel) > LARGEST_WINDOW:
        raise ValueError(f"kernel: expected at most {LARGEST_WINDOW} cells, got {list(windows.kernel)}")
    x = as_walkable(x)
    out = empty_pooled(x, windows)
    taps = cpu_memory.empty_like(out, torch.uint8)
    run = native.kernel("max_pool_forward", x)
    if run is None:
        values, numbers = reference.max_pool.max_pool_forward(x, windows)
        return out.copy_(values), taps.copy_(numbers)
    run(**geometry(x, out, windows), input=x, output=out, taps=taps)
    return out, taps


def backward(grad_output: Tensor, taps: Tensor, space: Sequence[int], windows: Windows) -> Tensor:
    """Returns the gradient of every window at its largest pixel, in the layout of `taps`."""
    axes = len(windows.kernel)
    checks.check_kernel_dtype("grad_output", grad_output)
    checks.check_tensor("taps", taps)
    checks.check_axes("space", space, axes, 1)
    if taps.dtype != torch.uint8 or taps.shape != grad_output.shape or taps.dim() != axes + 2:
        raise ValueError(
            f"taps: expected the uint8 numbers of windows {tuple(grad_output.shape)}, got {taps.dtype} of shape "
            f"{tuple(taps.shape)}"
        )
    taps = as_walkable(taps)
    grad_input = empty_input(grad_output, taps, space)
    check(grad_input, windows)
    possible = [windows._replace(ceil_mode=ceil_mode).counts(space) for ceil_mode in (False, True)]
    for axis, (count, *expected) in enumerate(zip(taps.shape[2:], *possible, strict=True)):
        if count not in expected:
            raise ValueError(f"taps: expected the windows of {tuple(space)}, got {count} on axis {axis}")
    run = native.kernel("max_pool_backward", grad_output, taps=taps)
    if run is None:
        return grad_input.copy_(reference.max_pool.max_pool_backward(grad_output, taps, space, windows))
    grad_output = cpu_memory.laid_out_like(grad_output, taps, grad_output.dtype)
    sizes = geometry(grad_input, grad_output, windows)
    run(**sizes, grad_output=grad_output, taps=taps, grad_input=grad_input)
    return grad_input


def empty_input(grad_output: Tensor, taps: Tensor, space: Sequence[int]) -> Tensor:
    """Allocates the gradient of the input, in the layout of the windows."""
    return empty_frames([*taps.shape[:2], *space], taps, grad_output.dtype)
