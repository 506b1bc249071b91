"""Calls of the spike average pooling kernels, for the ops of `pool.py`.

Kernels: cpp/include/snnlib/pool/windows.h; reference: snnlib/backends/reference/pool.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.arguments import Windows
from snnlib.ops.pool_layout import as_walkable, empty_pooled, geometry
from snnlib.ops.sequence_layout import frames_of, sequence_of


def forward(x: Tensor, windows: Windows) -> Tensor:
    """Returns the mean of every window."""
    x = as_walkable(x)
    out = empty_pooled(x, windows)
    run = native.kernel("pool_forward", x)
    if run is None:
        return out.copy_(reference.pool.avg_pool_forward(x, windows))
    options = {"count_include_pad": windows.count_include_pad, "divisor_override": windows.divisor or 0}
    run(**geometry(x, out, windows), **options, input=x, output=out)
    return out


def backward(grad_output: Tensor, x: Tensor, windows: Windows) -> Tensor:
    """Returns `x * sum_pool^T(g / sum_pool(x))`, zero for silent windows."""
    x = as_walkable(x)
    pooled = empty_pooled(x, windows)
    checks.check_gradient("grad_output", grad_output, pooled.shape, "the output's shape", x)
    grad_input = cpu_memory.empty_like(x)
    run = native.kernel("pool_backward", x, grad_output=grad_output)
    if run is None:
        return grad_input.copy_(reference.pool.avg_pool_backward(grad_output, x, windows))
    grad_output = cpu_memory.laid_out_like(grad_output, pooled)
    run(**geometry(x, pooled, windows), input=x, grad_output=grad_output, grad_input=grad_input)
    return grad_input


def shares(grad: Tensor, shape: Sequence[int], window: tuple[int, int], planes: bool = False) -> Tensor:
    """Returns the adjoint of average pooling without overlap and padding, for sequences of this shape.

    The result is channels-last, as event-driven layers read it, or contiguous.
    """
    (high, wide), (rows, columns) = window, grad.shape[3:]
    share = frames_of(grad, grad) / (high * wide)
    # A transform knows no other memory format.
    if planes or share.numel() == 0 or checks.in_transform():
        cells = share.repeat_interleave(wide, 3).repeat_interleave(high, 2)
    else:
        last = share.contiguous(memory_format=torch.channels_last)
        # Every share is copied to the cells of its window; "nearest" alone may round into the next one.
        cells = F.interpolate(last, scale_factor=(float(high), float(wide)), mode="nearest-exact")
    below, beside = shape[3] - rows * high, shape[4] - columns * wide
    if below or beside:
        cells = F.pad(cells, (0, beside, 0, below))
    return sequence_of(cells, grad)
