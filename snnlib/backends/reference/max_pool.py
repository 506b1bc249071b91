"""Max pooling that keeps of every window which of its cells is the largest, for 1, 2 and 3 axes of `[N, C, *space]`.

A cell's number, its tap, counts row by row in the whole window, padding included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.reference.pool import Sizes, output_size

_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def _starts(
    windows: Sequence[int], stride: Sequence[int], padding: Sequence[int], device: torch.device
) -> list[Tensor]:
    """First coordinate of every window, padding included, for each axis."""
    axes = len(windows)
    return [
        (torch.arange(count, device=device) * step - zeros).view(-1, *[1] * (axes - 1 - axis))
        for axis, (count, step, zeros) in enumerate(zip(windows, stride, padding, strict=True))
    ]


def _split(number: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Coordinates of a cell by its number in a block of these sizes."""
    parts = []
    for size in reversed(sizes):
        parts.append(number % size)
        number = number // size
    return parts[::-1]


def _joined(coordinates: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The number of a cell in a block of these sizes."""
    number = coordinates[0]
    for coordinate, size in zip(coordinates[1:], sizes[1:], strict=True):
        number = number * size + coordinate
    return number


def max_pool_forward(
    x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    """Largest values and their taps: torch's pooling, whose cells count in the image."""
    space = x.shape[2:]
    windows = [output_size(*axis, ceil_mode) for axis in zip(space, kernel, stride, padding, strict=True)]
    if 0 in x.shape[:2]:
        # torch pools nothing without channels.
        empty = x.new_empty(*x.shape[:2], *windows)
        return empty, empty.to(torch.uint8)
    out, index = _POOLS[len(kernel)](
        x.contiguous(), kernel, stride, padding, 1, ceil_mode, return_indices=True
    )
    starts = _starts(windows, stride, padding, x.device)
    taps = [cell - start for cell, start in zip(_split(index, space), starts, strict=True)]
    return out, _joined(taps, kernel).to(torch.uint8)


def cells_of(taps: Tensor, space: Sequence[int], kernel: Sizes, stride: Sizes, padding: Sizes) -> Tensor:
    """The number in the image `[space]` of the cell that every tap is, `[N, C, windows]`.

    It is the number of cells for taps that no forward pass gives, outside of the window or the image.
    """
    starts = _starts(taps.shape[2:], stride, padding, taps.device)
    parts = zip(_split(taps.long(), kernel), starts, strict=True)
    coordinates = [tap + start for tap, start in parts]
    outside = taps >= math.prod(kernel)
    for coordinate, size in zip(coordinates, space, strict=True):
        outside = outside | (coordinate < 0) | (coordinate >= size)
    return _joined(coordinates, space).masked_fill(outside, math.prod(space)).flatten(2)


def max_pool_backward(
    grad_output: Tensor, taps: Tensor, space: Sequence[int], kernel: Sizes, stride: Sizes, padding: Sizes
) -> Tensor:
    """The gradient of every window, added to the cell that is its largest; to none where its tap is no cell."""
    cells = cells_of(taps, space, kernel, stride, padding)
    zeros = grad_output.new_zeros(*grad_output.shape[:2], math.prod(space) + 1)
    sums = zeros.scatter_add(2, cells, grad_output.flatten(2))[..., :-1]
    return sums.reshape(*zeros.shape[:2], *space)
