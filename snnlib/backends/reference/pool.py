"""Average pooling of events and its sum-preserving gradient, for 1, 2 and 3 axes.

Equation and source: cpp/include/snnlib/pool/windows.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.arguments import Windows


def cells_of(windows: Windows, counts: Sequence[int], space: Sequence[int], device: torch.device) -> Tensor:
    """The number in the image `[space]` of every cell of every window, `[windows, cells]`, counted row by row.

    `counts` are the windows along each axis. Cells beside the image have the number of its cells.
    """
    beside = math.prod(space)
    numbers = torch.arange(beside, device=device).view(*space)
    axes = zip(space, counts, windows.kernel, windows.stride, windows.padding, strict=True)
    for axis, (size, count, extent, step, zeros) in enumerate(axes):
        # Less than nothing where no window reaches the end.
        behind = (count - 1) * step + extent - zeros - size
        padded = F.pad(numbers.movedim(axis, -1), (zeros, behind), value=beside)
        numbers = padded.unfold(-1, extent, step).movedim(-2, axis)
    return numbers.flatten(len(counts)).flatten(0, -2)


def read_cells(image: Tensor, cells: Tensor) -> Tensor:
    """The values of `[N, C, *space]` at these cells, 0 beside the image."""
    return F.pad(image.flatten(2), (0, 1))[..., cells]


def add_to_cells(values: Tensor, cells: Tensor, space: Sequence[int]) -> Tensor:
    """The adjoint: values `[N, C, ...]`, added up at these cells of an image `[N, C, *space]`."""
    image = values.new_zeros(*values.shape[:2], math.prod(space) + 1)
    image = image.scatter_add(2, cells.expand_as(values).flatten(2), values.flatten(2))
    return image[..., :-1].reshape(*values.shape[:2], *space)


def _divisor(windows: Windows, space: Sequence[int], device: torch.device) -> Tensor | int:
    """Returns the divisor of every window: its cells in the image and, with `count_include_pad`, its padding."""
    if windows.divisor is not None:
        return windows.divisor
    counts = windows.counts(space)
    if windows.count_include_pad:
        space = [size + 2 * zeros for size, zeros in zip(space, windows.padding, strict=True)]
        windows = windows._replace(padding=[0] * len(space))
    return (cells_of(windows, counts, space, device) < math.prod(space)).sum(-1)


def avg_pool_forward(x: Tensor, windows: Windows) -> Tensor:
    """Average over `[N, C, *space]`, summed in float32 or wider and rounded once."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    counts = windows.counts(x.shape[2:])
    sums = read_cells(wide, cells_of(windows, counts, x.shape[2:], x.device)).sum(-1)
    means = sums / _divisor(windows, x.shape[2:], x.device)
    return means.to(x.dtype).reshape(*x.shape[:2], *counts)


def avg_pool_backward(grad_output: Tensor, x: Tensor, windows: Windows) -> Tensor:
    """`x * sum_pool^T(g / sum_pool(x))`, zero for silent windows."""
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    cells = cells_of(windows, windows.counts(x.shape[2:]), x.shape[2:], x.device)
    values = read_cells(wide, cells)
    total, total_abs = values.sum(-1), values.abs().sum(-1)
    silent = total.abs() <= math.prod(windows.kernel) * torch.finfo(wide.dtype).eps * total_abs
    share = torch.where(silent, 0.0, grad_output.to(wide.dtype).flatten(2) / torch.where(silent, 1.0, total))
    spread = add_to_cells(share.unsqueeze(-1).expand_as(values), cells, x.shape[2:])
    return torch.where(wide == 0, 0.0, wide * spread).to(x.dtype)
