"""Weights and their gradients as the event kernels walk them.

The kernels know taps side by side only. The rows of a dilated kernel have zeros between its taps, and the gradients at
those zeros are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.ops.geometry import GROUP, Geometry


def _padded(floats: int) -> int:
    return -(-floats // GROUP) * GROUP


def kernel_rows(weight: Tensor, dilation: Sequence[int], by_scatter: bool) -> Tensor:
    """Weight `[O, C, kh, kw]` in float32, in the order in which `scatter` (each event's row) or `gather` walk it."""
    weight = _spread(weight.to(torch.float32), dilation)
    scattered, gathered = weight.flip(3).permute(2, 1, 3, 0), weight.permute(2, 3, 1, 0)
    rows = scattered.flatten(2) if by_scatter else gathered.flatten(1, 2)
    return F.pad(rows, (0, -rows.shape[-1] % GROUP)).contiguous()


def _spread(weight: Tensor, dilation: Sequence[int]) -> Tensor:
    if max(dilation) == 1:
        return weight
    sizes = ((taps - 1) * step + 1 for taps, step in zip(weight.shape[2:], dilation, strict=True))
    wide = weight.new_zeros(*weight.shape[:2], *sizes)
    wide[..., :: dilation[0], :: dilation[1]] = weight
    return wide


def block_channels(g: Geometry) -> int:
    """Output channels that the weight gradient by inputs deals with at a time."""
    return 2 * GROUP if _padded(g.channels) % (2 * GROUP) == 0 else GROUP


def gradient_rows(g: Geometry, by_inputs: bool) -> tuple[int, ...]:
    """Shape of a weight gradient as the kernels sum it."""
    if not by_inputs:
        return g.kernel_h, g.channels, _padded(g.kernel_w * g.in_channels)
    block = block_channels(g)
    return _padded(g.channels) // block, g.in_channels, g.kernel_h, g.kernel_w, block


def from_gradient_rows(rows: Tensor, g: Geometry, dilation: Sequence[int], by_inputs: bool) -> Tensor:
    """`[O, C, kh, kw]`"""
    if by_inputs:
        wide = rows.flip(3).permute(0, 4, 1, 2, 3).flatten(0, 1)[: g.channels]
    else:
        total = rows[:, :, : g.kernel_w * g.in_channels]
        wide = total.reshape(g.kernel_h, g.channels, g.kernel_w, g.in_channels).permute(1, 3, 0, 2)
    return wide[..., :: dilation[0], :: dilation[1]].contiguous()
