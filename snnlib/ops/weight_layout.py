"""Weights and their gradients as the event kernels walk them.

The kernels know taps side by side only. The rows of a dilated kernel have zeros between its taps, and the gradients at
those zeros are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.geometry import GROUP, Geometry, block_channels

# Channels whose weights under one tap lie next to each other: few enough for the second cache, and whole lines of it.
_PIECE = 128


def _padded(floats: int) -> int:
    return -(-floats // GROUP) * GROUP


def kernel_rows(weight: Tensor, dilation: Sequence[int], by_scatter: bool) -> Tensor:
    """Weight `[O, C, kh, kw]` in float32, in the order in which `scatter` (each event's row) or `gather` walk it."""
    by_tap = _by_tap(_spread(weight.to(torch.float32), dilation))
    rows = by_tap.flip(1).transpose(1, 2).flatten(2) if by_scatter else by_tap.flatten(1, 2)
    return _whole_groups(rows).contiguous()


def tap_rows(weight: Tensor) -> Tensor:
    """Weight `[O, C, kh, kw]` as float32 rows `[pieces, kh, kw, C, O / pieces]`, padded to whole groups."""
    rows = _whole_groups(_by_tap(weight.to(torch.float32)))
    piece = math.gcd(rows.shape[-1], _PIECE)
    return rows.view(*rows.shape[:-1], rows.shape[-1] // piece, piece).movedim(3, 0).contiguous()


def _whole_groups(rows: Tensor) -> Tensor:
    # Padding by nothing would copy.
    missing = -rows.shape[-1] % GROUP
    return F.pad(rows, (0, missing)) if missing else rows


def _by_tap(weight: Tensor) -> Tensor:
    """`[kh, kw, C, O]`. Torch transposes matrices in blocks, and other tensors up to ten times as slowly."""
    outputs, inputs, *taps = weight.shape
    matrix = weight.flatten(1).t().contiguous()
    return matrix.view(inputs, *taps, outputs).movedim(0, 2)


def from_tap_rows(rows: Tensor) -> Tensor:
    """`[O, C, kh, kw]` of a gradient `[kh, kw, C, O]`."""
    *taps, inputs, outputs = rows.shape
    matrix = rows.movedim(2, 0).flatten(0, 2).t().contiguous()
    return matrix.view(outputs, inputs, *taps)


def _spread(weight: Tensor, dilation: Sequence[int]) -> Tensor:
    if max(dilation) == 1:
        return weight
    sizes = ((taps - 1) * step + 1 for taps, step in zip(weight.shape[2:], dilation, strict=True))
    wide = weight.new_zeros(*weight.shape[:2], *sizes)
    wide[..., :: dilation[0], :: dilation[1]] = weight
    return wide


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
