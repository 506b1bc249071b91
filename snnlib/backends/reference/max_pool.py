"""Max pooling that saves the index of each window's largest pixel, for 1, 2 and 3 axes of `[N, C, *space]`.

The index in the window, `taps`, counts row by row, including padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.arguments import Windows
from snnlib.backends.reference.pool import add_to_cells, cells_of

_POOLS: dict[int, Any] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def max_pool_forward(x: Tensor, windows: Windows) -> tuple[Tensor, Tensor]:
    """Returns the largest values and their indices in the windows, by torch's pooling."""
    counts = windows.counts(x.shape[2:])
    if 0 in x.shape[:2]:
        # torch pools nothing without channels.
        empty = x.new_empty(*x.shape[:2], *counts)
        return empty, empty.to(torch.uint8)
    options = windows.kernel, windows.stride, windows.padding, 1, windows.ceil_mode
    out, cell = _POOLS[len(counts)](x.contiguous(), *options, return_indices=True)
    cells = cells_of(windows, counts, x.shape[2:], x.device)
    taps = (cells == cell.flatten(2).unsqueeze(-1)).to(torch.uint8).argmax(-1)
    return out, taps.to(torch.uint8).reshape(out.shape)


def largest_cells(taps: Tensor, space: Sequence[int], windows: Windows) -> Tensor:
    """Returns the index in the image `[space]` of every window's largest pixel, `[N, C, windows]`.

    The index is the number of pixels for invalid `taps`, outside of the window or the image.
    """
    cells = cells_of(windows, taps.shape[2:], space, taps.device)
    cells = F.pad(cells, (0, 1), value=math.prod(space))
    taps = taps.flatten(2).long().clamp(max=math.prod(windows.kernel))
    return cells.expand(*taps.shape, -1).gather(-1, taps.unsqueeze(-1)).squeeze(-1)


def max_pool_backward(grad_output: Tensor, taps: Tensor, space: Sequence[int], windows: Windows) -> Tensor:
    """Adds the gradient of every window to its largest pixel; invalid `taps` get none."""
    return add_to_cells(grad_output.flatten(2), largest_cells(taps, space, windows), space)
